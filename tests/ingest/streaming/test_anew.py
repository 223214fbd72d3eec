"""A stream whose memory is gone begins anew: nothing is lost, nothing is twice, and what was amended stays."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.archive.disk.raw_copies import copy_path
from hypergrid.core.files import seal
from ingest.batch.archive_session import locked_archive as opened_for
from ingest.deployment.deployment_file import load
from ingest.job import ingest
from ingest.sources.spool import Spool, SpoolRecord, durable, segments
from ingest.streaming.assembler import MAGIC, Assembler, StateUnusable, _read_sections
from ingest.streaming.restart import RESTART_FILE, begin_anew, forget_checkpoint, has_checkpoint, replayed
from ingest.streaming.stream_commit import CHECKPOINT, STREAM, ledger_of
from tests.ingest.stream_loop import Loop, end, expected, made
from tests.ingest.streamed import Message, everything, messages, write_deployment, write_spool

SMALL = 10_000
"""Bytes of a segment: rows wait for longer than it takes to fill some."""


@pytest.fixture(scope="module")
def sent() -> list[Message]:
    return messages(("1", "3", "6", "9", "13", "21"), until_h=4.0)


def _remember(archive: Path, stream: str) -> None:
    """Make the memory that Spark would have."""
    folder = archive / STREAM / CHECKPOINT
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": stream}))


def _begun(loop: Loop, upto: int) -> Loop:
    """Let a stream take some batches, and lose what it remembers."""
    _remember(loop.archive, loop.stream)
    while loop.after < upto:
        loop.step(upto=upto)
    return loop


def test_whenever_its_memory_is_lost_the_archive_is_that_of_a_batch_ingest(tmp_path: Path, sent: list[Message]) -> None:
    truth, brought = expected(tmp_path, sent), 0
    for part in (0.35, 0.8):
        folder = tmp_path / f"{part}"
        folder.mkdir()
        archive, deployment = made(folder)
        write_spool(archive / "spool", sent, at_once=30, segment_bytes=SMALL)
        end(archive)
        loop = _begun(Loop(archive, deployment, batch_bytes=12_000), round(part * len(sent)))
        held = ledger_of(Archive.open(archive), "id").held
        assert held > 0, "rows wait, of segments that are raw copies"
        begun = begin_anew(archive)
        assert begun is not None
        assert (begun.upto, begun.lost) == (loop.after, "")
        assert begin_anew(archive) == type(begun)(begun.upto, 0), "what is killed is done once more"
        brought += begun.segments
        assert not has_checkpoint(archive)
        ledger = Loop(archive, deployment, stream="second", replayed=replayed(archive)).run()
        assert everything(archive) == truth
        assert (ledger.balance, ledger.held) == (0, 0)
        assert list(Archive.open(archive).check(deep=True)) == []
    assert brought > 0


def test_memory_that_is_lost_twice(tmp_path: Path, sent: list[Message]) -> None:
    truth = expected(tmp_path, sent)
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent, at_once=30, segment_bytes=SMALL)
    end(archive)
    first = _begun(Loop(archive, deployment, batch_bytes=12_000), round(0.6 * len(sent)))
    assert begin_anew(archive)
    # It gets less far than the one before.
    second = Loop(archive, deployment, stream="second", replayed=replayed(archive))
    _begun(second, (second.after + first.after) // 2)
    begun = begin_anew(archive)
    assert begun is not None
    assert begun.upto == first.after
    Loop(archive, deployment, stream="third", replayed=replayed(archive)).run()
    assert everything(archive) == truth


def test_what_was_amended_since_and_what_was_refused_stay_as_they_are(tmp_path: Path, sent: list[Message]) -> None:
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent[:150], at_once=30, segment_bytes=SMALL)
    with Spool.open(archive / "spool") as spool:
        spool.append([SpoolRecord(sent[149].arrival_ns, "sensorscope", "pass/1/up", b"no JSON", kind=0)])
    write_spool(archive / "spool", sent[150:], at_once=30, segment_bytes=SMALL)
    end(archive)
    _begun(Loop(archive, deployment, batch_bytes=12_000), 300)
    stamp = json.loads(sent[0].payload)["time"]
    corrected = tmp_path / "corrected"
    corrected.mkdir()
    (corrected / "a.jsonl").write_bytes(
        json.dumps({"station": sent[0].station, "time": stamp, "wind_speed": 7.25}).encode() + b"\n"
    )
    write_deployment(corrected, arrivals=False)
    ingest([corrected], archive, now_ns=2, engine="inprocess")
    assert begin_anew(archive)
    Loop(archive, deployment, stream="second", replayed=replayed(archive)).run()
    opened = Archive.open(archive)
    readings = opened.read("wind_speed")
    number = next(n for n, one in enumerate(readings.series) if one.station == sent[0].station)
    mine = (readings.index == number) & (readings.time_ns == stamp * 10**9)
    assert readings.value[mine].tolist() == [7.25]
    assert len(opened.rejects()) == 1


def test_a_raw_copy_that_is_gone_or_damaged_is_told_and_the_rest_goes_on(tmp_path: Path, sent: list[Message]) -> None:
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent, at_once=30, segment_bytes=SMALL)
    end(archive)
    _begun(Loop(archive, deployment, batch_bytes=12_000), round(0.5 * len(sent)))
    # As a program wrote it that did not tell which rows waited: all comes back that can.
    opened = Archive.open(archive)
    told = {key: value for key, value in opened.streams["id"].items() if key != "first_held"}
    with opened.commit(batch="older", message="older", now_ns=3) as writer:
        writer.set_stream("id", told)
    kept = [entry for entry in opened.files() if entry.name.startswith("spool/")]
    assert len(kept) > 2
    place = copy_path(archive / "raw", kept[1].sha256)
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1
    place.write_bytes(content)
    begun = begin_anew(archive)
    assert begun is not None
    assert begun.segments == len(kept) - 2
    assert str(place) in begun.lost
    place.unlink()
    again = begin_anew(archive)
    assert again is not None
    assert "there is no raw copy" in again.lost
    ledger = Loop(archive, deployment, stream="second", replayed=replayed(archive)).run()
    assert ledger.balance == 0


def test_numbers_that_are_given_twice_are_not_taken_for_what_was_committed(tmp_path: Path, sent: list[Message]) -> None:
    """A backup has the spool as it was a little before its newest commit."""
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent[:250], at_once=30, segment_bytes=SMALL)
    _begun(Loop(archive, deployment, batch_bytes=12_000), 250)
    last = segments(archive / "spool")[-1][1]
    last.unlink()
    (archive / "spool" / "durable").unlink(missing_ok=True)
    left = durable(archive / "spool")
    begun = begin_anew(archive)
    assert begun is not None
    assert begun.upto == max(left, durable(archive / "spool")) < 250
    write_spool(archive / "spool", sent[250:], at_once=30, segment_bytes=SMALL)
    again = begin_anew(archive)
    assert again is not None
    assert again.upto == begun.upto


def test_what_waited_is_stored_beside_what_a_file_said_meanwhile(tmp_path: Path, sent: list[Message]) -> None:
    found = []
    for is_lost in (False, True):
        folder = tmp_path / f"{is_lost}"
        folder.mkdir()
        archive, deployment = made(folder)
        write_spool(archive / "spool", sent[:250], at_once=30, segment_bytes=SMALL)
        loop = _begun(Loop(archive, deployment, batch_bytes=12_000), 250)
        opened = Archive.open(archive)
        stamps = {(json.loads(one.payload)["station"], json.loads(one.payload)["time"]) for one in sent[:250]}
        readings = opened.read("wind_speed")
        stored = {
            (readings.series[index].station, time_ns // 10**9)
            for index, time_ns in zip(readings.index.tolist(), readings.time_ns.tolist(), strict=True)
        }
        station, stamp = min(stamps - stored)
        (folder / "files").mkdir()
        row = {"station": station, "time": stamp, "wind_speed": 7.25}
        (folder / "files" / "a.jsonl").write_bytes(json.dumps(row).encode() + b"\n")
        write_deployment(folder / "files", arrivals=False)
        ingest([folder / "files"], archive, now_ns=sent[249].arrival_ns, engine="inprocess")
        if is_lost:
            assert begin_anew(archive)
            loop = Loop(archive, deployment, batch_bytes=12_000, stream="second", replayed=replayed(archive))
        end(archive)
        loop.run()
        found.append(everything(archive))
        assert any(value[0] == 7.25 for value in found[-1].values())
    assert found[0] == found[1]


def test_what_refuses_to_convert_is_listed_once(tmp_path: Path) -> None:
    path = tmp_path / "deployment.toml"
    path.write_text(
        '[network]\nname = "n"\nslice_s = 60\n[[feed]]\nname = "f"\nfiles = "*.csv"\nformat = "csv"\n'
        'header_lines = 2\nunit_line = 2\ncolumns = {T = "air_temperature", W = "wind_speed"}\n'
    )
    deployment, archive = load(path), tmp_path / "archive"
    with opened_for(archive, deployment, now_ns=1, on_wait=lambda: None):
        pass
    text = b"station,time,T,W\n,,kg,m s-1\n1,2024-01-01T00:00:00Z,3,4\n1,2024-01-01T00:01:00Z,3,5\n"
    with Spool.open(archive / "spool") as spool:
        spool.append([SpoolRecord(10**18, "f", "a.csv", text, 1)])
    end(archive)
    _begun(Loop(archive, deployment), durable(archive / "spool"))
    before = Archive.open(archive).rejects()
    assert before
    assert begin_anew(archive)
    Loop(archive, deployment, stream="second", replayed=replayed(archive)).run()
    assert Archive.open(archive).rejects() == before


def test_what_is_forgotten_is_forgotten_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill while the memory is removed leaves none that a stream would go on from."""
    archive, _ = made(tmp_path)
    _remember(archive, "id")
    (archive / STREAM / CHECKPOINT / "offsets").mkdir()

    def killed(path: Path, **_more: object) -> None:
        if path.exists():
            (path / "offsets").rmdir()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            forget_checkpoint(archive)
    assert not has_checkpoint(archive)
    assert not forget_checkpoint(archive)
    assert [path.name for path in (archive / STREAM).iterdir() if CHECKPOINT in path.name] == []


