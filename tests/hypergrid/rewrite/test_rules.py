"""Rewrite rules: golden cases before and after, and the same values with any of them alone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.execution import make_plan, run
from hypergrid.execution.explain import chain_lines
from hypergrid.query import Query
from hypergrid.rewrite import RULES, rewrite

GOLDEN = Path(__file__).parents[2] / "golden" / "rewrite.txt"
EXPONENTIAL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)
GRID = hg.grid(x=0.0, y=0.0, step=30.0, shape=(3, 4))


def network(slices: int = 36, stations: int = 6, name: str = "air_temperature") -> Query:
    rng = np.random.default_rng(3)
    values = rng.normal(5.0, 2.0, (slices, stations))
    values[rng.random(values.shape) < 0.2] = np.nan
    values[7] = np.nan
    coords = {
        "time": pd.date_range("2007-10-01", periods=slices, freq="10min"),
        "x": ("station", rng.uniform(0, 120, stations)),
        "y": ("station", rng.uniform(0, 90, stations)),
    }
    array = xr.DataArray(values, dims=("time", "station"), coords=coords, name=name, attrs={"units": "degC"})
    return hg.base(array)


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
    yield "commute", "a sum around a known mean", simple.aggregate("sum", time="all")
    inverse = network().interpolate("inverse_distance", grid=GRID).aggregate("mean", time="all")
    yield "commute", "another method's gaps are not filled by itself", inverse
    yield "commute", "a mean over space as well", kriged(network()).aggregate("mean", time="all", x="all", y="all")
    both = kriged(network()).aggregate("mean", time="1h").aggregate("mean", time="2h")
    yield "commute", "means of means: the first one", both


def rendered() -> str:
    rules = {rule.__name__: rule for rule in RULES}
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
    rules = {rule.__name__: rule for rule in RULES}
    for name, _, query in cases():
        fires.setdefault(name, set()).add(bool(rewrite(query.surface(), (rules[name],)).fired))
    assert fires == {name: {True, False} for name in rules}


@pytest.mark.parametrize("number", range(sum(1 for _ in cases())))
def test_the_values_are_the_same_with_each_rule_alone_and_with_all(number: int) -> None:
    query = list(cases())[number][2]
    surface = query.surface()
    clip_first = RULES[0]
    expected = run_to_end(make_plan(surface, rules=(clip_first,)))
    for rules in (RULES, *((clip_first, rule) for rule in RULES[1:])):
        for found, wanted in zip(run_to_end(make_plan(surface, rules=rules)), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def run_to_end(plan: object) -> tuple[np.ndarray, np.ndarray]:
    outcome = list(run(plan))[-1].outcome  # type: ignore[arg-type]
    return outcome.value, np.broadcast_to(outcome.count, outcome.value.shape)
