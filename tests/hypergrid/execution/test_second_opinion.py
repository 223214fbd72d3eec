"""Surfaces recomputed by PyKrige: what agrees, what is found to be wrong, and what PyKrige lacks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery
from hypergrid.execution.results.second_opinion import ATTRIBUTE, SecondOpinion, ask_second_opinion
from hypergrid.formats.results import write
from hypergrid.query import OpenArchive, Query
from tests.support.networks import random_archive

MODEL = hg.variogram("exponential", psill=1.2, range_m=400.0, nugget=0.05)
NESTED = hg.variogram("gaussian", psill=0.5, range_m=300.0, nugget=0.1) + hg.variogram(
    "matern", psill=1.0, range_m=2000.0, smoothness=1.5
)
GRID = hg.grid(x=(0, 1000), y=(0, 1000), step=100.0)
AROUND = hg.grid(lon=(-20, 40), lat=(30, 70), step=5.0)


def readings(*, stations: int = 14, hours: int = 30, seed: int = 0, wide: bool = False) -> xr.DataArray:
    """Half-hourly values with holes, at stations in a square of 1 km, or all over Europe."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform((0, 0), (1000, 1000), (stations, 2)).T
    names = ("lon", "lat") if wide else ("x", "y")
    x, y = (x * 0.06 - 20, y * 0.04 + 30) if wide else (x, y)
    values = 8 + np.sin(x / 300) + np.cos(np.arange(2 * hours) / 9)[:, None] + rng.normal(size=(2 * hours, stations))
    values[rng.random(values.shape) < 0.2] = np.nan
    values[:, :7] = np.where(np.isnan(values[:, :7]), 8.0, values[:, :7])
    coords = {
        "time": pd.date_range("2024-01-01", periods=2 * hours, freq="30min"),
        "station": [f"s{i}" for i in range(stations)],
        names[0]: ("station", x), names[1]: ("station", y), "elevation": ("station", rng.uniform(500, 2500, stations)),
    }  # fmt: skip
    return xr.DataArray(values, coords, ("time", "station"), "air_temperature", {"units": "degC"})


def terrain(*, wide: bool = False) -> xr.DataArray:
    at = np.arange(-100.0, 1200.0, 50.0)
    heights = 1500 + 900 * np.sin(at / 150) * np.cos(at[:, None] / 220)
    names = ("lat", "lon") if wide else ("y", "x")
    y, x = (at * 0.04 + 30, at * 0.06 - 20) if wide else (at, at)
    return xr.DataArray(heights, {names[0]: y, names[1]: x}, names, attrs={"units": "m"})


def base(*, wide: bool = False) -> Query:
    return hg.base(readings(wide=wide), layers={"elevation": terrain(wide=wide)})


def kriged(method: str = "ordinary_kriging", *, variogram: object = MODEL, grid: object = GRID, **given: Any) -> Query:  # noqa: ANN401 - parameters of the method
    return base(wide=grid is AROUND).interpolate(method, grid=grid, variogram=variogram, **given)


def opinion_of(query: Query, cells: int = 60) -> SecondOpinion:
    return ask_second_opinion(query.surface(), query.compute(), cells=cells)


