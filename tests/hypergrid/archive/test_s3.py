"""An archive whose values lie in an S3-compatible store is that of a folder, and says what keeps it from being one."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive, Branch, BranchResult, Reject, RetentionPolicy, S3Store, StoreError
from hypergrid.archive.disk.folder import MARKER
from hypergrid.core.errors import InvalidDeployment, NotAnArchive, NotFound, StoreUnavailable
from hypergrid.core.readings import Position, Readings, Station
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from tests.s3_server import PASSWORD, S3Server
from tests.support.archive_counts import count_content

Build = Callable[..., Readings]
AIR = "air_temperature"
SLICE = 120 * 10**9
AT_ONCE = RetentionPolicy(keep_s=0.0, every=10, max_snapshots=5, least_s=0.0)
COMMITTER = Path(__file__).with_name("committer.py")


def create(folder: Path, store: S3Store | None, variables: tuple[Variable, ...] = (KNOWN_VARIABLES[AIR],)) -> Archive:
    return Archive.create(folder, name="pass", slice_s=120, variables=variables, now_ns=7, store=store)


@pytest.fixture
def archive(s3: S3Server, tmp_path: Path) -> Archive:
    return create(tmp_path / "archive", s3.place())


def commit(archive: Archive, number: int, readings: Build) -> Archive:
    """Commit twenty slices of twelve stations, some readings beside their cell, and the last of them replaced later."""
    random = np.random.default_rng(number)
    rows = [(f"s{n}", (19 * number + k) * SLICE, float(random.normal())) for n in range(12) for k in range(20)]
    rows += [(f"s{n}", 19 * number * SLICE + 60 * 10**9, float(n)) for n in range(3)]
    with archive.commit(batch=str(number), message=f"number {number}", now_ns=number) as writer:
        writer.stations([Station("s1", "one", (Position(None, 7.0, 45.0 + number, 2400.0),))])
        writer.readings(readings(rows))
        writer.rejects([Reject("file", number, "", "text", "reason")])
    return archive.latest()


def all_of(archive: Archive) -> dict[str, object]:
    """Return all that an archive holds, as plain values."""
    told: dict[str, object] = {"counts": count_content(archive), "stations": repr(archive.stations)}
    told |= {"rejects": archive.rejects(), "quality": dict(archive.quality)}
    told["snapshots"] = [
        (one.time_ns, one.message, json.dumps(dict(one.metadata), sort_keys=True)) for one in archive.snapshots
    ]
    for name in archive.variables:
        for superseded in (False, True):
            found = archive.read(name, superseded=superseded, tests=True)
            columns = (found.index, found.time_ns, found.value, found.flag, found.arrival_ns, found.tests)
            told[f"{name} {superseded}"] = [np.asarray(column).tobytes() for column in columns]
    return told


def test_it_is_the_archive_of_a_folder(archive: Archive, tmp_path: Path, readings: Build, s3: S3Server) -> None:
    here, there = create(tmp_path / "here", None), archive
    for number in range(4):
        here, there = commit(here, number, readings), commit(there, number, readings)
    assert all_of(Archive.open(there.path)) == all_of(Archive.open(here.path))
    assert len(there.read(AIR, superseded=True)) > 0
    # All that is no value is in the folder, and nothing of who may read them.
    assert sorted(os.listdir(there.path)) == [MARKER, "lock"]
    assert there.store is not None
    told = json.loads((there.path / MARKER).read_text())
    assert told["store"]["endpoint"] == s3.endpoint
    assert PASSWORD not in (there.path / MARKER).read_text()
    assert len(s3.objects(there.store)) > 4
    assert "store" not in json.loads((here.path / MARKER).read_text())
    there.settle()


def test_two_archives_in_one_place_are_apart(s3: S3Server, tmp_path: Path, readings: Build) -> None:
    place = s3.place()
    one, two = create(tmp_path / "one", place), create(tmp_path / "two", place)
    one = commit(one, 0, readings)
    assert (len(one.read(AIR)), len(two.latest().read(AIR))) == (243, 0)
    assert one.store is not None
    assert place.holds(one.store)
    assert not place.holds(place)


def test_no_commit_of_two_processes_is_lost(s3: S3Server, tmp_path: Path) -> None:
    create(tmp_path / "archive", s3.place(), (Variable("v"),))
    running = [
        subprocess.Popen([sys.executable, str(COMMITTER), str(tmp_path / "archive"), f"s{n}", "0", "6", "40"],
                         stdout=subprocess.DEVNULL)
        for n in range(2)
    ]  # fmt: skip
    assert [process.wait() for process in running] == [0, 0]
    archive = Archive.open(tmp_path / "archive")
    found = archive.read("v")
    assert len(archive.snapshots) == 13
    for number in range(2):
        value = found.take_rows(found.index == number).value
        np.testing.assert_array_equal(value, np.repeat(np.arange(6), 40))


def test_a_branch_comes_to_main_through_other_processes(archive: Archive, tmp_path: Path, readings: Build) -> None:
    newest = commit(archive, 0, readings)
    branch = Branch.begin(newest, "again")
    branch.prepare([AIR], now_ns=1)
    judged = branch.base.read(AIR, tests=True)
    judged = replace(judged, flag=np.full(len(judged), 3, np.uint8))
    (tmp_path / "fork").write_bytes(pickle.dumps((branch.fork(), judged)))
    script = (
        "import pickle, sys\n"
        "fork, judged = pickle.load(open(sys.argv[1], 'rb'))\n"
        "pickle.dump(fork.flags(judged), open(sys.argv[2], 'wb'))\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "fork"), str(tmp_path / "written")], check=True)
    branch.commit([pickle.loads((tmp_path / "written").read_bytes())], [{"part": 0}], message="", now_ns=2)
    window = newest.extent(AIR)
    assert window is not None
    result = BranchResult("again", "", {"tests": 1}, [(AIR, window)], {AIR: [AIR]})
    assert branch.publish(result, lambda *_: None, now_ns=3) is not None
    Branch.remove(newest, "again")
    assert set(newest.latest().read(AIR).flag.tolist()) == {3}
    assert Branch.names(newest) == ()


def test_maintenance_bounds_the_objects(archive: Archive, readings: Build, s3: S3Server) -> None:
    assert archive.store is not None
    keeper, counts = Archive.open(archive.path, care=AT_ONCE), []
    for number in range(24):
        keeper = commit(keeper, number, readings)
        counts.append(len(s3.objects(archive.store)))
    # Ten commits between, which leave some 22 objects each: 24 of them would leave more than 500.
    assert max(counts) < 300
    assert len(keeper.latest().snapshots) <= 16
    assert len(Archive.open(archive.path).read(AIR)) == 24 * 19 * 12 + 12 + 24 * 3
    assert list(Archive.open(archive.path).check()) == []
    done = keeper.maintain(AT_ONCE)
    assert done.snapshots_left == len(s3.objects(archive.store, "snapshots"))


def test_what_is_cited_stays(archive: Archive, readings: Build) -> None:
    one = commit(archive, 0, readings)
    two = commit(one, 1, readings)
    one.cite()
    assert two.maintain(AT_ONCE).snapshots_expired > 0
    assert len(Archive.open(archive.path, snapshot=one.snapshot).read(AIR)) == 243
    two.release(one.snapshot)
    two.maintain(AT_ONCE)
    with pytest.raises(NotFound, match="older ones expired"):
        Archive.open(archive.path, snapshot=one.snapshot)


def test_check_finds_an_object_that_is_gone(archive: Archive, readings: Build, s3: S3Server) -> None:
    newest = commit(archive, 0, readings)
    assert list(newest.check(grace_s=0)) == []
    assert archive.store is not None
    s3.remove(s3.objects(archive.store, "chunks"))
    (first, *_) = Archive.open(archive.path).check()
    assert first.kind == "unreadable"
    with pytest.raises(NotAnArchive, match="is a damaged archive: s3://networks/.*'hypergrid check .*' names"):
        Archive.open(archive.path).read(AIR)


def test_objects_of_a_commit_that_died_are_told_and_removed(archive: Archive, readings: Build) -> None:
    newest = commit(archive, 0, readings)

    def die() -> None:
        with newest.commit(batch="dies", message="", now_ns=9) as writer:
            writer.readings(readings([("new", k * SLICE, float(k)) for k in range(900)]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        die()
    (defect,) = newest.check(grace_s=0)
    assert (defect.kind, defect.where) == ("orphan", newest.storage.where)
    assert newest.maintain(AT_ONCE).objects_removed > 0
    assert list(newest.check(grace_s=0)) == []


def test_who_discards_it_removes_its_objects_and_no_others(s3: S3Server, tmp_path: Path, readings: Build) -> None:
    place = s3.place()
    vacant, used = create(tmp_path / "vacant", place), create(tmp_path / "used", place)
    used = commit(used, 0, readings)
    assert vacant.store is not None
    assert s3.objects(vacant.store)
    assert vacant.discard()
    assert s3.objects(vacant.store) == []
    assert os.listdir(tmp_path) == ["used"]
    assert len(Archive.open(used.path).read(AIR)) == 243


KILLED = """
import os, signal, sys
from hypergrid.archive import Archive, S3Store; from hypergrid.archive.disk import folder
folder.os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Archive.create(sys.argv[1], name="p", slice_s=1, variables=[], now_ns=0, store=S3Store(*sys.argv[2:]))
"""


def test_what_a_killed_creation_left_goes_with_the_next(s3: S3Server, tmp_path: Path) -> None:
    place, target = s3.place(), tmp_path / "archive"
    words = [sys.executable, "-c", KILLED, str(target), place.bucket, place.prefix, s3.endpoint]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    left = set(s3.objects(place))
    assert left
    assert not target.exists()
    create(target, place)
    assert os.listdir(tmp_path) == ["archive"]
    assert not left & set(s3.objects(place))


def test_a_folder_moves_there_by_copying_its_objects(s3: S3Server, tmp_path: Path, readings: Build) -> None:
    here = commit(create(tmp_path / "here", None), 0, readings)
    expected = all_of(here)
    s3.take(here.path)
    assert sorted(os.listdir(here.path)) == ["checksums", MARKER, "lock", "spares"]
    assert all_of(Archive.open(here.path)) == expected
    assert len(commit(Archive.open(here.path), 1, readings).read(AIR)) > 243


def _nobody(patch: pytest.MonkeyPatch, s3: S3Server) -> S3Store:
    for key in s3.credentials:
        patch.delenv(key)
    # The machine's role is asked of an address that tests must not reach for.
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return s3.place()


def _stranger(patch: pytest.MonkeyPatch, s3: S3Server) -> S3Store:
    patch.setenv("AWS_ACCESS_KEY_ID", "stranger")
    return s3.place()


def _wrong(patch: pytest.MonkeyPatch, s3: S3Server) -> S3Store:
    patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    return s3.place()


def _no_bucket(_: pytest.MonkeyPatch, s3: S3Server) -> S3Store:
    return S3Store("nowhere", "x", s3.endpoint)


def _no_server(_: pytest.MonkeyPatch, s3: S3Server) -> S3Store:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return S3Store("networks", "x", f"http://127.0.0.1:{free.getsockname()[1]}")


TROUBLES = (
    (_nobody, "refuses, for AWS_ACCESS_KEY_ID is not set"),
    (_stranger, "refuses the credentials of the environment; mend AWS_ACCESS_KEY_ID"),
    (_wrong, "refuses the credentials of the environment"),
    (_no_bucket, "has no such bucket; make it"),
    (_no_server, "does not answer; start it, or mend the endpoint"),
)


@pytest.mark.parametrize(("trouble", "said"), TROUBLES)
def test_what_keeps_it_from_being_made_is_told(
    trouble: Callable[[pytest.MonkeyPatch, S3Server], S3Store],
    said: str,
    s3: S3Server,
    tmp_path: Path,
    readings: Build,
) -> None:
    begun = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        place = trouble(patch, s3)
        with pytest.raises(StoreUnavailable, match=f"needed at s3://.*; http://127.0.0.1:.* {said}") as told:
            create(tmp_path / "archive", place)
    assert time.monotonic() - begun < 30
    assert "\n" not in str(told.value)
    assert PASSWORD not in str(told.value)
    # Nothing is left that stops the next attempt.
    assert os.listdir(tmp_path) == []
    assert len(commit(create(tmp_path / "archive", s3.place()), 0, readings).read(AIR)) == 243


@pytest.mark.parametrize(("trouble", "said"), TROUBLES[:3])
def test_what_keeps_it_from_being_opened_is_told(
    trouble: Callable[[pytest.MonkeyPatch, S3Server], S3Store], said: str, s3: S3Server, archive: Archive
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        trouble(patch, s3)
        with pytest.raises(StoreUnavailable, match=said):
            Archive.open(archive.path)
    assert Archive.open(archive.path).snapshot == archive.snapshot


def test_a_server_that_takes_requests_and_says_nothing_is_told_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Server
) -> None:
    monkeypatch.setattr("hypergrid.archive.disk.storage._ANSWER_S", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(20)
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match="does not answer"):
            create(tmp_path / "archive", S3Store("networks", "x", f"http://127.0.0.1:{silent.getsockname()[1]}"))
        assert time.monotonic() - begun < 30


def test_a_server_that_removes_nothing_is_refused(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As one does that wants a checksum with the request which is no longer sent.
    monkeypatch.setattr("icechunk.Repository.delete_branch", lambda *_: None)
    with pytest.raises(StoreUnavailable, match="does not remove objects as it is asked to now; take a newer version"):
        create(tmp_path / "archive", s3.place())
    assert os.listdir(tmp_path) == []


class Unconditional(BaseHTTPRequestHandler):
    """An empty bucket that refuses conditional writes."""

    def do_HEAD(self) -> None:
        self._answer(200 if self.path.rstrip("/") == "/networks" else 404, b"")

    def do_GET(self) -> None:
        if "list-type" in self.path:
            self._answer(
                200, b"<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
            )
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.headers["If-Match"] or self.headers["If-None-Match"]:
            self._answer(501, b"<Error><Code>NotImplemented</Code><Message>no conditions</Message></Error>")
        else:
            self._answer(200, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_that_refuses_conditional_writes_needs_none(s3: S3Server, tmp_path: Path, readings: Build) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Unconditional)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        place = S3Store("networks", "x", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(StoreUnavailable, match="does not know conditional writes; set `conditional` to false"):
            create(tmp_path / "archive", place)
        # Told so, it sends none, and comes further: to what this server has forgotten.
        with pytest.raises(StoreError) as told:
            create(tmp_path / "archive", replace(place, conditional=False))
        assert "NotImplemented" not in str(told.value)
    finally:
        server.shutdown()
        server.server_close()
    archive = commit(create(tmp_path / "archive", replace(s3.place(), conditional=False)), 0, readings)
    assert len(Archive.open(archive.path).read(AIR)) == 243


def test_a_server_that_goes_away_and_comes_back_has_lost_nothing(
    tmp_path: Path, readings: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = S3Server(tmp_path / "server").start()
    try:
        for key, value in server.credentials.items():
            monkeypatch.setenv(key, value)
        one = commit(create(tmp_path / "archive", server.place()), 0, readings)
        server.stop()
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable, match="does not answer"):
            Archive.open(one.path)
        assert time.monotonic() - begun < 20
        # Icechunk tries ten times, for half a minute or so.
        with pytest.raises(StoreUnavailable, match="does not answer"):
            commit(one, 1, readings)
        assert time.monotonic() - begun < 120
        server.start()
        two = commit(one, 1, readings)
        assert [snapshot.message for snapshot in two.snapshots] == ["number 1", "number 0", "created"]
        assert list(two.check()) == []
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bucket": "Networks"}, "bucket needs 3 to 63 of a-z"),
        ({"bucket": "networks", "prefix": "a/../b"}, "prefix needs letters"),
        ({"bucket": "networks", "prefix": "/a"}, "prefix needs letters"),
        ({"bucket": "networks", "endpoint": "127.0.0.1:9000"}, "endpoint needs http://HOST:PORT"),
        ({"bucket": "networks", "endpoint": "http://host/path"}, "endpoint needs http://HOST:PORT"),
        ({"bucket": "networks", "endpoint": "http://host:port"}, "endpoint needs http://HOST:PORT"),
        ({"bucket": "networks", "endpoint": "http://me:secret@host"}, "nothing of a user or a password"),
    ],
)
def test_what_cannot_be_a_store_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidDeployment, match=said):
        S3Store(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"bucket": "networks"}, "lacks the prefix"),
        ({"bucket": "networks", "prefix": "x", "secret": "y"}, "'store' in hypergrid.json cannot be used"),
        ({"bucket": 7, "prefix": "x"}, "'store' in hypergrid.json cannot be used"),
        ("s3://networks/x", "'store' in hypergrid.json cannot be used"),
    ],
)
def test_a_marker_that_names_no_store_is_refused(tmp_path: Path, told: object, said: str) -> None:
    archive = create(tmp_path / "archive", None)
    content = json.loads((archive.path / MARKER).read_text())
    del content["checksum"]
    (archive.path / MARKER).write_text(json.dumps({**content, "store": told}))
    with pytest.raises(NotAnArchive, match=said):
        Archive.open(archive.path)


def test_places_are_written_as_people_write_them() -> None:
    assert S3Store.from_url("s3://networks/alps/pass/") == S3Store("networks", "alps/pass")
    assert S3Store.from_url("s3://networks").url == "s3://networks"
    assert S3Store.from_url("s3://networks/a", endpoint="http://h:9000/").endpoint == "http://h:9000"
    assert S3Store("networks", "a").with_prefix("b").url == "s3://networks/a/b"
    assert S3Store("networks").with_prefix("b").prefix == "b"
    assert S3Store("networks").holds(S3Store("networks").with_prefix("b"))
    assert not S3Store("networks", "a").holds(S3Store("networks", "ab"))
