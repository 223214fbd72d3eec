"""Converts that the aggregate above applies in its own pass: the same bits, counts and notes, and nothing held."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.execution import make_plan, run
from hypergrid.execution.operators import cells, pieces
from hypergrid.execution.planning.explain import explain
from hypergrid.execution.running import evaluate
from hypergrid.execution.running.run import Outcome
from hypergrid.perspective import Perspective
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.query import Query
from hypergrid.rewrite import RULES, RULES_FOR_MEMORY, rewrite
from hypergrid.rewrite.rules import coalesce, fuse
from tests.support.chains import GRID, MODEL, network, sunny
from tests.support.networks import random_archive
from tests.support.own_functions import forgotten_functions

SLIDING = {"length": "1h", "step": "20min"}

OF_READINGS: dict[str, Callable[[Query], Query]] = {
    "mean": lambda base: base.aggregate("mean", time="30min", min_coverage=0),
    "sliding mean": lambda base: base.aggregate("mean", time=SLIDING, min_coverage=0.3),
    "median": lambda base: base.aggregate("median", time="1h", min_coverage=0),
    "first": lambda base: base.aggregate("first", time="20min"),
    "sample": lambda base: base.aggregate("sample", time="20min"),
    "hours of day": lambda base: base.aggregate("max", time="hour_of_day", min_coverage=0),
    "means of means": lambda base: base.aggregate("mean", time="10min", min_coverage=0).aggregate("mean", time="1h"),
}
OF_MAPS: dict[str, Callable[[Query], Query]] = {
    "mean": lambda maps: maps.aggregate("mean", time="1h"),
    "sliding mean": lambda maps: maps.aggregate("mean", time=SLIDING, min_coverage=0.2),
    "mean of all": lambda maps: maps.aggregate("mean", time="all", min_coverage=0),
    "median": lambda maps: maps.aggregate("median", time=SLIDING, min_coverage=0),
    "sample": lambda maps: maps.aggregate("sample", time="1h"),
    "variance": lambda maps: maps.aggregate("variance", time="2h", min_coverage=0),
    "hours of day": lambda maps: maps.aggregate("sum", time="hour_of_day", min_coverage=0),
}


def is_fused(surface: Perspective) -> bool:
    return any(item.is_fused for item in surface.list_chain())


def can_fuse(query: Query) -> bool:
    return is_fused(rewrite(query.surface(), RULES_FOR_MEMORY).surface.perspective)


def computed(query: Query, *, fused: bool, **given: object) -> tuple[Outcome, Perspective]:
    plan = make_plan(query.surface(), rules=RULES_FOR_MEMORY if fused else RULES, **given)  # type: ignore[arg-type]
    assert is_fused(plan.surface) == fused
    return list(run(plan))[-1].outcome, plan.surface


def check_the_same(query: Query, **given: object) -> Outcome:
    """Check values, counts, notes and readings left out to be equal, bit by bit; return the fused outcome."""
    (outcome, _), (expected, _) = computed(query, fused=True, **given), computed(query, fused=False, **given)
    np.testing.assert_array_equal(outcome.value, expected.value)
    for name in ("count", "possible"):
        held, wanted = getattr(outcome, name), getattr(expected, name)
        np.testing.assert_array_equal(*(np.broadcast_to(each, outcome.value.shape) for each in (held, wanted)))
    assert (outcome.notes, outcome.left_out) == (expected.notes, expected.left_out)
    assert np.isfinite(outcome.value).any()
    return outcome


def kriged() -> Query:
    return network().interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, neighbours=4)


@pytest.mark.parametrize("name", OF_READINGS)
@pytest.mark.parametrize("seed", [1, 2])
def test_readings_are_converted_as_they_are_read(tmp_path: Path, name: str, seed: int) -> None:
    base = random_archive(tmp_path / "archive", seed=seed)[0]["air_temperature"].accept_flags(1, 2, 3)
    two = base.convert("valid_range", low=-5.0, high=12.0).convert("scale", factor=1.1, offset=-0.3)
    outcome = check_the_same(OF_READINGS[name](two))
    assert outcome.left_out["valid_range, scale"] > 0


@pytest.mark.parametrize("name", ["mean", "sliding mean", "median", "first"])
def test_so_are_readings_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    base = random_archive(tmp_path / "archive", seed=1)[0]["air_temperature"]
    query = OF_READINGS[name](base.convert("valid_range", low=-5.0, high=12.0))
    whole = check_the_same(query)
    monkeypatch.setattr(pieces, "WHOLE_READINGS", 10)
    in_pieces = check_the_same(query)
    np.testing.assert_array_equal(in_pieces.value, whole.value)
    assert in_pieces.left_out == whole.left_out


def test_an_archive_is_read_once_and_converted_readings_replace_those_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = random_archive(tmp_path / "archive", seed=1)[0]["air_temperature"]
    surface = OF_READINGS["mean"](base.convert("scale", factor=2.0)).surface()
    read, reads = ArchiveSource.read, []

    def counted(self: ArchiveSource, *given: object) -> object:
        reads.append(given)
        return read(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(ArchiveSource, "read", counted)
    evaluators = []
    for rules in (RULES_FOR_MEMORY, RULES):
        node = make_plan(surface, rules=rules).surface
        evaluators.append(evaluate.Evaluator())
        evaluators[-1].block(node, np.arange(node.topology.space.count))
    assert len(reads) == 2
    assert [len(each._readings) for each in evaluators] == [1, 2]


def test_readings_that_another_step_reads_are_not_read_for_it_again(tmp_path: Path) -> None:
    base = random_archive(tmp_path / "archive", seed=1)[0]["air_temperature"]
    valid = base.convert("valid_range", low=-5.0, high=12.0)
    normal = valid.aggregate("mean", time="hour_of_day", min_coverage=0)
    of_both = valid.aggregate("mean", time="30min", min_coverage=0).merge("anomaly", normal)
    raw = base.aggregate("mean", time="hour_of_day", min_coverage=0)
    of_base = valid.aggregate("mean", time="30min", min_coverage=0).merge("anomaly", raw)
    for query in (
        of_both,
        of_base,
        base.convert("scale", factor=2.0),
        valid.interpolate("linear", time="5min", max_gap="1h"),
    ):
        assert not can_fuse(query)


@pytest.mark.parametrize("name", OF_MAPS)
@pytest.mark.parametrize("function", ["valid_range", "scale"])
def test_maps_are_converted_a_few_places_at_a_time(monkeypatch: pytest.MonkeyPatch, name: str, function: str) -> None:
    given = {"low": 4.0, "high": 9.0} if function == "valid_range" else {"factor": 1.7, "offset": 3.1}
    query = OF_MAPS[name](kriged().convert(function, **given))
    check_the_same(query)
    for values in (1, 500):
        monkeypatch.setattr(evaluate, "FUSED_VALUES", values)
        check_the_same(query)
    check_the_same(query, strategy=2)


def test_a_function_of_place_and_time_knows_where_each_part_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "FUSED_VALUES", 40)
    grid = hg.grid(lon=(7.0, 7.1), lat=(46.0, 46.1), step=0.02)
    maps = sunny().interpolate("inverse_distance", grid=grid).convert("clear_sky_index")
    check_the_same(maps.aggregate("mean", time="6h", min_coverage=0))


def test_boxes_in_time_hold_the_map_and_not_what_it_is_converted_to() -> None:
    query = OF_MAPS["sliding mean"](kriged().convert("scale", factor=2.0))
    expected = computed(query, fused=False)[0].value
    held = []
    for rules in (RULES_FOR_MEMORY, RULES):
        plan = replace(make_plan(query.surface(), rules=rules, strategy=0), block_times=5)
        outcome = list(run(plan))[-1].outcome
        np.testing.assert_allclose(outcome.value, expected, rtol=1e-13)
        held.append(outcome.buffered)
    assert held[0] < held[1]


def test_only_a_plan_that_would_not_fit_is_fused(tmp_path: Path) -> None:
    base = random_archive(tmp_path / "archive", seed=1)[0]["air_temperature"]
    query = OF_READINGS["mean"](base.convert("valid_range", low=-5.0, high=12.0))
    whole = make_plan(query.surface())
    needed = whole.projected_bytes
    assert not is_fused(whole.surface)
    assert not is_fused(make_plan(query.surface(), allowed_bytes=needed).surface)
    short = make_plan(query.surface(), allowed_bytes=needed - 1)
    assert is_fused(short.surface)
    assert short.projected_bytes < needed
    np.testing.assert_array_equal(query.compute(allowed_bytes=needed - 1)["value"], query.compute()["value"])
    # Rules that a caller gives are applied as they are.
    assert not is_fused(make_plan(query.surface(), rules=(), allowed_bytes=needed - 1).surface)


def test_functions_of_users_are_not_called_again_for_a_later_box() -> None:
    with forgotten_functions():

        @hg.convert_function("twice")
        def twice(value: float) -> float:
            return 2.0 * value

        @hg.aggregate_function("spread")
        def spread(values: np.ndarray) -> float:
            return float(values.max() - values.min())

        own = kriged().convert("twice").aggregate("mean", time="1h")
        folded = kriged().convert("scale", factor=2.0).aggregate("spread", time="1h")
        for query in (own, folded):
            assert not can_fuse(query)


def test_other_steps_hold_what_a_convert_makes() -> None:
    maps = kriged().convert("scale", factor=2.0)
    at_stations = network().convert("scale", factor=2.0).aggregate("mean", time="1h")
    blocks = maps.aggregate("mean", time="1h", x=500, y=500)
    for query in (maps, at_stations, blocks, maps.aggregate("mean", x=500, y=500)):
        assert not can_fuse(query)


def test_a_fused_convert_is_named_in_the_plan_and_takes_next_to_no_memory() -> None:
    query = OF_MAPS["mean"](kriged().convert("scale", factor=2.0))
    text = explain(make_plan(query.surface(), rules=RULES_FOR_MEMORY))
    assert "fuse: scale and mean are one pass over the values of the map" in text
    assert "convert scale(factor=2, offset=0), in the pass of the aggregate above" in text
    large = hg.grid(x=(0, 2000), y=(0, 2000), step=5)
    maps = network().interpolate("ordinary_kriging", grid=large, variogram=MODEL, neighbours=4)
    surface = OF_MAPS["mean"](maps.convert("scale", factor=2.0)).surface()
    fused, unfused = (make_plan(surface, rules=rules).steps[2].projected_bytes for rules in (RULES_FOR_MEMORY, RULES))
    assert fused == 3 * 8 * cells.FUSED_VALUES < unfused


def test_the_order_of_the_rules_does_not_matter(tmp_path: Path) -> None:
    base = random_archive(tmp_path / "archive", seed=1)[0]["air_temperature"]
    two = base.convert("valid_range", low=-5.0, high=12.0).convert("scale", factor=2.0)
    surface = OF_READINGS["mean"](two).surface()
    outcomes = [
        list(run(make_plan(surface, rules=rules)))[-1].outcome
        for rules in ((), (fuse,), (fuse, coalesce), (coalesce, fuse))
    ]
    for outcome in outcomes[1:]:
        np.testing.assert_array_equal(outcome.value, outcomes[0].value)
