"""A clip may be written before other steps where it means the same there, and is refused elsewhere."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery
from hypergrid.query import Query

TIMES = pd.date_range("2007-09-28", periods=6 * 24 * 6, freq="10min")
GRID = hg.grid(x=(0, 100), y=(0, 100), step=50)
DAYS = ("2007-09-29", "2007-10-02")
HALF_HOURS = ("2007-09-29T06:30", "2007-10-01T18:30")


def array() -> xr.DataArray:
    rng = np.random.default_rng(3)
    places = {name: ("station", rng.uniform(0, 100, 4)) for name in ("x", "y")}
    values = np.where(rng.random((len(TIMES), 4)) < 0.1, np.nan, rng.normal(5, 3, (len(TIMES), 4)))
    return xr.DataArray(values, {"time": TIMES, "station": list("abcd"), **places}, ("time", "station"))


BASE = hg.base(array())
Chain = Callable[[Query], Query]

SAME: dict[str, tuple[tuple[str, str], Chain]] = {
    "a convert": (HALF_HOURS, lambda query: query.convert("scale", factor=2.0)),
    "hours": (DAYS, lambda query: query.aggregate("mean", time="1h")),
    "half hours": (HALF_HOURS, lambda query: query.aggregate("max", time="30min")),
    "all": (HALF_HOURS, lambda query: query.aggregate("mean", time="all", min_coverage=0)),
    "hours, then all": (DAYS, lambda query: query.aggregate("mean", time="1h").aggregate("sum", time="all")),
    "hours of the day": (DAYS, lambda query: query.aggregate("mean", time="hour_of_day")),
    "days from six": (
        ("2007-09-29T06:00", "2007-10-01T06:00"),
        lambda query: query.aggregate("mean", time={"step": "1day", "offset": "6h"}),
    ),
    "a map": (DAYS, lambda query: query.aggregate("mean", time="1h").interpolate("inverse_distance", grid=GRID)),
    "the mean of a map": (
        DAYS,
        lambda query: (
            query.aggregate("mean", time="1h")
            .interpolate("inverse_distance", grid=GRID)
            .aggregate("mean", x="all", y="all")
            .aggregate("mean", time="1day")
        ),
    ),
    "a difference": (
        DAYS,
        lambda query: query.aggregate("max", time="1h").merge("difference", BASE.aggregate("min", time="1h")),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_a_clip_first_is_the_clip_last_and_the_readings_cut_beforehand(name: str) -> None:
    bounds, chain = SAME[name]
    first, last = chain(BASE.clip(time=bounds)), chain(BASE).clip(time=bounds)
    assert first.to_json() == last.to_json()
    inside = (TIMES >= bounds[0]) & (TIMES < bounds[1])
    cut = chain(hg.base(array().isel(time=inside))).compute()["value"]
    xr.testing.assert_allclose(first.compute()["value"].drop_attrs(), cut.drop_attrs(), rtol=1e-12)


def test_months_and_days_of_a_zone_have_edges_of_their_own() -> None:
    months = BASE.clip(time=("2007-09-01", "2007-10-01")).aggregate("mean", time="month", min_coverage=0)
    assert months.compute().sizes["time"] == 1
    days = {"step": "1day", "zone": "Europe/Zurich"}
    local = ("2007-09-29T22:00Z", "2007-10-01T22:00Z")
    assert BASE.clip(time=local).aggregate("mean", time=days).compute().sizes["time"] == 2
    with pytest.raises(InvalidQuery, match="not edges of the cells"):
        BASE.clip(time=DAYS).aggregate("mean", time=days)


def mapped() -> Query:
    return BASE.aggregate("mean", time="1h").interpolate("nearest", grid=GRID)


OTHER: dict[str, tuple[Chain, str]] = {
    "hours that the bounds cut": (
        lambda _: BASE.clip(time=HALF_HOURS).aggregate("mean", time="1h"),
        r"step 1 \(aggregate 'mean'\) comes after a clip of time; its bounds 2007-09-29T06:30 .* not edges .* '1h'",
    ),
    "hours before, and all after": (
        lambda _: BASE.aggregate("mean", time="1h").clip(time=HALF_HOURS).aggregate("mean", time="all"),
        "not edges of the cells '1h'",
    ),
    "windows that slide": (
        lambda _: BASE.clip(time=DAYS).aggregate("mean", time={"length": "2h", "step": "1h"}), "not edges"
    ),
    "instants": (lambda _: BASE.clip(time=DAYS).interpolate("linear", time="5min", max_gap="1h"), "values beyond them"),
    "stations": (lambda _: BASE.clip(x=(0, 50)).interpolate("nearest", grid=GRID), "a clip of x would leave out"),
    "rows": (lambda _: mapped().clip(x=(0, 50)).aggregate("mean", x="all"), "bounds the cells along x"),
    "a merge of means": (
        lambda _: (
            BASE.aggregate("mean", time="all")
            .clip(time=DAYS)
            .merge("difference", BASE.aggregate("max", time="all"))
        ),
        "the other queries would take it over",
    ),
    "all after a merge": (
        lambda _: (
            BASE.aggregate("max", time="1h")
            .clip(time=DAYS)
            .merge("difference", BASE.aggregate("min", time="1h"))
            .aggregate("mean", time="all")
        ),
        "after a merge it is also that of the other queries",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_a_clip_that_would_mean_another_thing_is_refused_with_the_reason(name: str) -> None:
    chain, words = OTHER[name]
    with pytest.raises(InvalidQuery, match=words):
        chain(BASE)


def test_a_clip_in_space_goes_before_steps_in_time() -> None:
    first = mapped().clip(x=(0, 50)).aggregate("mean", time="1day").convert("scale", factor=2.0)
    last = mapped().aggregate("mean", time="1day").convert("scale", factor=2.0).clip(x=(0, 50))
    assert first.to_json() == last.to_json()
    assert first.compute().identical(last.compute())
