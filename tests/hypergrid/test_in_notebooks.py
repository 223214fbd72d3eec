"""What a notebook and an editor offer: names, completion, pictures of objects, tables, pandas' words, early errors."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, InvalidUnit, NotFound
from hypergrid.execution import ORDERS
from hypergrid.execution.orders.orders import BY_TIME, WALKS
from hypergrid.interpolation import METHODS
from hypergrid.interpolation.methods.in_time import IN_TIME
from hypergrid.perspective.functions.aggregates import AGGREGATES
from hypergrid.perspective.functions.rows import CONVERTS, MERGES
from hypergrid.perspective.functions.user_function_calls import FUNCTION_IDENTITIES
from hypergrid.perspective.spec import names
from hypergrid.query import Query
from tests.support.chains import MODEL, network
from tools.wheel_rooms import iterate_files

ROOT = Path(__file__).resolve().parents[2]


def test_completion_shows_the_public_names_alone() -> None:
    assert dir(hg) == sorted(hg.__all__)
    assert {"open", "base", "grid", "plot", "compare_methods"} <= set(dir(hg))


def test_a_wheel_has_the_mark_of_a_typed_package() -> None:
    assert ROOT / "hypergrid" / "py.typed" in set(iterate_files(ROOT))


def test_the_names_that_editors_offer_are_those_that_there_are() -> None:
    added = {name for _, name in FUNCTION_IDENTITIES}
    assert set(get_args(names.ConvertName)) == set(CONVERTS) - added
    assert set(get_args(names.AggregateName)) == set(AGGREGATES) - added
    assert set(get_args(names.MergeName)) == set(MERGES) - added
    methods = {name.removesuffix(IN_TIME) for name in METHODS}
    assert set(get_args(names.MethodName)) == {*methods, "recipe"}
    assert set(get_args(names.RefinementOrder)) == {*ORDERS, *WALKS, BY_TIME}


DURATIONS: list[tuple[object, object]] = [
    ("1D", "1day"), ("15T", "15min"), ("2H", "2h"), ("30S", "30s"), ("H", "1h"), ("1.5h", "1.5h"), ("10min", "10min"),
    ("hourly", "1h"), ("daily", "1day"), ("monthly", "month"), ("MS", "month"), ("YE", "year"), ("seasonal", "season"),
    (pd.Timedelta("90min"), "90min"), (dt.timedelta(hours=6), "6h"), (np.timedelta64(1, "D"), "1day"),
    (pd.offsets.Hour(3), "3h"), (pd.offsets.MonthBegin(), "month"),
    ({"step": "1D", "offset": pd.Timedelta("6h")}, {"step": "1day", "offset": "6h"}),
    ({"step": dt.timedelta(minutes=5), "length": "15T"}, {"step": "5min", "length": "15min"}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "text"), DURATIONS)
def test_durations_of_pandas_are_written_as_they_stand_in_json(given: object, text: object) -> None:
    assert network().aggregate("mean", time=given).to_json()["steps"][-1]["time"] == text


def test_durations_stand_for_gaps_and_correlation_times_too() -> None:
    filled = network().interpolate("linear", time="30T", max_gap="1D").to_json()["steps"][-1]
    assert (filled["time"], filled["params"]) == ("30min", {"max_gap": "1day"})
    gap = network().interpolate("linear", time="30min", max_gap=pd.Timedelta("3h"))
    assert gap.to_json()["steps"][-1]["params"] == {"max_gap": "3h"}
    variance = network().with_variance(correlation_time=pd.Timedelta("6h")).to_json()["variance"]
    assert variance == {"correlation_time": "6h"}


@pytest.mark.parametrize(
    "bounds",
    [
        ("1970-01-01T00:00Z", "1970-02-01T00:00Z"),
        slice("1970-01-01", "1970-02-01"),
        slice("1970-01", "1970-02"),
        (pd.Timestamp("1970-01-01"), pd.Timestamp("1970-02-01", tz="UTC")),
        slice(dt.date(1970, 1, 1), np.datetime64("1970-02-01")),
    ],
)
def test_a_time_range_is_a_slice_or_a_pair_of_any_instants(bounds: object) -> None:
    clipped = network().clip(time=bounds)
    assert clipped.token == network().clip(time=("1970-01-01T00:00Z", "1970-02-01T00:00Z")).token
    # The JSON form holds text.
    assert all(isinstance(bound, str) for bound in clipped.to_json()["clip"]["time"])


@pytest.mark.parametrize("bounds", [slice("2007", None), slice("2007", "2008", 2), "2007", ("2007", "2008", "2009")])
def test_a_time_range_has_two_ends(bounds: object) -> None:
    with pytest.raises(InvalidQuery, match="clip of 'time' needs a start and a stop"):
        network().clip(time=bounds)


EARLY: list[tuple[Callable[[Query], object], type[HyperGridError], str]] = [
    (lambda q: q.aggregate("meen", time="1h"), NotFound, "did you mean 'mean'"),
    (lambda q: q.aggregate("mean", time="1h", coverage=1), NotFound, r"step 1 .*parameter of mean 'coverage'"),
    (lambda q: q.aggregate("mean"), InvalidQuery, "step 1 .*needs cells"),
    (lambda q: q.aggregate("quantile", time="1h"), InvalidQuery, "needs the parameter 'q'"),
    (lambda q: q.aggregate("mean", time="hourli"), NotFound, "unknown time cells 'hourli'"),
    (lambda q: q.aggregate("mean", time={"step": "1h", "every": 2}), NotFound, "key of time cells 'every'"),
    (lambda q: q.aggregate("mean", time={"step": "1day", "zone": "Mars"}), NotFound, "Mars"),
    (lambda q: q.convert("valid_range", lo=1), NotFound, "parameter of valid_range 'lo'; did you mean 'low'"),
    (lambda q: q.convert("valid_range", high=1), InvalidQuery, "needs the parameter 'low'"),
    (lambda q: q.interpolate("krigging", grid=GRID), NotFound, "ordinary_kriging"),
    (lambda q: q.interpolate("ordinary_kriging", grid=GRID, neighbors=3), NotFound, "did you mean 'neighbours'"),
    (
        lambda q: q.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, neighbours=0),
        InvalidQuery,
        "above zero; got 0",
    ),
    (lambda q: q.interpolate("nearest", grid={"x": 0, "y": 0}), InvalidQuery, "a grid needs a step"),
    (lambda q: q.interpolate("linear", time="soon"), InvalidTime, "step 1 .*a duration needs"),
    (lambda q: q.merge("difference"), InvalidQuery, "takes one other query"),
    (lambda q: q.clip(time=("2008", "2007")), InvalidTime, "needs a stop after its start"),
    (lambda q: q.clip(lat=("north", "south")), InvalidQuery, "lat needs degrees or 'd:mm:ss' text; got 'north'"),
    (lambda q: q.clip(x=(20, 10)), InvalidQuery, "clip of 'x' needs a stop after its start; got 20 to 10"),
    (lambda q: q.with_variance(correlation_time="soon"), InvalidTime, "correlation_time needs a duration"),
    (lambda q: q.clip(time=("now", "2008")), InvalidTime, "an instant needs ISO 8601 text; got 'now'"),
]
GRID = hg.grid(x=0, y=0, step=10, shape=(2, 2))


@pytest.mark.parametrize("number", range(len(EARLY)))
def test_a_step_is_refused_when_it_is_added(number: int) -> None:
    add, error, words = EARLY[number]
    with pytest.raises(error, match=words):
        add(network())


def test_a_parameter_with_a_unit_waits_for_the_data() -> None:
    kept = network().convert("valid_range", low="-40 degF", high="90 degF")
    assert kept.to_json()["steps"][0]["params"] == {"high": "90 degF", "low": "-40 degF"}
    with pytest.raises(InvalidUnit):
        network().convert("valid_range", low="1 mm", high=3).surface()
