"""Joins that share memory: who is admitted, and how much each may hold."""

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.wo_join import BufferFull, KnownParameters, Pipeline, SharedMemory, WoJoin
from hypergrid.wo_join.pipeline import QUERY_2


def bounded(factor: int) -> WoJoin:
    """A join of two streams that needs 2 k tuples of each: 2 * 2 k * 32 bytes, and 2 k keys of 40."""
    known = KnownParameters(scrambling_factor=(factor,) * 2, rate_hz=(1.0, 1.0), lag=((0.0, 0.0), (0.0, 0.0)))
    return WoJoin(2, policy="published", known=known)


def test_a_join_that_does_not_fit_beside_the_others_is_refused_with_both_numbers() -> None:
    memory = SharedMemory(50_000)
    memory.admit("temperature", bounded(100))
    told = memory.statistics()
    assert told.joins["temperature"].needed == 400 * 32 + 200 * 40 == 20_800
    with pytest.raises(
        TooLarge, match=r"'rain' beside 1 joins that need 20,800 bytes projects 62,400 .* 50,000 allowed"
    ):
        memory.admit("rain", bounded(200))
    memory.admit("rain", bounded(100))
    assert [share.allowed for share in memory.statistics().joins.values()] == [25_000, 25_000]
    with pytest.raises(InvalidQuery, match="'rain' is admitted already"):
        memory.admit("rain", bounded(1))
    memory.release("temperature")
    memory.admit("wind", bounded(1))
    shares = memory.statistics().joins
    assert shares["rain"].allowed + shares["wind"].allowed == 50_000
    # What nobody needs is shared in equal parts.
    assert shares["rain"].allowed - shares["rain"].needed == pytest.approx(
        shares["wind"].allowed - shares["wind"].needed, 1
    )
    with pytest.raises(NotFound, match="unknown join 'snow'"):
        memory.release("snow")


def test_parts_follow_the_need() -> None:
    memory, busy, idle = SharedMemory(40_000), WoJoin(2), WoJoin(2)
    memory.admit("busy", busy)
    memory.admit("idle", idle)
    key, taken = np.arange(300), 0
    columns = (np.zeros(300, np.int64), key, np.zeros(300))
    with pytest.raises(BufferFull) as raised:
        busy.push(*columns)
    taken = raised.value.taken
    assert busy.held_bytes <= 20_000
    memory.share()
    # What the other does not hold is there for it.
    busy.push(*(column[taken:] for column in columns))
    told = memory.statistics()
    assert told.held_bytes == busy.held_bytes == 300 * 72
    assert told.joins["busy"].allowed > 20_000
    assert sum(share.allowed for share in told.joins.values()) <= 40_000
    with pytest.raises(TooLarge, match="2 joins together projects"):
        memory.allow(20_000)
    assert memory.statistics().allowed_bytes == 40_000


def test_a_pipeline_is_one_of_those_that_share() -> None:
    memory, pipeline = SharedMemory(100_000), Pipeline(QUERY_2)
    memory.admit("query", pipeline)
    memory.admit("join", WoJoin(3))
    pipeline.push(np.arange(6), np.ones(6), np.zeros(6))
    told = memory.statistics().joins["query"]
    assert told.minimum == pipeline.min_bytes == 384
    assert told.held == pipeline.held_bytes
    assert pipeline.statistics() is not None
