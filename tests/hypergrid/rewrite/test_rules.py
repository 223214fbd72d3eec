"""Rewrite rules: golden cases before and after, and the same values with any of them alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.execution import make_plan, run
from hypergrid.execution.planning.explain import chain_lines
from hypergrid.perspective import Base
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.query import Query
from hypergrid.rewrite import RULES, RULES_FOR_MEMORY, rewrite
from hypergrid.topology import SeriesAxis
from tests.support.networks import random_archive
from tests.support.rewriting import after_rules

GOLDEN = Path(__file__).parents[2] / "golden" / "rewrite.txt"
EXPONENTIAL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)
GRID = hg.grid(x=0.0, y=0.0, step=30.0, shape=(3, 4))


def network(slices: int = 36, stations: int = 6, name: str = "air_temperature", *, wide: float = 1.0) -> Query:
    rng = np.random.default_rng(3)
    values = rng.normal(5.0, 2.0, (slices, stations))
    values[rng.random(values.shape) < 0.2] = np.nan
    values[7] = np.nan
    coords = {
        "time": pd.date_range("2007-10-01", periods=slices, freq="10min"),
        "x": ("station", wide * rng.uniform(0, 120, stations)),
        "y": ("station", wide * rng.uniform(0, 90, stations)),
    }
    array = xr.DataArray(values, dims=("time", "station"), coords=coords, name=name, attrs={"units": "degC"})
    return hg.base(array)


def humidity() -> Query:
    """Return the humidity at three of the stations, and at one more."""
    base = network().lookup.arrays
    source = next(iter(base.values()))
    coords = {
        "time": source.times_ns.astype("datetime64[ns]"),
        "station": ["1", "3", "4", "other"],
        "x": ("station", [*source.axis.x[[1, 3, 4]], 5.0]),
        "y": ("station", [*source.axis.y[[1, 3, 4]], 5.0]),
    }
    values = np.random.default_rng(5).uniform(20.0, 90.0, (36, 4))
    return hg.base(
        xr.DataArray(values, dims=("time", "station"), coords=coords, name="relative_humidity", attrs={"units": "%"})
    )


def kriged(query: Query, method: str = "ordinary_kriging", **more: object) -> Query:
    return query.interpolate(method, grid=GRID, variogram=EXPONENTIAL, **more)


def cases() -> Iterator[tuple[str, str, Query]]:
    """Name of the rule, what the case shows, and the query."""
    clipped = network().aggregate("mean", time="30min").clip(time=("2007-10-01T02:00", "2007-10-01T03:00"))
    yield "push_clip", "cells of the surface by their corner", clipped
    bounded = network().aggregate("mean", time="all").clip(time=("2007-10-01T02:00", "2007-10-01T03:00"))
    yield "push_clip", "a mean over all bounds the readings already", bounded
    yield "push_clip", "part of a grid needs all stations", kriged(network()).clip(x=(0, 60))
    yield "push_clip", "no clip", kriged(network())
    normal = network().aggregate("mean", time="hour_of_day")
    anomaly = network().aggregate("mean", time="30min").merge("anomaly", normal)
    anomaly = anomaly.clip(time=("2007-10-01T02:00", "2007-10-01T03:00"))
    yield "push_clip", "what is normal is of all readings, which are read once", anomaly
    own = normal.clip(time=("2007-10-01T00:00", "2007-10-01T02:30"))
    apart = network().aggregate("mean", time="30min").merge("anomaly", own)
    yield "push_clip", "two times of a base are read", apart.clip(time=("2007-10-01T02:00", "2007-10-01T03:00"))
    within = kriged(network(wide=2.5), radius_m=60.0)
    yield "push_stations", "those within the radius of some cell", within.aggregate("max", time="1h")
    near = kriged(network(wide=2.5), ignore_beyond_m=60.0).aggregate("mean", time="all")
    yield "push_stations", "those that are not too far outside the grid", near
    elsewhere = humidity()
    dew_point = elsewhere.merge("dew_point", network())
    yield "push_stations", "those that both sources of a formula have", dew_point.aggregate("max", time="1h")
    both = network(wide=2.5).merge("difference", network(wide=2.5, name="dew_point").convert("scale", factor=2.0))
    near = both.interpolate("inverse_distance", grid=GRID, radius_m=60.0)
    yield "push_stations", "of both sources of a merge", near
    yield "push_stations", "any of the nearest may not report", kriged(network(wide=2.5), neighbours=2)
    fitted = network(wide=2.5).interpolate("ordinary_kriging", grid=GRID, variogram="fit", radius_m=100.0)
    yield "push_stations", "a variogram is fitted to all stations", fitted
    yield "push_stations", "a surface of the stations is of all of them", network().aggregate("mean", time="1h")
    yield "drop_idle", "a factor of one", network().convert("scale", factor=1.0).aggregate("mean", time="1h")
    yield "drop_idle", "a factor of one that gives a unit", network().convert("scale", factor=1.0, unit="K")
    yield "drop_idle", "an offset", network().convert("scale", factor=1.0, offset=2.0)
    valid = network().convert("valid_range", low=-40.0, high=50.0)
    yield "coalesce", "two converts", valid.convert("scale", factor=2.0).aggregate("mean", time="1h")
    yield (
        "coalesce",
        "a convert on each side of an aggregate",
        valid.aggregate("mean", time="1h").convert("scale", factor=2.0),
    )
    other = network(name="surface_temperature").convert("valid_range", low=0.0, high=9.0).convert("scale", factor=2.0)
    yield "coalesce", "within a branch of a merge", valid.merge("difference", other)
    ranges = kriged(network()).convert("valid_range", low=3.0, high=8.0)
    yield "fuse", "a convert of maps into their means", ranges.aggregate("mean", time="1h", min_coverage=0)
    yield (
        "fuse",
        "something else reads the converted maps",
        ranges.merge("difference", ranges.aggregate("mean", time="all", min_coverage=0)),
    )
    yield "fuse", "cells at stations are held for other steps", valid.aggregate("mean", time="1h")
    yield "commute", "a mean of kriged slices", kriged(network()).aggregate("mean", time="all")
    yield (
        "commute",
        "a sum of sliding windows",
        kriged(network()).aggregate("sum", time={"length": "1h", "step": "30min"}),
    )
    yield "commute", "a greatest value is not linear", kriged(network()).aggregate("max", time="all")
    near = kriged(network(), neighbours=3).aggregate("mean", time="all")
    yield "commute", "the nearest stations change from slice to slice", near
    by_slice = (
        network().interpolate("ordinary_kriging", grid=GRID, variogram="fit_by_slice").aggregate("mean", time="all")
    )
    yield "commute", "so does a variogram by slice", by_slice
    simple = kriged(network(), "simple_kriging", mean=4.0)
    yield "commute", "a mean around a known mean", simple.aggregate("mean", time="all")
    yield "commute", "a sum around a known mean", simple.aggregate("sum", time="all", min_coverage=0)
    inverse = network().interpolate("inverse_distance", grid=GRID).aggregate("mean", time="all")
    yield "commute", "another method's gaps are not filled by itself", inverse
    yield "commute", "a mean over space as well", kriged(network()).aggregate("mean", time="all", x="all", y="all")
    both = kriged(network()).aggregate("mean", time="1h").aggregate("mean", time="2h")
    yield "commute", "means of means: the first one", both


def rendered() -> str:
    rules = {rule.__name__: rule for rule in RULES_FOR_MEMORY}
    parts = []
    for name, shows, query in cases():
        before = query.surface()
        found = rewrite(before, (rules[name],))
        why = found.fired[0].why if found.fired else "does not fire"
        lines = [f"{name}: {shows}", *chain_lines(before), f"  = {why}"]
        parts.append("\n".join([*lines, *(chain_lines(found.surface) if found.fired else ())]))
    return "\n\n".join(parts) + "\n"


def test_golden_cases() -> None:
    assert rendered() == GOLDEN.read_text()


def test_each_rule_has_cases_in_which_it_fires_and_in_which_it_does_not() -> None:
    fires: dict[str, set[bool]] = {}
    rules = {rule.__name__: rule for rule in RULES_FOR_MEMORY}
    for name, _, query in cases():
        fires.setdefault(name, set()).add(bool(rewrite(query.surface(), (rules[name],)).fired))
    assert fires == {name: {True, False} for name in rules}


@pytest.mark.parametrize("number", range(sum(1 for _ in cases())))
def test_the_values_are_the_same_with_each_rule_alone_and_with_all(number: int) -> None:
    surface = list(cases())[number][2].surface()
    expected = after_rules(surface, ())
    assert np.isfinite(expected[0]).any()
    for rules in (RULES, RULES_FOR_MEMORY, *((rule,) for rule in RULES_FOR_MEMORY)):
        for found, wanted in zip(after_rules(surface, rules), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_a_clip_in_time_is_exact_unless_a_variogram_is_fitted_to_its_slices() -> None:
    for model, is_exact in ((EXPONENTIAL, True), ("fit", False)):
        whole = network().interpolate("ordinary_kriging", grid=GRID, variogram=model)
        surface = whole.clip(time=("2007-10-01T02:00", "2007-10-01T03:00")).surface()
        found, expected = after_rules(surface, RULES)[0], after_rules(surface, ())[0]
        assert np.allclose(found, expected, rtol=1e-11, atol=1e-11, equal_nan=True) == is_exact
    note = whole.clip(time=("2007-10-01T02:00", "2007-10-01T03:00")).compute().attrs["comment"]
    assert "variogram fitted to 6 slices" in note


@pytest.mark.parametrize("clip", [("2007-10-01T02:00", "2007-10-01T05:00"), ("2007-10-01T00:00", "2007-10-01T03:00")])
@pytest.mark.parametrize("function", ["mean", "first"])
def test_a_base_is_read_once_where_a_climatology_needs_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clip: tuple[str, str], function: str
) -> None:
    opened, _ = random_archive(tmp_path / "archive", seed=1)
    air = opened["air_temperature"]
    hourly = air.convert("scale", factor=2.0).aggregate(function, time="1h", min_coverage=0)
    query = hourly.merge("difference", air.aggregate("mean", time="hour_of_day", min_coverage=0))
    surface = query.clip(time=clip).surface()
    expected = after_rules(surface, ())
    reads: list[str] = []
    read = ArchiveSource.read

    def counted(self: ArchiveSource, *given: Any) -> Any:  # noqa: ANN401 - as the source's
        reads.append(self.variable.name)
        return read(self, *given)

    monkeypatch.setattr(ArchiveSource, "read", counted)
    for found, wanted in zip(after_rules(surface, (RULES[0],)), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert reads == ["air_temperature"]
    assert np.isfinite(expected[0]).any()
    part = rewrite(surface, (RULES[0],))
    base = surface.perspective.list_bases()[0].topology.count
    assert f"which need {base:,} of {base:,} cells of the base" in part.fired[0].why


def test_a_climatology_of_cells_that_its_clip_cuts_keeps_to_its_clip() -> None:
    edges = {"edges": ["2007-10-01T00:00Z", "2007-10-01T03:00Z", "2007-10-01T06:00Z"]}
    cells = network().aggregate("mean", time=edges, min_coverage=0.8)
    normal = cells.aggregate("mean", time="all", min_coverage=0).clip(time=("2007-10-01T00:00", "2007-10-01T04:00"))
    query = cells.merge("difference", normal).interpolate("ordinary_kriging", grid=GRID, variogram=EXPONENTIAL)
    surface = query.clip(x=(0, 120)).surface()
    found, expected = after_rules(surface, RULES)[0], after_rules(surface, ())[0]
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11, equal_nan=True)


def run_to_end(plan: object) -> tuple[np.ndarray, np.ndarray]:
    outcome = list(run(plan))[-1].outcome  # type: ignore[arg-type]
    return outcome.value, np.broadcast_to(outcome.count, outcome.value.shape)


class TestStations:
    """Which stations are wanted, counted by hand: those within the radius of some cell's centre."""

    @staticmethod
    def unread(query: Query) -> list[int]:
        """Return the numbers of the series that are not read."""
        base = make_plan(query.surface()).surface.list_bases()[0].operator
        assert isinstance(base, Base)
        return list(base.unread)

    @pytest.mark.parametrize("radius_m", [40.0, 100.0, 200.0])
    @pytest.mark.parametrize("clip", [{}, {"x": (0, 30), "y": (60, 90)}])
    def test_none_that_some_cell_takes_is_left_out(self, radius_m: float, clip: dict[str, tuple[float, float]]) -> None:
        query = kriged(network(stations=40, wide=4.0), radius_m=radius_m)
        clipped = query.clip(**clip) if clip else query
        source = next(iter(query.lookup.arrays.values()))
        cells = clipped.compute()
        x, y = np.meshgrid(cells["x"].to_numpy(), cells["y"].to_numpy())
        apart = np.hypot(x.ravel() - source.axis.x[:, None], y.ravel() - source.axis.y[:, None]).min(axis=1)
        unread = self.unread(clipped)
        assert not set(unread) & set(np.flatnonzero(apart <= radius_m).tolist())
        # Half a diagonal of a cell, and what distances may be off by, are all that is read in vain.
        assert set(np.flatnonzero(apart > radius_m * 1.02 + 30.0)) <= set(unread)
        assert unread

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("system", ["metres", "lonlat"])
    def test_what_is_not_read_changes_no_estimate(self, seed: int, system: str) -> None:
        rng = np.random.default_rng(seed)
        values = rng.normal(5.0, 2.0, (12, 60))
        values[rng.random(values.shape) < 0.4] = np.nan
        if system == "metres":
            places, grid = {"x": rng.uniform(0, 900, 60), "y": rng.uniform(0, 900, 60)}, {"x": 300.0, "y": 300.0}
            cells = hg.grid(**grid, step=30.0, shape=(4, 5))
        else:
            places = {"lon": 7.0 + rng.uniform(0, 0.01, 60), "lat": 66.0 + rng.uniform(0, 0.01, 60)}
            cells = hg.grid(lon=7.004, lat=66.004, step="2arcsec", shape=(4, 5))
        coords = {
            "time": pd.date_range("2007-10-01", periods=12, freq="10min"),
            **{name: ("station", held) for name, held in places.items()},
        }
        base = hg.base(xr.DataArray(values, dims=("time", "station"), coords=coords, name="air_temperature"))
        for query in (
            base.interpolate("ordinary_kriging", grid=cells, variogram=EXPONENTIAL, radius_m=150.0, neighbours=6),
            base.interpolate("simple_kriging", mean=4.0, grid=cells, variogram=EXPONENTIAL, radius_m=150.0, octants=1),
            base.aggregate("max", time="20min").interpolate("inverse_distance", grid=cells, radius_m=150.0),
            base.interpolate("nearest", grid=cells, radius_m=100.0),
        ):
            assert len(self.unread(query)) > 10
            surface = query.surface()
            found, count = run_to_end(make_plan(surface))
            wanted, known = run_to_end(make_plan(surface, rules=()))
            np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)
            np.testing.assert_array_equal(count, known)
            assert np.isfinite(found).any()

    def test_the_archive_is_not_asked_for_the_others(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        opened, _ = random_archive(tmp_path / "archive", seed=1)
        query = opened["air_temperature"].aggregate("mean", time="10min", min_coverage=0)
        axis = query.surface().perspective.list_bases()[0].topology.space
        assert isinstance(axis, SeriesAxis)
        first = hg.grid(lon=float(axis.x[0]) - 1e-5, lat=float(axis.y[0]) - 1e-5, step="0.05arcsec", shape=(1, 1))
        near = query.interpolate("nearest", grid=first, radius_m=1.0)
        plain = run_to_end(make_plan(near.surface(), rules=()))[0]
        asked: list[int] = []
        read = Archive.read

        def counted(self: Archive, variable: str, **given: Any) -> Any:  # noqa: ANN401 - as the archive's
            asked.append(len(given["series"]))
            return read(self, variable, **given)

        monkeypatch.setattr(Archive, "read", counted)
        np.testing.assert_array_equal(run_to_end(make_plan(near.surface()))[0], plain)
        assert asked == [1]
        assert "1 of" in near.explain()
        comment = near.compute().attrs.get("comment", "")
        assert "without a value" not in comment
