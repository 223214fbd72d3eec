"""A watched folder against the files themselves: every whole line is in the spool once, whatever happened meanwhile."""

import gzip
import json
import os
import random
import zipfile
from pathlib import Path

import pytest

from ingest.deployment.deployment_file import Deployment, from_mapping
from ingest.sources import folder_watcher as module
from ingest.sources.folder_watcher import FORGET_S, SETTLE_S, TailStates, WatchedFolder
from ingest.sources.spool import HEADER, MESSAGE, REFUSED, STATE, Spool, SpoolRecord, durable, frames

COLUMNS = {"wind_speed": "wind_speed"}
FEEDS = (
    {"name": "text", "files": "*.csv", "format": "csv", "columns": COLUMNS},
    {"name": "raw", "files": "*.txt", "format": "sensorscope"},
    {"name": "json", "files": "*.json*", "format": "messages"},
    {"name": "grid", "files": "*.nc", "format": "netcdf"},
)
CSV = b"station,time,wind_speed\r\n" + b"".join(b"7,2007-10-01T00:%02d:00Z,%d\r\n" % (n, n) for n in range(12))
RAW = b"".join(b"7 2007 10 01 00 %02d 00 %d 1 1 1 1 1 1 1 1 1\n" % (n, 1191196800 + 60 * n) for n in range(12))
JSON = b"".join(b'{"station": "7", "time": %d, "wind_speed": %d}\n' % (1191196800 + n, n) for n in range(12))


def deployment(*feeds: dict[str, object]) -> Deployment:
    return from_mapping({"network": {"name": "n"}, "feed": list(feeds or FEEDS)})


class Watching:
    """A folder that is watched by a receiver with a clock of its own."""

    def __init__(self, root: Path, *, segment_bytes: int = 1 << 20) -> None:
        self.root, self.data, self.told = root, root / "data", list[str]()
        self.data.mkdir(exist_ok=True)
        self.now_s, self._segment_bytes = 100.0, segment_bytes
        self.start()

    def start(self, *feeds: dict[str, object]) -> None:
        self.files = files = TailStates()
        self.watched = WatchedFolder(self.data, deployment(*feeds), files, notify=self.told.append)
        folder = self.root / "spool"
        for batch in frames(folder, 0, durable(folder)):
            for record in SpoolRecord.from_batch(batch):
                if record.kind == STATE:
                    files.restore(json.loads(record.payload))
                elif record.kind in (MESSAGE, HEADER, REFUSED):
                    files.replay(record)
        state = lambda: json.dumps(files.state()).encode()  # noqa: E731
        self.spool = Spool.open(folder, state=state, segment_bytes=self._segment_bytes)

    def kill(self) -> None:
        """Begin anew with what is on the disk."""
        os.close(self.spool._lock_file)
        self.start()

    def poll(self, *, pass_s: float = 1.0, final: bool = False) -> int:
        self.now_s += pass_s
        while (polled := self.watched.poll(self.spool, self.now_s, final=final)).records and final:
            self.spool.flush()
        self.spool.flush()
        return polled.waiting

    def settle(self) -> None:
        self.poll()
        assert self.poll(pass_s=SETTLE_S) == 0

    def records(self, name: str) -> list[tuple[int, int, bytes]]:
        folder = self.root / "spool"
        return [
            (row["kind"], row["place"], row["payload"])
            for batch in frames(folder, 0, durable(folder))
            for row in batch.to_pylist()
            if row["origin"] == name
        ]

    def text(self, name: str) -> bytes:
        """Give what was taken of a file, checked as it is put together."""
        found, whole, above = self.records(name), b"", b""
        for kind, place, payload in found:
            if kind == HEADER:
                above = payload
                continue
            assert kind == MESSAGE
            if not whole:
                whole = above
            assert (above or not whole) == whole[: len(above)] or whole.startswith(above)
            assert place == whole.count(b"\n") + 1
            whole, above = whole + payload, b""
        return whole


