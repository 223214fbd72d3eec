"""Refusals: which step needs the memory, how much of it, and what lowers it; what is advised does lower it."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.errors import TooLarge
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from hypergrid.execution.operators import pieces
from hypergrid.query import Query
from tests.bench.reprocess_archive import make_archive

START_NS = parse_instant("2021-01-01")
MODEL = hg.variogram("exponential", psill=1.2, range_m=20_000.0, nugget=0.05)


def network(stations: int, slices: int = 1) -> Query:
    random = np.random.default_rng(1)
    x, y = random.uniform(0.0, 100_000.0, (2, stations))
    places = {
        "time": np.datetime64("2020-01-01", "ns") + np.arange(slices) * np.timedelta64(1, "h"),
        "x": ("station", x), "y": ("station", y),
    }  # fmt: skip
    values = random.normal(10.0, 1.0, (slices, stations))
    return hg.base(xr.DataArray(values, dims=("time", "station"), coords=places, name="air_temperature"))


def mapped(query: Query, side: int = 10, **given: object) -> Query:
    grid = hg.grid(x=0.0, y=0.0, step=100_000.0 / side, shape=(side, side))
    return query.interpolate("ordinary_kriging", grid=grid, **{"variogram": MODEL, **given})


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return make_archive(tmp_path_factory.mktemp("years") / "archive", days=20, stations=3)


def base(years: Archive) -> Query:
    return hg.open(years.path)["air_temperature"]


CASES: dict[str, tuple[Callable[[Archive], Query], str, Callable[[Archive], Query]]] = {
    # What is refused, what is said, and a query that takes the advice.
    "many stations": (
        lambda _: mapped(network(8_000)),
        r"step 1, interpolate .*system of its 8,000 stations does not depend on the grid; krige from the nearest "
        r"stations \(neighbours=20\)",
        lambda _: mapped(network(8_000), neighbours=20),
    ),
    "a variogram by slice": (
        lambda _: mapped(network(500, 20), variogram="fit_by_slice"),
        r"step 1, .*fit the variogram once for all slices",
        lambda _: mapped(network(500, 20), variogram="fit"),
    ),
    "a large map": (
        lambda _: mapped(network(20, 500), side=100),
        r"the result itself takes .*\.to_zarr.*a coarser or smaller grid or a shorter time",
        lambda _: mapped(network(20, 500), side=40),
    ),
    "readings at once": (
        lambda years: base(years).interpolate("linear", time="1h"),
        r"step 0, base .*shorter time \(\.clip\) or fewer series.*hypergrid reprocess ARCHIVE --queries",
        lambda years: base(years).interpolate("linear", time="1h").clip(time=("2021-01-03", "2021-01-05")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_names_the_step_and_what_lowers_it(name: str, years: Archive) -> None:
    refused, said, advised = CASES[name]
    query = refused(years)
    needed = query.plan().projected_bytes
    allowed = needed // 100
    with pytest.raises(TooLarge, match=said) as caught:
        query.plan().check(allowed)
    assert f"{needed:,} bytes of memory, above the {allowed:,} allowed" in str(caught.value)
    assert advised(years).plan().projected_bytes < needed * 2 / 3


def test_cells_that_are_never_complete_are_told_from_readings_held_at_once(
    years: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "WHOLE_READINGS", 100)
    monkeypatch.setattr(pieces, "BATCH_READINGS", 10)
    plan = base(years).aggregate("mean", time="all").plan()
    with pytest.raises(TooLarge, match=r"step 0, base .*cells that are not complete; ask for shorter time cells"):
        plan.check(1000)


@pytest.fixture(scope="module")
def rain(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Make forty days of a counter that tips every hour."""
    made = Archive.create(
        tmp_path_factory.mktemp("rain") / "archive", name="rain", slice_s=600,
        variables=[KNOWN_VARIABLES["rain_meter"]], now_ns=START_NS,
    )  # fmt: skip
    time_ns = START_NS + np.arange(40 * 144) * 600 * SECOND_NS
    whole = np.zeros(len(time_ns), dtype=np.int32)
    readings = Readings(
        (Series("rain_meter", "s0", interval_s=600.0, source="test"),), whole, time_ns,
        np.arange(len(time_ns)) // 6 * 0.2, np.full(len(time_ns), 1, np.uint8), time_ns,
    )  # fmt: skip
    with made.commit(batch="one", message="all", now_ns=START_NS) as writer:
        writer.stations([Station("s0", "s0", (Position(None, 7.0, 46.0, 500.0),))])
        writer.readings(readings)
    return made.latest()


@pytest.mark.parametrize(
    "asked",
    [
        lambda readings: readings.aggregate("rain_accumulation", time="1day"),
        lambda readings: readings.interpolate("linear", time="1h"),
    ],
)
def test_readings_of_large_archives_that_are_held_at_once_are_told(
    asked: Callable[[Query], Query], rain: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shorter cells, which were advised, do not help what looks back, or interpolates in time: parts of the time do."""
    monkeypatch.setattr(pieces, "WHOLE_READINGS", 100)
    query = asked(hg.open(rain.path)["rain_meter"])
    needed = query.plan().projected_bytes
    with pytest.raises(TooLarge, match=r"step 0, base .*all readings at once; ask for a shorter time .*reprocess"):
        query.plan().check(1000)
    assert query.clip(time=("2021-01-03", "2021-01-05")).plan().projected_bytes < needed * 2 / 3


def test_a_plan_that_tries_a_machine_out_says_so(years: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    query = base(years).aggregate("mean", time="1day")
    assert "tried out" not in query.explain()
    monkeypatch.setattr(pieces, "WHOLE_READINGS", 100)
    assert query.explain().endswith("s by tabled unit costs, 1 of 2 steps tried out on this machine")
    large = mapped(network(6_000))
    assert large.plan().projected_s > 100 * mapped(network(600)).plan().projected_s
    assert "1 of 2 steps tried out" in large.explain()


def test_one_matrix_is_projected_for_a_large_network() -> None:
    plan = mapped(network(11_000)).plan()
    assert 8 * 11_000**2 < plan.projected_bytes < 1.5 * 8 * 11_000**2
