"""Whatever JSON comes in, what goes out is an error that says so, or a plan."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hypergrid.core.errors import HyperGridError
from hypergrid.perspective import question_from_json
from hypergrid.query import OpenArchive
from tests.support.networks import random_archive
from tests.support.strategies import documents

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, 1, -1, 10**400, -(10**30), 2**31, 2**63, 1e300, 1e-300])
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        [
            "",
            "all",
            "1h",
            "10min",
            "1ns",
            "0s",
            "-1h",
            "9999999999 weeks",
            "1e999999999deg",
            "7:10:37",
            "7:75:00",
            "1arcsec",
        ]
        + [
            "0.000001arcsec",
            "100m",
            "nan",
            "inf",
            "1e999",
            "-40 degF",
            "5 apples",
            "m**9**9**9",
            "(",
            "2007-10-01",
            "NaT",
        ]
        + ["2007-10-01T00+02:00", "2007-10-01T25:00Z", "9999-12-31", "0001-01-01", "ordinary_kriging", "mean", "s0"]
    )
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
KEYS = ["variable", "snapshot", "steps", "clip", "accept_flags", "select", "variance", "op", "function", "params"]
NEAR = st.recursive(
    SCALARS | st.sampled_from(["convert", "aggregate", "merge", "interpolate", "air_temperature", "valid_range"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYS, "grid", "method", "with", "time", "low", "high"]), inner, max_size=6)
    ),
    max_leaves=15,
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> OpenArchive:
    return random_archive(tmp_path_factory.mktemp("fuzz") / "archive", 1, hours=2)[0]


@settings(max_examples=1500, suppress_health_check=[HealthCheck.too_slow])
@given(document=JSON | NEAR)
def test_any_json_is_read_or_refused(document: Any) -> None:  # noqa: ANN401 - it is any JSON
    try:
        question = question_from_json(document)
    except HyperGridError:
        return
    assert question_from_json(question.to_json()) == question


@settings(max_examples=300)
@given(document=documents(is_lonlat=True))
def test_a_question_comes_back_from_its_json(document: dict[str, Any]) -> None:
    question = question_from_json(document)
    written = json.loads(json.dumps(question.to_json()))
    assert question_from_json(written) == question
    # Words that a user wrote are kept as they are; only `snapshot` is added.
    assert written == {"snapshot": None, **document} or "with" in str(document)


Q1: dict[str, Any] = {
    "variable": "air_temperature",
    "snapshot": None,
    "accept_flags": [1, 2],
    "select": {"height_m": 2.0, "statistic": ["sample", "mean"]},
    "variance": False,
    "steps": [
        {"op": "convert", "function": "valid_range", "params": {"low": -40.0, "high": "50 degC"}},
        {"op": "convert", "function": "scale", "params": {"factor": 1.0, "offset": 0.0, "unit": "degC"}},
        {"op": "aggregate", "function": "mean", "time": "10min", "params": {"min_coverage": 0.5}},
        {"op": "aggregate", "function": "mean", "time": {"length": "30min", "step": "10min"}},
        {
            "op": "merge", "function": "difference",
            "with": [
                {"variable": "surface_temperature",
                 "steps": [{"op": "aggregate", "function": "mean", "time": {"length": "30min", "step": "10min"}}]},
            ],
        },
        {
            "op": "interpolate", "method": "ordinary_kriging",
            "grid": {"lon": "7:10:37", "lat": 45.867, "step": "1arcsec", "shape": [5, 6]},
            "params": {
                "neighbours": 3, "variogram": {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0},
            },
        },
        {"op": "aggregate", "function": "max", "time": "all", "lat": "all"},
    ],
    "clip": {"time": ["2007-10-01T00:00Z", "2007-10-01T02:00Z"], "lon": ["7:10:37", 7.19]},
}  # fmt: skip


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Return the path of every value inside a document."""
    inner: list[tuple[object, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(deeper for key, item in inner for deeper in places(item, (*path, key)))]


def put(document: Any, path: tuple[Any, ...], value: object) -> Any:  # noqa: ANN401 - it is any JSON
    if not path:
        return value
    copied = dict(document) if isinstance(document, dict) else list(document)
    copied[path[0]] = put(document[path[0]], path[1:], value)
    return copied


def test_the_skeleton_itself_is_valid(archive: OpenArchive) -> None:
    query = archive.query(Q1)
    assert query.plan().cells == 1 * 1 * 6
    assert json.loads(json.dumps(query.to_json())) == query.to_json()
    assert query.compute()["value"].shape == (1, 1, 6)


@settings(max_examples=2500, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(places(Q1)[1:]), value=SCALARS | JSON)
def test_any_value_anywhere_gives_a_plan_or_a_refusal(
    archive: OpenArchive, path: tuple[object, ...], value: object
) -> None:
    try:
        query = archive.query(put(Q1, path, value))
        plan = query.plan()
        query.plan(refining=True)
        assert query.explain()
        assert query.token
    except HyperGridError:
        return
    assert plan.projected_bytes > 0


IN_TIME: dict[str, Any] = {
    "variable": "air_temperature",
    "steps": [
        {"op": "aggregate", "function": "mean", "time": "4min", "params": {"min_coverage": 0}},
        {"op": "interpolate", "method": "spline", "time": "10min", "params": {"max_gap": "30min"}},
        {"op": "aggregate", "function": "mean", "time": "all"},
    ],
    "clip": {"time": ["2007-10-01T00:30Z", "2007-10-01T01:30Z"]},
}


@settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(places(IN_TIME)[1:]), value=SCALARS | JSON)
def test_any_value_anywhere_around_instants_is_computed_or_refused(
    archive: OpenArchive, path: tuple[object, ...], value: object
) -> None:
    try:
        query = archive.query(put(IN_TIME, path, value))
        assert question_from_json(query.to_json()) == query.question
        assert query.explain()
        query.compute(allowed_bytes=30 * 2**20)
    except HyperGridError:
        pass


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(document=documents(is_lonlat=True), value=SCALARS, number=st.integers(0, 1000))
def test_a_plan_runs_or_is_refused(archive: OpenArchive, document: Any, value: object, number: int) -> None:  # noqa: ANN401
    everywhere = [path for path in places(document)[1:] if path != ("variable",)]
    try:
        query = archive.query(put(document, everywhere[number % len(everywhere)], value) if everywhere else document)
        query.compute(allowed_bytes=20 * 2**20)
    except HyperGridError:
        pass


@pytest.mark.parametrize("text", ["m**9**9**9", "9**9**9**9 m"])
def test_a_unit_that_would_take_for_ever_is_refused_at_once(archive: OpenArchive, text: str) -> None:
    document = put(Q1, ("steps", 1, "params", "unit"), text)
    with pytest.raises(HyperGridError, match="unknown unit"):
        archive.query(document).plan()


def test_steps_are_found_by_path_in_messages(archive: OpenArchive, tmp_path: Path) -> None:
    with pytest.raises(HyperGridError, match=r"step 6 .*shape needs two whole numbers"):
        archive.query(put(Q1, ("steps", 5, "grid", "shape"), 5)).plan()
    with pytest.raises(HyperGridError, match="step 3 of query"):
        archive.query(put(Q1, ("steps", 2, "op"), "agregate"))