COMPARED: dict[str, Callable[[], Query]] = {
    "ordinary": kriged,
    "on points": lambda: kriged(grid=hg.points(x=[10.0, 500.0, 990.0], y=[20.0, 510.0, 333.0], step=10.0)),
    "of a station's own place": lambda: kriged(
        grid=hg.points(x=readings()["x"].values[:5], y=readings()["y"].values[:5], step=10.0)
    ),
    "neighbours": lambda: kriged(neighbours=5),
    "nested": lambda: kriged(variogram=NESTED),
    "anisotropic": lambda: kriged(
        neighbours=6,
        variogram=hg.variogram(
            "spherical", psill=1.2, range_m=900.0, nugget=0.2, anisotropy={"angle_degree": 35.0, "ratio": 2.5}
        ),
    ),
    "noise": lambda: kriged(
        variogram=hg.variogram("exponential", psill=1.2, range_m=400.0, nugget=0.3, nugget_is="measurement error")
    ),
    "nothing but a nugget": lambda: kriged(variogram=hg.variogram("nugget", nugget=0.7)),
    "block": lambda: kriged(support="block", quadrature=3),
    "plane": lambda: kriged("universal_kriging"),
    "curved": lambda: kriged("universal_kriging", degree=2),
    "elevation": lambda: kriged("external_drift_kriging", drift=["elevation"]),
    "plane and elevation": lambda: kriged("external_drift_kriging", drift=["elevation"], degree=1, support="block"),
    "fitted": lambda: kriged(variogram="fit"),
    "fitted by slice": lambda: kriged(variogram="fit_by_slice").clip(time=("2024-01-01", "2024-01-01T04:00")),
    "chosen by itself": lambda: base().interpolate(grid=GRID).aggregate("mean", time="6h"),
    "great circle": lambda: kriged(
        grid=AROUND, variogram=hg.variogram("exponential", psill=1.2, range_m=2e6), distance="great_circle"
    ),
    "great circle, neighbours": lambda: kriged(
        grid=AROUND, variogram=hg.variogram("exponential", psill=1.2, range_m=2e6, nugget=0.1),
        distance="great_circle", neighbours=6,
    ),
    "mean of all": lambda: kriged().aggregate("mean", time="all"),
    "clipped mean": lambda: kriged().aggregate("mean", time="all").clip(time=("2024-01-01T03:00", "2024-01-01T09:00")),
    "sliding windows": lambda: kriged(neighbours=6).aggregate("mean", time={"length": "90min", "step": "30min"}),
    "daily maximum of hourly means": lambda: kriged().aggregate("mean", time="1h").aggregate("max", time="1day"),
    "hours of the day": lambda: kriged().aggregate("min", time="hour_of_day"),
    "hourly sum": lambda: kriged().aggregate("sum", time="1h"),
    "converted": lambda: kriged().convert("scale", factor=1.0, offset=273.15, unit="K").aggregate("mean", time="6h"),
    "anomaly": lambda: kriged().merge("anomaly", kriged().aggregate("mean", time="hour_of_day")),
    "merged": lambda: kriged("universal_kriging").merge("difference", kriged(neighbours=6)),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARED)
def test_pykrige_agrees(name: str) -> None:
    found = opinion_of(COMPARED[name]())
    (compared,) = found.comparisons
    assert found.agrees, found.describe()
    assert compared.relative <= compared.allowed
    assert compared.allowed == 1e-10 or name in ("fitted by slice", "chosen by itself", "nested")
    assert compared.subject == ""
    assert compared.cells + compared.tied == min(60, compared.total)
    assert found.describe().startswith("second opinion by PyKrige 1.")


LACKING: dict[str, tuple[Callable[[], Query], str]] = {
    "inverse distance": (
        lambda: base().interpolate("inverse_distance", grid=GRID),
        "inverse_distance is no kriging, and PyKrige has nothing else",
    ),
    "known mean": (
        lambda: kriged("simple_kriging", mean=8.0),
        "simple_kriging knows the mean, and PyKrige always estimates it",
    ),
    "neighbours and a plane": (
        lambda: kriged("universal_kriging", neighbours=8),
        "universal_kriging uses neighbours, and PyKrige's universal kriging has only all stations",
    ),
    "radius": (lambda: kriged(radius_m=700.0), "only selects a number of neighbours"),
    "octants": (lambda: kriged(neighbours=6, octants=2), "only selects a number of neighbours"),
    "one neighbour": (lambda: kriged(neighbours=1), "PyKrige needs at least two"),
    "neighbours of a block": (lambda: kriged(neighbours=6, support="block"), "has its neighbours around a point"),
    "fitted trend": (lambda: kriged(trend="lapse_rate"), "a trend that is fitted before the kriging"),
    "drift on the sphere": (
        lambda: kriged("external_drift_kriging", grid=AROUND, distance="great_circle", drift=["elevation"]),
        "PyKrige's universal kriging needs a plane",
    ),
    "at stations": (lambda: base().aggregate("mean", time="1h"), "the query interpolates nothing in space"),
}


