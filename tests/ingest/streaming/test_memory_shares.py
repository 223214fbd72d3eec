"""Shares of groups of stations in a limit of memory: by need, from a record on, equal where nothing is known."""

from dataclasses import replace
from pathlib import Path

import pytest

from ingest.deployment.deployment_file import LEAST_MEMORY
from ingest.streaming.assembler import JoinStatus
from ingest.streaming.memory_shares import CHANGE, KEPT, decide, memory_of, split
from ingest.streaming.spilled_rows import StateUnusable
from ingest.streaming.stream_commit import SHARES

MEMORY = 100 * LEAST_MEMORY
JOIN = JoinStatus(
    streams=3, silent=0, held=1000, held_bytes=500_000, allocated_bytes=600_000, allowed_bytes=MEMORY,
    needed=1000.0, scrambling_factor=2, lag=3.0, row_bytes=500.0,
)  # fmt: skip


def share_of(folder: Path, group: str, first: int, groups: str = "ab") -> float:
    return memory_of(folder, MEMORY, group, groups, first) / MEMORY


def test_who_needs_more_has_more() -> None:
    # 3.8 asks for 100 MiB and 300 MiB, by the size of the rows: one least part each, and a quarter of the rest to one.
    # Most rows are on disk: what is held in memory says nothing of what they need.
    needs = {name: replace(JOIN, needed=share * MEMORY / 500, spilled=900) for name, share in (("a", 1.0), ("b", 0.25))}
    shares = split(MEMORY, needs)
    assert shares is not None
    rest = MEMORY - 2 * LEAST_MEMORY
    wanted = [MEMORY - LEAST_MEMORY, 0.25 * MEMORY - LEAST_MEMORY]
    for group, beyond in zip("ab", wanted, strict=True):
        assert shares[group] * MEMORY == pytest.approx(LEAST_MEMORY + rest * beyond / sum(wanted), abs=2)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_what_is_left_is_shared_equally() -> None:
    shares = split(MEMORY, {"a": replace(JOIN, needed=8000.0), "b": replace(JOIN, needed=0.0)})
    assert shares is not None
    assert (shares["a"] - shares["b"]) * MEMORY == pytest.approx(8000 * 500 - LEAST_MEMORY, abs=2)


def test_a_group_that_sends_nothing_has_what_is_left() -> None:
    shares = split(MEMORY, {"a": replace(JOIN, needed=1e9), "b": replace(JOIN, needed=None, streams=0, held=0)})
    assert shares is not None
    assert shares["b"] * MEMORY == pytest.approx(LEAST_MEMORY, abs=2)


def test_nothing_is_decided_while_a_need_is_not_known() -> None:
    assert split(MEMORY, {"a": JOIN, "b": replace(JOIN, needed=None)}) is None


def test_a_decision_holds_from_its_record_on(tmp_path: Path) -> None:
    assert share_of(tmp_path, "a", 5) == 0.5
    decide(tmp_path, 10, {"a": 0.8, "b": 0.2})
    decide(tmp_path, 20, {"a": 0.3, "b": 0.7})
    shares = [share_of(tmp_path, "a", first) for first in (9, 10, 19, 20, 99)]
    assert shares == pytest.approx([0.5, 0.8, 0.8, 0.3, 0.3], abs=1e-6)
    assert share_of(tmp_path, "a", 20, "abc") == pytest.approx(1 / 3, abs=1e-6), "with another feed all begin equal"
    assert share_of(tmp_path, "a", 20, "ac") == 0.5
    # A batch that is committed once more decides nothing again.
    decide(tmp_path, 10, {"a": 0.5, "b": 0.5})
    assert share_of(tmp_path, "a", 19) == pytest.approx(0.8, abs=1e-6)


def test_small_changes_are_left_out_and_old_decisions_go(tmp_path: Path) -> None:
    decide(tmp_path, 1, {"a": 0.5 + CHANGE / 2, "b": 0.5 - CHANGE / 2})
    assert not (tmp_path / SHARES).exists()
    for at in range(2 * KEPT):
        decide(tmp_path, at + 1, {"a": 0.8, "b": 0.2} if at % 2 else {"a": 0.2, "b": 0.8})
    assert share_of(tmp_path, "a", 2 * KEPT) == pytest.approx(0.8, abs=1e-6)
    assert share_of(tmp_path, "a", KEPT) == pytest.approx(0.5, abs=1e-6), "no longer known"


def test_a_damaged_file_lets_the_stream_begin_anew(tmp_path: Path) -> None:
    decide(tmp_path, 1, {"a": 0.9, "b": 0.1})
    (tmp_path / SHARES).write_text("{")
    with pytest.raises(StateUnusable, match="shares of a stream's memory"):
        share_of(tmp_path, "a", 1)
