"""A run that is saved and restored gives the same bits as one that is not, at any cut."""

import numpy as np
import pytest

from hypergrid.continuous.algebra import Operator, RelationInput, StreamInput, WindowOf, walk_operators
from hypergrid.continuous.engine import ChangeBatch, ContinuousEngine
from hypergrid.continuous.engine.kernels.groups import ORDERING, GroupState
from hypergrid.continuous.engine.state import MAGIC, pack_state, unpack_state
from hypergrid.continuous.rewrite import rewrite
from hypergrid.core.errors import InvalidQuery
from tests.support.continuous_engine import make_batch
from tests.support.continuous_oracle import Change, find_end
from tests.support.continuous_random import Case, random_case
from tests.support.continuous_trees import aggregate, aggregate_call, column, stream

CASES = 10


def run(case: Case, tree: Operator, seed: int, *, is_restored: bool) -> tuple[list[ChangeBatch], list[str]]:
    """Return the results of a case and the texts of the engine; cut at the same instants, restored at each or never."""
    rng = np.random.default_rng(seed)
    leaves = {part.name: part for part in walk_operators(tree) if isinstance(part, StreamInput | RelationInput)}
    inputs: dict[str, list[Change]] = {
        name: [(tau, 1, row) for tau, row in rows] for name, rows in case.streams.items()
    }
    inputs |= {name: list(rows) for name, rows in case.relations.items()}
    engine = ContinuousEngine(tree)
    results: list[ChangeBatch] = []
    stamps = sorted({tau for name in leaves for tau, _, _ in inputs[name] if tau > -(2**63)})
    end = find_end(tree, case.streams, case.relations)
    beats = sorted({*(stamp + int(rng.integers(0, 3)) for stamp in stamps if rng.random() < 0.6), end})
    done = dict.fromkeys(leaves, 0)
    for beat in beats:
        for name, leaf in leaves.items():
            rows, first = inputs[name], done[name]
            # Some elements are given early, and wait.
            reach = beat + int(rng.integers(0, 20))
            while done[name] < len(rows) and rows[done[name]][0] < reach:
                done[name] += 1
            engine.push(name, make_batch(rows[first : done[name]], leaf.attributes, engine.texts, first))
        if is_restored:
            engine = ContinuousEngine.restore(tree, engine.save())
        engine.advance(beat)
        if is_restored:
            # Results that were not taken yet are part of the state.
            engine = ContinuousEngine.restore(tree, engine.save())
        results += engine.results()
    engine.finish()
    return results + engine.results(), engine.texts.all_texts


def bits_of(batches: list[ChangeBatch]) -> list[tuple[bytes, ...]]:
    return [
        (batch.tau.tobytes(), batch.sign.tobytes(), *(part.tobytes() for part in batch.columns)) for batch in batches
    ]


@pytest.mark.parametrize("block", range(12))
def test_a_restored_run_gives_the_same_bits(block: int) -> None:
    for seed in range(CASES * block, CASES * (block + 1)):
        case = random_case(seed, elements=24)
        for tree in dict.fromkeys((case.tree, rewrite(case.tree, case.static).tree)):
            expected, texts = run(case, tree, seed, is_restored=False)
            restored, restored_texts = run(case, tree, seed, is_restored=True)
            assert bits_of(restored) == bits_of(expected), f"seed {seed}\n{case.describe()}"
            assert restored_texts == texts


def saved_engine() -> tuple[Operator, bytes]:
    below = stream("S", "k:i x:n")
    tree = aggregate(below, "k", total=aggregate_call("sum", column(below, "x")))
    return tree, ContinuousEngine(tree).save()


@pytest.mark.parametrize("at", range(0, 60, 7))
def test_a_flipped_bit_is_noticed(at: int) -> None:
    tree, saved = saved_engine()
    damaged = bytearray(saved)
    damaged[at] ^= 4
    with pytest.raises(InvalidQuery, match=r"state of a continuous query (is damaged|has version)"):
        ContinuousEngine.restore(tree, bytes(damaged))


def test_a_state_of_another_query_or_version_is_refused() -> None:
    tree, saved = saved_engine()
    with pytest.raises(InvalidQuery, match="belongs to another continuous query"):
        ContinuousEngine.restore(tree, saved, is_closed=True)
    with pytest.raises(InvalidQuery, match="damaged: its checksum differs"):
        ContinuousEngine.restore(tree, saved[:-1])
    with pytest.raises(InvalidQuery, match="has version 258, and this program reads 4"):
        ContinuousEngine.restore(tree, MAGIC + b"\x02\x01\x00\x00" + saved[8:])


def test_a_state_with_other_accumulators_is_refused() -> None:
    source = stream("S", "key:i value:n")
    tree = aggregate(
        WindowOf(source, "range", range_ns=10), "key", last=aggregate_call("last", column(source, "value"))
    )
    state = unpack_state(ContinuousEngine(tree).save())
    [groups] = [step["_groups"] for step in state["steps"] if "_groups" in step]
    program = groups[GroupState._fields.index("program")]
    ContinuousEngine.restore(tree, pack_state(state))
    # Earlier programs put all values in order by their age.
    program[0, 0] = ORDERING
    with pytest.raises(InvalidQuery, match="belongs to another continuous query, or another program"):
        ContinuousEngine.restore(tree, pack_state(state))


def test_elements_that_wait_in_a_state_are_checked() -> None:
    tree = RelationInput("R", stream("S", "a:i").attributes)
    engine = ContinuousEngine(tree)
    engine.push("R", make_batch([(5, 1, (7,))], tree.attributes, engine.texts, 0))
    state = unpack_state(engine.save())
    [[waiting]] = [step["waiting"] for step in state["steps"]]
    waiting[2] = waiting[0] * 0 + 1
    with pytest.raises(InvalidQuery, match="input 'R' needs signs as int8; got int64"):
        ContinuousEngine.restore(tree, pack_state(state))
