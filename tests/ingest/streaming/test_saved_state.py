"""States between batches: small ones in Spark's store, large ones in files that a repeated batch finds again."""

from pathlib import Path

import pytest

from ingest.streaming import saved_state
from ingest.streaming.saved_state import INLINE_BYTES, STATES, load, save
from ingest.streaming.spilled_rows import KEPT_VERSIONS, StateUnusable
from tests.ingest.stream_loop import Loop, end, expected, made
from tests.ingest.streamed import everything, messages, write_spool


def test_small_states_are_kept_as_they_are_and_large_ones_by_name(tmp_path: Path) -> None:
    for size in (0, 1, INLINE_BYTES, INLINE_BYTES + 1, 3 * INLINE_BYTES):
        state = bytes(at % 251 for at in range(size))
        kept = save(tmp_path, size, [state[:100], state[100:]])
        assert load(tmp_path, kept) == state
        assert (kept == state) == (size <= INLINE_BYTES)
        assert len(kept) <= INLINE_BYTES
    assert len(list((tmp_path / STATES).iterdir())) == 1, "older ones have gone"


def test_states_stay_while_a_batch_may_be_repeated(tmp_path: Path) -> None:
    kept = [save(tmp_path, version, [bytes([version]) * (INLINE_BYTES + 1)]) for version in range(20)]
    for version in range(20 - KEPT_VERSIONS, 20):
        assert load(tmp_path, kept[version]) == bytes([version]) * (INLINE_BYTES + 1)
    with pytest.raises(StateUnusable, match="cannot be read"):
        load(tmp_path, kept[20 - KEPT_VERSIONS - 1])
    # What a killed writer left goes, too.
    (tmp_path / STATES / ".000000000012-0-1.state").touch()
    save(tmp_path, 40, [b"small"])
    assert not list((tmp_path / STATES).iterdir())


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    kept = save(tmp_path, 1, [bytes(INLINE_BYTES + 1)])
    (path,) = (tmp_path / STATES).iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StateUnusable, match="damaged"):
        load(tmp_path, kept)


def test_a_stream_with_states_in_files_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_state, "INLINE_BYTES", 0)
    sent = messages(("1", "2", "3"), until_h=12.0)
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent)
    end(archive)
    lost = iter([False, True, False, False, True, False, False] * 1000)
    loop = Loop(archive, deployment, batch_bytes=20_000)
    loop.run(is_lost=lambda _: next(lost))
    assert all(len(state) < 200 for state in loop.states.values())
    assert everything(archive) == expected(tmp_path, sent)