@pytest.mark.parametrize(("name", "content"), [("a.csv", CSV), ("a.txt", RAW), ("a.jsonl", JSON)])
@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_grows_is_followed_from_every_byte(
    tmp_path: Path, name: str, content: bytes, *, restart: bool
) -> None:
    content = b"".join(content.splitlines(keepends=True)[:4])
    for cut in range(0, len(content), 1 if name == "a.csv" else 5):
        root = tmp_path / str(cut)
        root.mkdir()
        here = Watching(root)
        path = here.data / name
        path.write_bytes(content[:cut])
        here.poll()
        whole = content[: content[:cut].rfind(b"\n") + 1]
        assert whole.startswith(here.text(name))
        here.settle()
        assert here.text(name) in (whole, b"") if whole.count(b"\n") < 2 else here.text(name) == whole
        if restart:
            here.kill()
        with path.open("ab") as stream:
            stream.write(content[cut:])
        here.settle()
        assert here.text(name) == content, cut
        here.spool.close()
        assert here.told == []


def test_files_that_grow_by_turns_through_restarts_and_segments(tmp_path: Path) -> None:
    dice = random.Random(5)
    here = Watching(tmp_path, segment_bytes=600)
    contents = {
        f"{folder}{n}.{kind}": content
        for n in range(2)
        for folder in ("", "deep/er/")
        for kind, content in (("csv", CSV), ("txt", RAW), ("jsonl", JSON))
    }
    (here.data / "deep/er").mkdir(parents=True)
    written = dict.fromkeys(contents, 0)
    while any(written[name] < len(content) for name, content in contents.items()):
        for name in dice.sample(sorted(contents), 3):
            size = dice.randrange(90)
            with (here.data / name).open("ab") as stream:
                stream.write(contents[name][written[name] : written[name] + size])
            written[name] = min(written[name] + size, len(contents[name]))
        here.poll(pass_s=dice.choice((1.0, 1.0, 7.0)))
        if dice.random() < 0.2:
            here.kill()
    here.settle()
    assert {name: here.text(name) for name in contents} == contents
    assert here.told == []


def test_a_kill_between_taking_and_the_disk_takes_again(tmp_path: Path) -> None:
    here = Watching(tmp_path)
    (here.data / "a.txt").write_bytes(RAW[:200])
    here.poll()
    (here.data / "a.txt").write_bytes(RAW)
    on_disk = here.spool.durable
    assert here.watched.poll(here.spool, here.now_s + 1).records == 1
    assert here.spool.durable == on_disk, "taken, and not on the disk yet"
    here.kill()
    here.settle()
    assert here.text("a.txt") == RAW


def test_the_last_line_needs_no_end_once_nothing_comes_any_more(tmp_path: Path) -> None:
    here = Watching(tmp_path)
    contents = {"a.csv": CSV, "one.csv": CSV[:50], "a.txt": RAW, "one.txt": RAW[:52], "a.jsonl": JSON}
    for name, content in contents.items():
        (here.data / name).write_bytes(content.rstrip())
    here.settle()
    assert here.text("a.txt") == RAW[: RAW.rstrip().rfind(b"\n") + 1]
    here.poll(final=True)
    assert {name: here.text(name) for name in contents} == {name: text.rstrip() for name, text in contents.items()}
    here.poll(final=True)
    here.kill()
    here.poll(final=True)
    assert here.text("one.csv") == CSV[:50].rstrip()
    (here.data / "a.txt").write_bytes(RAW)
    here.settle()
    # The line is given again, as a whole: it might have been cut anywhere.
    last = RAW[RAW.rstrip().rfind(b"\n") + 1 :]
    assert here.records("a.txt")[-2:] == [(MESSAGE, 12, last.rstrip()), (MESSAGE, 12, last)]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_is_replaced_or_cut_is_told_and_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restart: bool, large: bool
) -> None:
    monkeypatch.setattr(module, "CHECKED_BYTES", 10 if large else 1 << 20)
    other = CSV.replace(b"wind_speed", b"wind_speed,more").replace(b",1\r", b",1,\r")

    def change(path: Path, content: bytes) -> None:
        path.write_bytes(content)

    def renamed(path: Path, content: bytes) -> None:
        (path.parent / "new").write_bytes(content)
        (path.parent / "new").replace(path)

    lines = CSV.splitlines(keepends=True)
    shorter = b"".join(lines[:6])
    changed = CSV.replace(b"00:01:00", b"00:01:30")
    for number, (content, how) in enumerate(
        [(shorter, change), (other, change), (changed, change), (changed + lines[-1], renamed), (shorter, renamed)]
    ):
        root = tmp_path / str(number)
        root.mkdir()
        here = Watching(root)
        path = here.data / "a.csv"
        path.write_bytes(CSV)
        here.settle()
        before = len(here.records("a.csv"))
        if restart:
            here.kill()
        how(path, content)
        os.utime(path, ns=(number, number))
        here.settle()
        new = here.records("a.csv")[before:]
        header = content[: content.find(b"\n") + 1]
        assert new == [(HEADER, 0, header), (MESSAGE, 2, content[len(header) :])]
        assert len(here.told) == 1
        assert "a.csv was replaced: it " in here.told[0]


