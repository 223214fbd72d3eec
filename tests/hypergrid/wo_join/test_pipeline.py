"""Pipelines give what joining everything at rest gives, and what the theorems predict holds."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.wo_join import BufferFull, KeysDoNotGrow, KnownParameters, Matches, Pipeline, Stage
from hypergrid.wo_join.config import Policy
from hypergrid.wo_join.pipeline import QUERY_1, QUERY_2, QUERY_3
from tests.hypergrid.wo_join.workloads import Workload, scrambling_factor, workload


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


def generous(streams: int) -> KnownParameters:
    return KnownParameters(disorder=(10**14,) * streams)


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
        for bound, predicted in zip(told.streams, pipeline.predict_bounds()[name], strict=True):
            assert bound.bound <= predicted
    # What inner streams were made of is forgotten with them.
    assert all(len(kept.parts.rows) < 400 for kept in pipeline._inputs.values())
    # Theorems 3.4.1 and 3.4.2 bound what the last join sees.
    told, predicted = pipeline.joins["results"].statistics(), pipeline.predict_parameters()
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
    with pytest.raises(NotFound, match="unknown output of a stage 'S9'"):
        Pipeline(QUERY_1, known={"S9": generous(3)})
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


def six(keys: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stream, key and other key of six streams in disorder."""
    rng = np.random.default_rng(seed)
    key = np.repeat(np.arange(keys), 6)
    order = np.argsort(key + rng.uniform(0, 40, len(key)), kind="stable")
    stream, key = np.tile(np.arange(6), keys)[order], key[order]
    return stream, key, key + rng.integers(0, 5, len(key))


def pushed(pipeline: Pipeline, columns: tuple[np.ndarray, ...], parts: int) -> list[Matches]:
    stream, key, other = columns
    places = np.array_split(np.arange(len(key)), parts)
    return [pipeline.push(stream[p], key[p], key[p] * 0.5, other_key=other[p]) for p in places]


@pytest.mark.parametrize("query", [QUERY_2, QUERY_3], ids=["query 2", "query 3"])
@pytest.mark.parametrize("policy", ["progress", "published"])
def test_resumed_equals_never_stopped(policy: Policy, query: tuple[Stage, ...]) -> None:
    columns = six(1500)
    wanted = pushed(Pipeline(query, policy=policy, allowed_bytes=2**20), columns, 12)
    pipeline, found = Pipeline(query, policy=policy, allowed_bytes=2**20), []
    stream, key, other = columns
    for part in np.array_split(np.arange(len(key)), 12):
        found.append(pipeline.push(stream[part], key[part], key[part] * 0.5, other_key=other[part]))
        kept = pipeline.snapshot()
        pipeline = Pipeline.resume(kept)
        assert pipeline.snapshot() == kept
    for one, another in zip(wanted, found, strict=True):
        assert np.array_equal(one.rows, another.rows)
        assert np.array_equal(one.payloads, another.payloads)
        assert np.array_equal(one.at, another.at)
        assert np.array_equal(one.late.row, another.late.row)
    assert sum(map(len, found)) > 500
    assert pipeline.statistics() is not None
    with pytest.raises(InvalidQuery, match="a pipeline can be resumed only from the bytes of its snapshot"):
        Pipeline.resume(pipeline.joins["S7"].snapshot())


def test_a_pipeline_that_is_full_has_lost_nothing() -> None:
    columns = six(1200)
    wanted = np.concatenate([m.rows for m in pushed(Pipeline(QUERY_2), columns, 20)])
    pipeline, found, refused = Pipeline(QUERY_2, allowed_bytes=9000), [], []
    stream, key, _ = columns
    for part in np.array_split(np.arange(len(key)), 20):
        try:
            found.append(pipeline.push(stream[part], key[part], key[part] * 0.5).rows)
        except BufferFull as error:
            refused.append((error.projected, error.allowed, error.taken))
            found.append(error.matches.rows)
        if len(refused) == 3:
            pipeline.allow(2**20)
    assert [taken for _, _, taken in refused] == [360] * 3
    assert all(projected > allowed == 9000 for projected, allowed, _ in refused)
    found.append(pipeline.push([], [], []).rows)
    assert sorted(map(tuple, np.concatenate(found).tolist())) == sorted(map(tuple, wanted.tolist()))
    assert pipeline.held_bytes < 2**20
    with pytest.raises(TooLarge, match="with one tuple a stream projects 384 bytes, above the 300 allowed"):
        pipeline.allow(300)


def test_a_join_that_is_full_is_lent_what_others_do_not_hold() -> None:
    # One of the first joins has a stream that lags far behind; the others hold next to nothing.
    columns = six(600)
    stream, key, _ = columns
    moment = np.arange(len(key)) + np.where(stream == 2, 1500, 0)
    order = np.argsort(moment, kind="stable")
    stream, key = stream[order], key[order]
    free = Pipeline(QUERY_2)
    peak, wanted = 0, 0
    for part in np.array_split(np.arange(len(key)), 40):
        wanted += len(free.push(stream[part], key[part], np.zeros(len(part))))
        peak = max(peak, free.held_bytes)
    limited = Pipeline(QUERY_2, allowed_bytes=int(1.3 * peak))
    found, more_than_its_third = 0, False
    for part in np.array_split(np.arange(len(key)), 40):
        found += len(limited.push(stream[part], key[part], np.zeros(len(part))))
        assert limited.held_bytes <= 1.3 * peak
        held = max(join.held_bytes for join in limited.joins.values())
        more_than_its_third |= held > (1.3 * peak - limited.kept_bytes) / 3
    assert found == wanted
    assert more_than_its_third


def test_keys_that_never_grow_are_told_with_what_was_found() -> None:
    pipeline = Pipeline(QUERY_1)
    n = 101_000
    stream = np.r_[0, 1, 2, np.zeros(n, np.int64)]
    with pytest.raises(KeysDoNotGrow, match="stream 0 has brought 100,000 tuples without a greater key") as raised:
        pipeline.push(stream, np.r_[9, 9, 9, np.zeros(n, np.int64)], np.zeros(n + 3))
    assert raised.value.matches.rows.tolist() == [[0, 0, 0]]
    windowed = Pipeline(QUERY_1, policy="window", window=10)
    assert len(windowed.push(stream, np.r_[9, 9, 9, np.zeros(n, np.int64)], np.zeros(n + 3))) == 1
    assert windowed.joins["results"].statistics().held == 12


def test_a_push_that_is_refused_changes_nothing() -> None:
    pipeline = Pipeline(QUERY_3)
    pipeline.push([0], [1], [1.0], other_key=[1])
    before = pipeline.snapshot()
    for key, other, arrival, words in (
        ([2**62], [1], None, "key from"),
        ([1], [2**62], None, "other_key from"),
        ([1], [0.5], None, "other_key of whole numbers; got 0.5"),
        ([1], [1, 2], None, "one length"),
        ([1], [1], [7], "with every push, or with none"),
    ):
        with pytest.raises(InvalidQuery, match=words):
            pipeline.push([0], key, [0.0], arrival, other_key=other)
        assert pipeline.snapshot() == before


def test_silent_streams_hold_nothing_once_they_sleep() -> None:
    pipeline = Pipeline(QUERY_1, idle_s=10.0)
    for second in range(100):
        pipeline.push([0, 1], [second, second], [0.0, 0.0], [second * 10**9] * 2)
    assert pipeline.joins["results"].statistics().held < 5
    pipeline.push([0], [200], [0.0], [101 * 10**9])
    pipeline.advance(200 * 10**9)
    assert pipeline.joins["results"].statistics().held == 0
