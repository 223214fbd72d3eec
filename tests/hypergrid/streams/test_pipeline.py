"""Pipelines give what joining everything at rest gives, and what the theorems predict holds."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from hypergrid.errors import InvalidQuery, TooLarge
from hypergrid.streams import Known, Pipeline, Stage
from hypergrid.streams.pipeline import QUERY_1, QUERY_2, QUERY_3
from tests.hypergrid.streams.workloads import Workload, scrambling_factor, workload


def other_keys(load: Workload, seed: int) -> np.ndarray:
    """A second key that follows the first, out of step."""
    return np.unique(load.key, return_inverse=True)[1] + np.random.default_rng(seed).integers(0, 5, len(load.key))


def joined_at_rest(load: Workload, other: np.ndarray, query: tuple[Stage, ...]) -> list[tuple[int, ...]]:
    if len(query) == 1 or query[2].key_of is None:
        return load.joined()
    by_row = [other[load.stream == i] for i in range(6)]
    halves = []
    for streams in ((0, 1, 2), (3, 4, 5)):
        half = defaultdict(list)
        for groups in load.by_key().values():
            for combination in itertools.product(*(groups[i] for i in streams)):
                half[int(by_row[streams[0]][combination[0]])].append(combination)
        halves.append(half)
    return sorted(a + b for key in halves[0] for a in halves[0][key] for b in halves[1].get(key, []))


def generous(streams: int) -> Known:
    return Known(disorder=(10**14,) * streams)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("query", [QUERY_1, QUERY_2, QUERY_3], ids=["query 1", "query 2", "query 3"])
def test_each_result_comes_once_however_arrivals_are_cut(query: tuple[Stage, ...], seed: int) -> None:
    load = workload(seed, streams=6 if len(query) > 1 else 3)
    other = other_keys(load, seed)
    wanted = joined_at_rest(load, other, query)
    assert wanted
    known = {stage.output: generous(len(stage.inputs)) for stage in query}
    for cuts in (1, 9):
        pipeline, found = Pipeline(query, known=known), []
        for part in np.array_split(np.arange(len(load.key)), cuts):
            columns = (load.stream[part], load.key[part], load.payload[part], load.arrival[part])
            matches = pipeline.push(*columns, other_key=other[part])
            found.append(matches)
            assert not len(matches.late)
        rows = np.concatenate([matches.rows for matches in found])
        assert sorted(map(tuple, rows.tolist())) == wanted
        for i in range(load.streams):
            places = np.flatnonzero(load.stream == i)[rows[:, i]]
            assert np.array_equal(load.payload[places], np.concatenate([m.payloads for m in found])[:, i])
        at = np.concatenate([matches.at for matches in found])
        last = np.max([np.flatnonzero(load.stream == i)[rows[:, i]] for i in range(load.streams)], axis=0)
        assert np.array_equal(at, last)


def test_monitored_pipelines_keep_little_and_predict_bounds() -> None:
    rng = np.random.default_rng(0)
    keys = np.repeat(np.arange(4000), 6)
    order = np.argsort(keys + rng.uniform(0, 40, len(keys)), kind="stable")
    stream, key = np.tile(np.arange(6), 4000)[order], keys[order]
    other = key + rng.integers(0, 5, len(key))
    pipeline = Pipeline(QUERY_3)
    rows = [
        len(pipeline.push(stream[p], key[p], np.zeros(len(p)), other_key=other[p]))
        for p in np.array_split(np.arange(len(key)), 50)
    ]
    assert sum(rows) > 500
    for name, join in pipeline.joins.items():
        told = join.statistics()
        assert told.held < 600
        for bound, predicted in zip(told.streams, pipeline.predicted_bounds()[name], strict=True):
            assert bound.bound <= predicted
    # What inner streams were made of is forgotten with them.
    assert all(len(kept.parts.rows) < 400 for kept in pipeline._kept.values())
    # Theorems 3.4.1 and 3.4.2 bound what the last join sees.
    told, predicted = pipeline.joins["results"].statistics(), pipeline.predictions()
    for one, name in zip(told.streams, ("S7", "S8"), strict=True):
        assert one.scrambling_factor <= predicted[name].scrambling_factor
        assert one.rate_hz <= predicted[name].rate_hz * 1.01


def test_memory_is_shared_and_refused() -> None:
    with pytest.raises(TooLarge, match="'results' beside 2 joins that need 280 bytes projects 384 bytes"):
        Pipeline(QUERY_2, allowed_bytes=300)
    load = workload(3, streams=6)
    pipeline = Pipeline(QUERY_2, allowed_bytes=100_000)
    pipeline.push(load.stream, load.key, load.payload)
    allowed = [join.statistics().allowed_bytes or 0 for join in pipeline.joins.values()]
    assert 99_000 <= sum(allowed) + pipeline.kept_bytes <= 100_000


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ((), "written once and read once"),
        ((Stage("A", ("S1", "S1")),), "written once and read once"),
        ((Stage("B", ("A", "S3")), Stage("A", ("S1", "S2"))), "comes after all"),
        ((Stage("A", ("S1", "S2")), Stage("B", ("S3", "S4"))), "every stage but the last is read"),
        ((Stage("A", ("S1", "S2"), key_of=("S1",)),), "one pushed stream for each input"),
    ],
)
def test_stages_that_make_no_tree_are_refused(stages: tuple[Stage, ...], words: str) -> None:
    with pytest.raises(InvalidQuery, match=words):
        Pipeline(stages)


def test_pushes_that_a_pipeline_refuses() -> None:
    with pytest.raises(InvalidQuery, match="need other_key="):
        Pipeline(QUERY_3).push([0], [1], [0.0])
    with pytest.raises(InvalidQuery, match="streams 0 to 2; got 3"):
        Pipeline(QUERY_1).push([0, 3], [1, 1], [0.0, 0.0])
    with pytest.raises(InvalidQuery, match="one length"):
        Pipeline(QUERY_1).push([0, 1], [1], [0.0, 0.0])


def test_the_scrambling_factor_of_results_is_bounded() -> None:
    # Theorem 3.4.1 with full knowledge.
    for seed in range(12):
        load = workload(seed, streams=3)
        pipeline = Pipeline(QUERY_1, known={"results": generous(3)})
        keys = pipeline.push(load.stream, load.key, load.payload).key.tolist()
        own = [load.keys_of(i) for i in range(3)]
        repeated = [max(keys.count(key) for key in keys) for keys in own]
        bound = sum(scrambling_factor(own[i]) * np.prod(repeated) / repeated[i] for i in range(3))
        # The theorem counts the pairs between; the partners of one arrival come with it.
        assert scrambling_factor(keys) <= bound + np.prod(repeated)