@pytest.mark.parametrize("name", LACKING)
def test_what_pykrige_lacks_is_said(name: str) -> None:
    make, reason = LACKING[name]
    dataset = make().compute(second_opinion=20)
    stored = json.loads(dataset.attrs[ATTRIBUTE])
    assert not stored["agrees"]
    assert not stored["differs"]
    assert stored["comparisons"] == []
    assert stored["sentence"].startswith("no second opinion by PyKrige (")
    assert reason in stored["sentence"]
    assert dataset.attrs["comment"].endswith(stored["sentence"])


def test_below_a_step_that_is_not_evaluated_the_interpolation_is_compared() -> None:
    for query, why in (
        (kriged().aggregate("quantile", q=0.9, time="all"), "quantile(q=0.9) over time is not evaluated"),
        (kriged().aggregate("mean", x="all", y="all"), "mean over x, y is not evaluated"),
    ):
        found = opinion_of(query)
        (compared,) = found.comparisons
        assert found.agrees, found.describe()
        assert compared.subject.startswith("interpolate ordinary_kriging(")
        assert compared.total == 100 * 60
        assert why in found.describe()
        assert "(not of the surface)" in found.describe()


def test_it_stands_in_the_attributes_and_notes_and_leaves_the_values() -> None:
    query = kriged(neighbours=6).aggregate("mean", time="6h")
    plain = query.compute()
    found = query.compute(second_opinion=50, reuse=True)
    again = query.compute(reuse=True)
    xr.testing.assert_equal(plain, found)
    assert ATTRIBUTE not in again.attrs
    stored = json.loads(found.attrs[ATTRIBUTE])
    assert stored["agrees"]
    assert stored["comparisons"][0]["cells"] == 50
    assert stored["comparisons"][0]["total"] == 500
    assert stored["comparisons"][0]["relative"] <= 1e-10
    assert found.attrs["comment"].endswith(stored["sentence"])
    assert "degC (" in stored["sentence"]
    assert "50 of 500 cells agree, greatest difference" in stored["sentence"]


@pytest.mark.parametrize("cells", [0, -1, 2.5, True, "50", 10**6])
def test_a_number_of_cells_is_refused_before_anything_is_computed(cells: Any) -> None:  # noqa: ANN401 - all kinds
    with pytest.raises(InvalidQuery, match="second_opinion needs the number of cells"):
        kriged().compute(second_opinion=cells)


def test_equal_seeds_choose_equal_cells() -> None:
    query = kriged().aggregate("mean", time="6h")
    dataset = query.compute()
    first, same = (ask_second_opinion(query.surface(), dataset, cells=9, seed=4) for _ in range(2))
    assert first == same
    assert first.seed == 4


def test_stations_at_equal_distances_are_left_out() -> None:
    at = np.array([250.0, 450.0, 250.0, 450.0])
    coords = {
        "time": pd.date_range("2024-01-01", periods=2, freq="1h"),
        "x": ("station", at), "y": ("station", at[[0, 2, 1, 3]]),
    }  # fmt: skip
    network = xr.DataArray([[1.0, 2.0, 3.0, 4.0]] * 2, coords, ("time", "station"), "t")
    found = opinion_of(hg.base(network).interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, neighbours=2), 200)
    (compared,) = found.comparisons
    assert found.agrees
    assert compared.tied > 0
    assert f"without {compared.tied} between stations at equal distances" in found.describe()


def test_few_stations_are_compared_too() -> None:
    values = readings(stations=8, hours=3)
    values[:, 1:] = np.nan
    values[3, 1] = 9.0
    found = opinion_of(hg.base(values).interpolate("ordinary_kriging", grid=GRID, variogram=MODEL))
    assert found.agrees, found.describe()


def test_what_would_take_too_long_is_said() -> None:
    query = kriged().aggregate("mean", time="all")
    found = ask_second_opinion(query.surface(), query.compute(), cells=60, allowed_s=1e-3)
    assert not found.agrees
    assert "60 slices of 14 stations would take it more than" in found.describe()