def test_a_note_that_is_damaged_is_made_again(tmp_path: Path, sent: list[Message]) -> None:
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent[:250], at_once=30, segment_bytes=SMALL)
    _begun(Loop(archive, deployment, batch_bytes=12_000), 250)
    begun = begin_anew(archive)
    assert begun is not None
    note = archive / STREAM / RESTART_FILE
    note.write_bytes(note.read_bytes().replace(b"upto", b"upt0"))
    _remember(archive, "second")
    assert replayed(archive) == begun.upto == replayed(archive)
    note.write_bytes(b"")
    again = begin_anew(archive)
    assert again is not None
    assert again.upto == begun.upto


def test_a_spool_that_ends_before_what_waited_is_completed_or_told(tmp_path: Path, sent: list[Message]) -> None:
    """A backup has the last segment as it was; its raw copy came later."""
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent[:240], at_once=30, segment_bytes=SMALL)
    first, path = segments(archive / "spool")[1]
    spool = archive / "spool"
    shorter = Spool.open(tmp_path / "shorter")
    shorter.close()
    whole = path.read_bytes()
    _begun(Loop(archive, deployment, batch_bytes=12_000), 240)
    assert not path.exists()
    for _, later in segments(spool):
        later.unlink()
    # Its first frame alone.
    cut = whole.index(whole[:8], 8) if whole[:8] in whole[8:] else len(whole)
    path.write_bytes(whole[:cut])
    (spool / "durable").unlink(missing_ok=True)
    assert durable(spool) < ledger_of(Archive.open(archive), "id").upto
    begun = begin_anew(archive)
    assert begun is not None
    assert path.read_bytes() == whole
    assert "the spool ends before them" in begun.lost, "of the segment that was written to there is no raw copy"
    assert first <= begun.upto < 240


