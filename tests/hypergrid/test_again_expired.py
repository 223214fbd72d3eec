"""Results whose snapshot may have expired since: cited by `query -o`, or answered from arrival times."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import DEFAULT_RETENTION, Archive
from hypergrid.archive.disk.retention import maintain
from hypergrid.core.errors import NotFound
from hypergrid.core.readings import Readings
from hypergrid.core.times import parse_instant
from hypergrid.query import OpenArchive, Query
from tests.hypergrid.test_again import command, hourly, written
from tests.support.networks import random_archive

LATER_NS = parse_instant("2007-10-02T00:00")
"""When the second commit is made: after all of the first had arrived."""


def _opened(folder: Path) -> OpenArchive:
    """Return an archive of one commit, made at 12:00 on the day of its readings."""
    return random_archive(folder, 4, now_ns=parse_instant("2007-10-01T12:00"))[0]


def _amend(archive: OpenArchive, change: Callable[[Readings], Readings], *, now_ns: int = LATER_NS) -> None:
    with archive.latest().store.commit(batch=str(now_ns), message="later", now_ns=now_ns) as writer:
        stored = archive.latest().store.read("air_temperature")
        writer.readings(change(replace(stored, arrival_ns=np.full(len(stored), now_ns))))


def _warmer(stored: Readings) -> Readings:
    return replace(stored, value=stored.value + 1.0)


def _two_hours_later(archive: OpenArchive) -> None:
    """Maintain the archive as the next committer would, two hours from now, with nothing shortened."""
    store = archive.store
    done = maintain(
        store.path,
        store.storage,
        store.sums,
        "main",
        now=datetime.now(UTC) + timedelta(hours=2),
        care=DEFAULT_RETENTION,
    )
    assert done.held_by == ()


def _asked(archive: OpenArchive, folder: Path, query: Query | None = None) -> Path:
    file = folder / "query.json"
    document = (query or hourly(archive)).to_json()
    document.pop("snapshot")
    file.write_text(json.dumps(document))
    return file


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_what_the_command_line_writes_is_computed_again_after_its_snapshot_would_have_expired(
    tmp_path: Path, ending: str
) -> None:
    archive = _opened(tmp_path / "archive")
    out = tmp_path / f"out{ending}"
    for _ in range(3):
        status, _, _ = command("query", _asked(archive, tmp_path), "--archive", archive.path, "-o", out)
        assert status == 0
    assert archive.store.cited == (archive.snapshot,)
    assert len(archive.store.storage.open().list_tags()) == 1
    _amend(archive, _warmer)
    _two_hours_later(archive)
    status, text, _ = command("query", "--again", out, "--archive", archive.path)
    assert (status, text) == (0, f"identical\nread: snapshot {archive.snapshot}\n")
    found = json.loads(command("query", "--again", out, "--archive", archive.path, "--json")[1])
    assert (found["read"], found["snapshot"]) == ("snapshot", archive.snapshot)


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_what_nobody_cited_is_answered_as_of_the_commit(tmp_path: Path, ending: str) -> None:
    archive = _opened(tmp_path / "archive")
    result = hourly(archive).compute()
    assert result.attrs["hypergrid_snapshot_time"] == "2007-10-01T12:00Z"
    out = written(result, tmp_path / f"out{ending}")
    _amend(archive, _warmer)
    _two_hours_later(archive)
    with pytest.raises(NotFound, match="older ones expired"):
        Archive.open(archive.path, snapshot=archive.snapshot)
    newest = archive.latest()
    assert not hourly(newest).compute()["value"].equals(result["value"])
    for opened in (archive, newest):
        found = hg.again(out, opened)
        assert found.identical, found.describe()
        assert (found.read, found.as_of) == ("as_of", "2007-10-01T12:00Z")
        lines = found.describe().splitlines()
        assert lines[0] == "identical"
        assert lines[-1].startswith(
            f"read: snapshot {archive.snapshot} expired; computed from snapshot {newest.snapshot} as of "
            "2007-10-01T12:00Z, from arrival times and superseded readings"
        )
        assert "flags, positions of stations and layers are those of today" in lines[-1]
        # That it is another snapshot, and so another token, is no finding of its own.
        assert found.changes == ()


def test_flags_that_changed_since_are_named_beside_the_difference(tmp_path: Path) -> None:
    archive = _opened(tmp_path / "archive")
    out = written(hourly(archive).compute(), tmp_path / "out.nc")
    store = archive.latest().store
    stored = store.read("air_temperature", superseded=False)
    with store.commit(batch="judged", message="flags", now_ns=LATER_NS + 1) as writer:
        writer.flags(replace(stored, flag=np.full(len(stored), 4, np.uint8)))
    _two_hours_later(archive)
    found = hg.again(out, archive)
    assert not found.confirmed
    assert "stored readings were given other flags since" in found.describe()


def test_merged_queries_of_expired_snapshots_are_answered_as_of_each(tmp_path: Path) -> None:
    archive = _opened(tmp_path / "archive")
    first = hourly(archive)
    _amend(archive, _warmer)
    second = archive.latest()
    result = hourly(second).merge("difference", first).compute()
    assert np.nanmax(np.abs(result["value"].to_numpy() - 1.0)) < 1e-9
    _amend(archive, _warmer, now_ns=LATER_NS + 60 * 10**9)
    _two_hours_later(archive)
    found = hg.again(result, archive)
    assert found.identical, found.describe()
    assert found.as_of == "2007-10-01T12:00Z, 2007-10-02T00:00Z"


def test_a_question_that_was_as_of_an_instant_stays_so(tmp_path: Path) -> None:
    archive = _opened(tmp_path / "archive")
    result = hourly(hg.open(archive.path, as_of="2007-10-01T02:30")).compute()
    _amend(archive, _warmer)
    _two_hours_later(archive)
    found = hg.again(result, archive)
    assert found.identical, found.describe()
    assert found.as_of == "2007-10-01T02:30Z"


def test_a_result_without_the_time_of_its_snapshot_says_why_it_cannot_be_computed_again(tmp_path: Path) -> None:
    archive = _opened(tmp_path / "archive")
    result = hourly(archive).compute()
    del result.attrs["hypergrid_snapshot_time"]
    _amend(archive, _warmer)
    _two_hours_later(archive)
    with pytest.raises(NotFound, match=r"does not say when it was committed .* hypergrid_snapshot_time"):
        hg.again(result, archive)


def test_who_may_not_write_is_told_and_answered_as_of_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = _opened(tmp_path / "archive")
    out = tmp_path / "out.nc"

    def refuse(*_: Any, **__: Any) -> None:  # noqa: ANN401
        message = "read-only file system"
        raise PermissionError(message)

    with monkeypatch.context() as patch:
        patch.setattr(Archive, "cite", refuse)
        status, text, told = command("query", _asked(archive, tmp_path), "--archive", archive.path, "-o", out, "--json")
    assert status == 0
    assert json.loads(text)["cited"] is False
    assert "cannot be cited: read-only file system" in told
    assert "--again" in told
    _amend(archive, _warmer)
    _two_hours_later(archive)
    status, text, _ = command("query", "--again", out, "--archive", archive.path)
    assert status == 0
    assert text.startswith("identical\n")
    assert "as of 2007-10-01T12:00Z" in text


def test_formats_that_name_no_snapshot_cite_none(tmp_path: Path) -> None:
    archive = _opened(tmp_path / "archive")
    assert command("query", _asked(archive, tmp_path), "--archive", archive.path, "-o", tmp_path / "out.csv")[0] == 0
    assert archive.store.cited == ()


def test_snapshots_that_results_cite_are_bounded_and_those_cited_by_hand_are_not(tmp_path: Path) -> None:
    archive = _opened(tmp_path / "archive")
    care = replace(DEFAULT_RETENTION, results=3)
    snapshots = []
    for number in range(6):
        _amend(archive, _warmer, now_ns=LATER_NS + number)
        one = Archive.open(archive.path, care=care)
        snapshots.append(one.snapshot)
        if number < 2:
            one.cite()
        one.cite(for_result=True)
        one.cite(for_result=True)
    opened = Archive.open(archive.path)
    # Two by hand, which a result need not cite once more, and the newest three of four by results.
    assert set(opened.cited) == {*snapshots[:2], *snapshots[-3:]}
    assert len(opened.storage.open().list_tags()) == 5
    _, text, _ = command("snapshots", archive.path, "--json")
    by = {row["snapshot"]: (row["cited"], row["by"]) for row in json.loads(text)}
    assert [by[one] for one in snapshots[:3]] == [(True, "hand"), (True, "hand"), (False, "")]
    assert [by[one] for one in snapshots[3:]] == [(True, "result")] * 3
    opened.release(snapshots[-1])
    assert snapshots[-1] not in opened.cited


def test_python_users_keep_a_snapshot_by_citing_it(tmp_path: Path) -> None:
    archive = _opened(tmp_path / "archive")
    out = tmp_path / "plain.nc"
    hourly(archive).compute().to_netcdf(out)
    archive.cite()
    _amend(archive, _warmer)
    _two_hours_later(archive)
    found = hg.again(out, archive.latest())
    assert (found.identical, found.read) == (True, "snapshot")