def test_a_system_that_pykrige_cannot_solve_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("singular matrix")

    dataset = kriged().compute()
    monkeypatch.setattr("pykrige.ok.OrdinaryKriging.execute", fail)
    found = ask_second_opinion(kriged().surface(), dataset, cells=5)
    assert "PyKrige cannot solve the system of" in found.describe()


# Stored results that were changed.


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> OpenArchive:
    return random_archive(tmp_path_factory.mktemp("opinion") / "archive", 1)[0]


def maps(archive: OpenArchive) -> Query:
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="3arcsec", shape=(4, 5))
    hourly = archive["air_temperature"].aggregate("mean", time="30min", min_coverage=0.1)
    kriged = hourly.interpolate("ordinary_kriging", grid=grid, variogram=MODEL)
    return kriged.aggregate("mean", time="2h", min_coverage=0.1)


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_a_changed_cell_of_a_stored_result_is_found(archive: OpenArchive, tmp_path: Path, ending: str) -> None:
    dataset = maps(archive).compute()
    write(dataset, tmp_path / f"good{ending}")
    found = hg.second_opinion(tmp_path / f"good{ending}", archive, cells=1000)
    assert found.agrees, found.describe()
    assert found.comparisons[0].cells == dataset["value"].size
    changed = dataset.copy(deep=True)
    changed["value"][1, 2, 3] += 1e-6
    write(changed, tmp_path / f"bad{ending}")
    found = hg.second_opinion(tmp_path / f"bad{ending}", archive, cells=1000)
    (compared,) = found.comparisons
    assert found.differs
    assert not found.agrees
    assert compared.differing == 1
    assert compared.greatest == pytest.approx(1e-6, rel=1e-4)
    lon, lat = float(changed["lon"][3]), float(changed["lat"][2])
    assert f"at 2007-10-01T00:00Z, lon {lon:.10g}, lat {lat:.10g}" in found.describe()
    assert "1 DIFFER, greatest difference 1e-06 degC: " in found.describe()


def test_a_value_that_was_removed_or_invented_is_found(archive: OpenArchive) -> None:
    changed = maps(archive).compute()
    assert np.isnan(changed["value"][0]).all()
    changed["value"][0, 0, 0], changed["value"][1, 0, 0] = 7.0, np.nan
    changed["value"][1, 0, 1] = np.inf
    found = hg.second_opinion(changed, archive, cells=1000)
    assert found.comparisons[0].differing == 3
    assert "7 where PyKrige has nan" in found.describe()
    json.dumps(found.to_json(), allow_nan=False)


def test_one_wrong_value_excuses_no_other(archive: OpenArchive) -> None:
    changed = maps(archive).compute()
    changed["value"][1, 0, 0], changed["value"][1, 0, 1] = 1e15, changed["value"][1, 0, 1] + 0.001
    assert hg.second_opinion(changed, archive, cells=1000).comparisons[0].differing == 2


def test_missing_values_are_no_agreement(archive: OpenArchive) -> None:
    empty = maps(archive).clip(time=("2007-09-30T22:00", "2007-10-01T00:00"))
    found = hg.second_opinion(empty.compute(), archive, cells=9)
    assert not found.agrees
    assert not found.differs
    assert found.describe().endswith("9 of 20 cells were recomputed, which are all missing in both")


def test_a_result_with_other_cells_is_refused(archive: OpenArchive) -> None:
    dataset = maps(archive).compute()
    with pytest.raises(InvalidQuery, match="needs the result of the query, of shape"):
        hg.second_opinion(dataset.isel(lat=[0, 1]), archive)
    with pytest.raises(InvalidQuery, match="needs the archive that it was computed from"):
        hg.second_opinion(dataset, "archive")  # type: ignore[arg-type]


def test_a_store_written_in_blocks_holds_it(archive: OpenArchive, tmp_path: Path) -> None:
    maps(archive).to_zarr(tmp_path / "blocks.zarr", second_opinion=20)
    with xr.open_zarr(tmp_path / "blocks.zarr") as stored:
        assert json.loads(stored.attrs[ATTRIBUTE])["agrees"]
        assert "second opinion by PyKrige" in stored.attrs["comment"]