def test_a_stream_that_never_was_begins_as_ever(tmp_path: Path) -> None:
    archive, _ = made(tmp_path)
    (archive / STREAM).mkdir(exist_ok=True)
    (archive / STREAM / RESTART_FILE).write_text("of an archive that was removed")
    assert begin_anew(archive) is None
    assert replayed(archive) == 0


class _Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('it ran')",)


def test_a_state_is_data_and_whole_or_refused(tmp_path: Path, sent: list[Message]) -> None:
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent[:150])
    loop = _begun(Loop(archive, deployment, batch_bytes=12_000), 150)
    (state,) = loop.states.values()
    assembler = Assembler.from_bytes(state)
    held, about, sections = _read_sections(state)
    earlier = held.to_bytes({name: value for name, value in about.items() if name != "sections"}, **sections)
    for before in (earlier, seal(MAGIC, 3, earlier)):
        assert b"".join(Assembler.from_bytes(before).to_chunks()) == b"".join(assembler.to_chunks()), "of 2 and 3, too"
    random = np.random.default_rng(4)
    for place in [*range(len(MAGIC) + 6), *random.integers(0, len(state), 200).tolist()]:
        damaged = bytearray(state)
        damaged[place] ^= 1 << int(random.integers(8))
        with pytest.raises(StateUnusable, match="cannot be used"):
            Assembler.from_bytes(bytes(damaged))
    for other in (b"", state[:-1], pickle.dumps(_Harmful()), b"\xff\xff\xff\xff" + state):
        with pytest.raises(StateUnusable):
            Assembler.from_bytes(other)