def test_the_same_content_at_another_time_is_no_news(tmp_path: Path) -> None:
    here = Watching(tmp_path)
    path = here.data / "a.csv"
    path.write_bytes(CSV)
    here.settle()
    for restart in (False, True):
        if restart:
            here.kill()
        (here.data / "copy").write_bytes(CSV)
        (here.data / "copy").replace(path)
        here.settle()
        assert here.text("a.csv") == CSV
    assert here.told == []


def test_what_cannot_be_followed_is_taken_as_a_whole_once_it_is_complete(tmp_path: Path) -> None:
    here = Watching(tmp_path)
    document = json.dumps(
        [{"station": "7", "time": 1191196800 + n, "wind_speed": n} for n in range(5)], indent=1
    ).encode()
    with zipfile.ZipFile(here.data / "b.zip", "w") as packed:
        packed.writestr("x/one.txt", RAW)
    with zipfile.ZipFile(here.data / "other.zip", "w") as packed:
        packed.writestr("readme", b"nothing for us")
    contents = {
        "a.csv.gz": gzip.compress(CSV),
        "wide.csv": CSV.decode().encode("utf-16"),
        "a.json": document,
        "a.nc": b"\x89HDF\r\n\x1a\n and so on",
        "b.zip": (here.data / "b.zip").read_bytes(),
    }
    for name, content in contents.items():
        (here.data / name).write_bytes(content[: len(content) // 2])
    here.poll()
    assert here.poll(pass_s=SETTLE_S - 1) > 0
    for name, content in contents.items():
        (here.data / name).write_bytes(content)
    here.settle()
    for name, content in contents.items():
        assert here.records(name) == [(MESSAGE, 0, content)], name
    assert here.records("other.zip") == []
    here.kill()
    here.settle()
    assert [len(here.records(name)) for name in contents] == [1] * 5
    (here.data / "a.json").write_bytes(document + b"\n")
    here.settle()
    assert here.records("a.json")[1:] == [(MESSAGE, 0, document + b"\n")]
    assert len(here.told) == 1


def test_feeds_of_what_is_packed(tmp_path: Path) -> None:
    here = Watching(tmp_path)
    with zipfile.ZipFile(here.data / "b.zip", "w") as packed:
        packed.writestr("x/one.txt", RAW)
    here.settle()
    (batch,) = frames(tmp_path / "spool", 0, here.spool.durable)
    assert batch.column("feed").to_pylist() == ["raw"]


def test_what_cannot_be_taken_is_refused_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WHOLE_MOST_BYTES", 100)
    monkeypatch.setattr(module, "LINE_MOST_BYTES", 2000)
    monkeypatch.setattr(module, "BLOCK_BYTES", 2000)
    here = Watching(tmp_path)
    contents = {"a.nc": b"x" * 101, "binary.csv": b"a\0b\n" * 20, "endless.txt": RAW + b"x" * 3000}
    for name, content in contents.items():
        (here.data / name).write_bytes(content)
    for _ in range(2):
        here.settle()
        here.kill()
    here.settle()
    reasons = {name: [payload for kind, _, payload in here.records(name) if kind == REFUSED] for name in contents}
    assert reasons["a.nc"] == [
        b"too large: 101 bytes in a file that has to be taken as a whole, of at most 100; 'hypergrid ingest' reads it"
        b"\n101 bytes"
    ]
    assert reasons["binary.csv"] == [b"binary: a NUL byte at byte 1\n80 bytes"]
    (reason,) = reasons["endless.txt"]
    assert reason.startswith(b"binary: no end of line within 2000 bytes from byte ")
    assert b"".join(payload for kind, _, payload in here.records("endless.txt") if kind == MESSAGE) == RAW
    (here.data / "binary.csv").write_bytes(CSV)
    here.settle()
    assert here.records("binary.csv")[1:] == [(HEADER, 0, CSV[:25]), (MESSAGE, 2, CSV[25:])]


def test_much_is_taken_by_and_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_BYTES", 1000)
    monkeypatch.setattr(module, "BLOCK_BYTES", 300)
    here = Watching(tmp_path)
    for n in range(3):
        (here.data / f"{n}.csv").write_bytes(CSV * 1)
        (here.data / f"{n}.txt").write_bytes(RAW * 10)
    polls = 0
    while here.poll(pass_s=SETTLE_S):
        polls += 1
        assert polls < 100
    assert polls > 5
    for n in range(3):
        assert here.text(f"{n}.csv") == CSV
        assert here.text(f"{n}.txt") == RAW * 10


def test_files_of_no_feed_and_what_goes_with_the_data_are_left(tmp_path: Path) -> None:
    here = Watching(tmp_path)
    for name in ("deployment.toml", "stations.csv", "notes.md", ".hidden.csv", "empty.csv"):
        (here.data / name).write_bytes(b"" if name == "empty.csv" else CSV)
    here.settle()
    assert here.spool.durable == 0


def test_a_folder_that_is_away_is_waited_for(tmp_path: Path) -> None:
    here = Watching(tmp_path)
    (here.data / "a.txt").write_bytes(RAW)
    here.settle()
    here.data.rename(tmp_path / "away")
    assert here.poll() == here.poll() == 1
    (tmp_path / "away").rename(here.data)
    here.settle()
    assert here.text("a.txt") == RAW
    assert [text.split(" is ")[1] for text in here.told] == ["not there; we wait for it", "there again"]


def test_a_name_that_is_no_text_is_shown_and_its_file_is_read(tmp_path: Path) -> None:
    here = Watching(tmp_path)
    (here.data / "a.txt").write_bytes(RAW)
    (here.data / os.fsdecode(b"b\xff.txt")).write_bytes(RAW)
    here.settle()
    assert here.text("a.txt") == here.text("b\\xff.txt") == RAW
    here.kill()
    here.settle()
    assert here.text("b\\xff.txt") == RAW


@pytest.mark.parametrize("restart", [False, True])
def test_files_that_are_gone_for_long_are_forgotten(tmp_path: Path, *, restart: bool) -> None:
    here = Watching(tmp_path)
    clock = [10**18]

    def look(pass_s: float) -> None:
        clock[0] += round(pass_s * 1e9)
        if restart:
            here.spool.append([SpoolRecord(1, payload=json.dumps(here.files.state()).encode(), kind=STATE)])
            here.spool.flush()
            here.kill()
        here.watched._now_ns = lambda: clock[0]
        here.poll()

    for name in ("a.txt", "b.txt", "c.txt"):
        (here.data / name).write_bytes(RAW)
    look(0)
    (here.data / "a.txt").rename(tmp_path / "a.txt")
    (here.data / "b.txt").rename(tmp_path / "b.txt")
    look(1)
    look(FORGET_S - 1)
    assert sorted(here.files.known) == ["a.txt", "b.txt", "c.txt"]
    # It comes back, from a drive that was away, and is not read again.
    (tmp_path / "b.txt").rename(here.data / "b.txt")
    look(2)
    assert sorted(here.files.known) == ["b.txt", "c.txt"]
    (here.data / "b.txt").rename(tmp_path / "b.txt")
    look(FORGET_S + 1)
    assert sorted(here.files.known) == ["b.txt", "c.txt"]
    look(FORGET_S + 1)
    assert sorted(here.files.known) == sorted(here.watched._seen) == sorted(here.watched._feeds) == ["c.txt"]
    assert [here.text(name) for name in ("a.txt", "b.txt", "c.txt")] == [RAW] * 3


def test_feeds_may_be_added_and_what_was_refused_is_tried_again(tmp_path: Path) -> None:
    here = Watching(tmp_path)
    (here.data / "a.log").write_bytes(RAW)
    (here.data / "b.csv").write_bytes(b"x\0y\n" * 50)
    here.settle()
    assert here.text("a.log") == b""
    for _ in range(2):
        # As a receiver does when it ends.
        here.spool.append([SpoolRecord(0, kind=STATE, payload=json.dumps(here.files.state()).encode())])
        here.spool.close()
        here.start(
            *FEEDS[1:], {**FEEDS[0], "delimiter": ","}, {"name": "logs", "files": "*.log", "format": "sensorscope"}
        )
        here.settle()
        assert here.text("a.log") == RAW
        assert [kind for kind, _, _ in here.records("b.csv")] == [REFUSED, REFUSED]
