"""What lies beside the store of an archive: each damaged file is named, with what it means and what to do."""

import json
import random
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive, Defect
from hypergrid.archive.disk.checksums import write_checked
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.cli.main import main
from hypergrid.execution import Outcome
from hypergrid.formats.partitioned import save_piece
from ingest.deployment.deployment_file import deploy
from ingest.repair.stream_history import stored_upto
from ingest.repair.verify_values import check_parts
from ingest.sources.spool import MARK_FILE, Spool, durable, segments
from ingest.streaming.restart import RESTART_FILE
from ingest.streaming.stream_commit import CHECKPOINT, DEPLOYMENTS, SPOOL, STREAM
from tests.ingest.stream_loop import Loop, end, made
from tests.ingest.streamed import messages, write_spool


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with a spool of several segments, of which a stream stored what the first hold."""
    folder = tmp_path_factory.mktemp("examining")
    sent = messages(("1", "3"), until_h=3.0)
    archive, deployment = made(folder)
    deploy(archive / STREAM / DEPLOYMENTS, folder / "deployment.toml", first=1)
    write_spool(archive / SPOOL, sent, at_once=10, segment_bytes=5_000)
    end(archive)
    loop = Loop(archive, deployment, batch_bytes=8_000)
    while not stored_upto(Archive.open(archive)):
        loop.step(upto=len(sent))
    assert len(segments(archive / SPOOL)) > 3
    return archive


@pytest.fixture
def archive(streamed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(streamed, tmp_path / "archive"))


def defects(archive: Path) -> list[Defect]:
    return list(check_parts(archive, Archive.open(archive), lambda _name, _done: None))


def named(archive: Path) -> list[str]:
    return [one.where for one in defects(archive)]


def flip(path: Path, chosen: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
    path.write_bytes(data)


def test_each_flipped_bit_of_the_spool_is_named(archive: Path) -> None:
    assert defects(archive) == []
    chosen = random.Random(1)
    files = [archive / SPOOL / MARK_FILE, *(path for _, path in segments(archive / SPOOL))]
    for path in files * 5:
        before = path.read_bytes()
        flip(path, chosen)
        assert named(archive) == [f"{SPOOL}/{path.name}"]
        for part in (b"", before[: len(before) // 2]):
            path.write_bytes(part)
            assert named(archive) == [f"{SPOOL}/{path.name}"]
        path.write_bytes(before)
    assert defects(archive) == []


def test_a_segment_says_whether_the_archive_has_what_it_brought(archive: Path) -> None:
    stored, known = stored_upto(Archive.open(archive)), segments(archive / SPOOL)
    for _, path in known:
        path.write_bytes(path.read_bytes()[:-1])
    found = defects(archive)
    assert [one.where for one in found] == [f"{SPOOL}/{path.name}" for _, path in known]
    ends = [first - 1 for first, _ in known[1:]] + [durable(archive / SPOOL)]
    for one, last in zip(found, ends, strict=True):
        assert ("nothing else has it" in one.what) == (last > stored)
        assert f"to {last:,} cannot be read" in one.what
        assert "restore the file from a backup" in one.remedy


def test_a_segment_that_is_gone_between_others_is_named(archive: Path) -> None:
    known = segments(archive / SPOOL)
    known[1][1].unlink()
    (one,) = defects(archive)
    assert one.where == f"{SPOOL}/{known[0][1].name}"
    assert f"records {known[1][0]:,} to {known[2][0] - 1:,} cannot be read" in one.what


def test_what_is_being_written_is_no_damage(archive: Path) -> None:
    _, last = segments(archive / SPOOL)[-1]
    whole = last.read_bytes()
    last.write_bytes(whole + whole[:50])
    assert defects(archive) == []
    # Without the mark nothing tells whether those bytes were promised.
    (archive / SPOOL / MARK_FILE).unlink()
    (one,) = defects(archive)
    assert "that are no whole record" in one.what
    last.write_bytes(whole)
    (archive / SPOOL / MARK_FILE).write_bytes(b"")
    with Spool.open(archive / SPOOL):
        assert defects(archive) == []
    assert defects(archive) == []


def test_notes_checkpoints_and_pieces_are_compared(archive: Path) -> None:
    chosen = random.Random(2)
    write_checked(archive / STREAM / RESTART_FILE, {"stream": "id", "upto": 3})
    offsets = archive / STREAM / CHECKPOINT / "offsets"
    offsets.mkdir(parents=True)
    content = chosen.randbytes(1300)
    (offsets / "7").write_bytes(content)
    blocks = (content[at : at + 512] for at in range(0, len(content), 512))
    sums = b"".join(zlib.crc32(block).to_bytes(4) for block in blocks)
    (offsets / ".7.crc").write_bytes(b"crc\x00" + (512).to_bytes(4) + sums)
    # A killed Spark leaves what it had begun to write.
    (offsets / ".8.0c3302d9.tmp").write_bytes(content[:600])
    (offsets / "..8.0c3302d9.tmp.crc").write_bytes(b"")
    pieces = archive / "reprocess" / "run"
    pieces.mkdir(parents=True)
    save_piece(Outcome(np.arange(50.0)), pieces / "000000000.npz")
    assert defects(archive) == []
    for path, where in (
        (archive / STREAM / RESTART_FILE, f"{STREAM}/{RESTART_FILE}"),
        (offsets / "7", f"{STREAM}/{CHECKPOINT}/offsets/7"),
        (offsets / ".7.crc", f"{STREAM}/{CHECKPOINT}/offsets/7"),
        (pieces / "000000000.npz", "reprocess/run/000000000.npz"),
    ):
        before = path.read_bytes()
        path.write_bytes(b"")
        assert named(archive) == [where]
        middle = len(before) // 2
        path.write_bytes(before[:middle] + bytes([before[middle] ^ 4]) + before[middle + 1 :])
        assert named(archive) == [where]
        path.write_bytes(before)
    (offsets / "7").write_bytes(b"")
    with wait_for_lock(archive / STREAM / "lock"):
        assert defects(archive) == []


def test_the_command_names_what_lies_beside_the_store(
    archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = segments(archive / SPOOL)[-1]
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr(sys, "argv", ["hypergrid", "check", str(archive), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert [one["where"] for one in json.loads(capsys.readouterr().out)["defects"]] == [f"{SPOOL}/{path.name}"]
