"""Imports: what is proposed is ingested as by the command line; runs that are killed, corrected and repeated."""

import fcntl
import json
import os
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.archive.disk.lock import is_free, try_lock
from hypergrid.core.errors import ArchiveConflict, InvalidDeployment, NotFound
from hypergrid.core.importing import ImportBusy, ImportLimits, ImportTooLarge, ImportUnreadable
from hypergrid.core.times import parse_instant
from hypergrid.core.units import Variable
from ingest.batch.dry_run import dry_run
from ingest.deployment.deployment_file import load
from ingest.deployment.toml_text import write_toml
from ingest.importing import importer as importer_module
from ingest.importing.folder import FOLDER, ImportFolder
from ingest.importing.importer import FolderImporter
from ingest.importing.job import ImportStopped, JobLimits, hide_paths, limit_resources
from ingest.importing.proposal_document import describe_dry_run
from ingest.job import ingest
from tests.ingest.test_dirty_files import DIRTY, Dirty, hourly, warm

LIMITS = ImportLimits(file_bytes=50_000_000, files=50, total_bytes=200_000_000, seconds=120)
LONGEST_S = 60.0
SUMMER = "Europe/Zurich"
PLAIN = "station,time,air_temperature,humidity\n" + "".join(
    f"{name},2024-07-12T{hour:02}:00,{15 + hour / 2},{60 + hour}\n" for name in ("N1", "N2") for hour in range(24)
)

HOURLY = {"a.csv": hourly("T [degC]", lambda n: f"{warm(n)}")}
FITTING = '[network]\nname = "empty"\nslice_s = 120.0\n[[feed]]\nname = "f"\nfiles = "*.csv"\nformat = "csv"\n'
"""A deployment that fits the archive."""


@pytest.fixture
def archive(tmp_path: Path, now_ns: int) -> Path:
    path = tmp_path / "archive"
    Archive.create(path, name="empty", slice_s=120.0, variables=(), now_ns=now_ns)
    return path


@pytest.fixture
def importer(archive: Path) -> Iterator[FolderImporter]:
    made = FolderImporter(archive, LIMITS)
    yield made
    made.close()


def send(importer: FolderImporter, files: dict[str, str | bytes], name: str | None = None) -> str:
    """Send files to an import, a new one if none is named; return its name."""
    name = name or importer.create("somebody")["id"]
    for file, content in files.items():
        with importer.receive(name, file) as upload:
            upload.write(content.encode() if isinstance(content, str) else content)
    return name


def finish(importer: FolderImporter, name: str) -> dict[str, Any]:
    """Run an import until its end."""
    importer.run(name)
    return wait(importer, name)


def wait(importer: FolderImporter, name: str) -> dict[str, Any]:
    ends_s = time.monotonic() + LONGEST_S
    while (state := importer.show(name))["state"] == "running":
        assert time.monotonic() < ends_s, state
        time.sleep(0.02)
    return state


def values(archive: Path, variable: str = "air_temperature", station: str = "N1") -> dict[str, float]:
    """Return the values in force of a station, by instant."""
    opened = Archive.open(archive)
    readings = opened.read(variable)
    own = [one.station == station for one in readings.series]
    chosen = (readings.flag != 9) & np.array(own, np.bool_)[readings.index]
    return {
        str(np.datetime64(int(at), "ns").astype("datetime64[m]")): float(value)
        for at, value in zip(readings.time_ns[chosen], readings.value[chosen], strict=True)
    }


def test_a_plain_table_is_described_ingested_corrected_and_ingested_again(
    importer: FolderImporter, archive: Path
) -> None:
    other = send(importer, {"data.csv": PLAIN.replace("N1", "M1").replace("N2", "M2")})
    importer.describe(other, importer.propose(other)["document"])
    assert finish(importer, other)["state"] == "done"
    untouched = values(archive, station="M1")

    name = send(importer, {"data.csv": PLAIN + "N1,2024-07-13T99:00,1,2\nN1,2024-07-13T00:00,warm,50\n"})
    proposal = importer.propose(name)
    (feed,) = proposal["feeds"]
    assert feed["zone"]["is_open"]
    assert [(column["name"], column["unit_is_open"]) for column in feed["columns"]] == [
        ("air_temperature", True), ("humidity", True),
    ]  # fmt: skip
    assert {problem["kind"]: problem["count"] for problem in feed["problems"]} == {
        "impossible date": 1,
        "bad number": 1,
    }
    first = feed["first_rows"][0]
    assert (first["station"], first["clock"], first["values"]["air_temperature"]) == ("N1", "2024-07-12T00:00:00", 15.0)
    assert proposal["units"]["degC"]["degF"] == pytest.approx([5 / 9, -160 / 9])
    # The network and the slices are those of the archive, whatever the files suggest.
    document = proposal["document"]
    assert (document["network"]["name"], document["network"]["slice_s"]) == ("empty", 120.0)

    importer.describe(name, document)
    state = finish(importer, name)
    report = state["report"]["ingest"]
    assert (state["state"], report["stored"], report["rejects"]) == (
        "done",
        97,
        {"impossible date": 1, "bad number": 1},
    )
    (example,) = report["reject_examples"]["bad number"]
    assert (example["file"], example["line"], example["text"]) == ("data.csv", 51, "N1,2024-07-13T00:00,warm,50")
    assert str(archive) not in json.dumps(state)
    assert values(archive)["2024-07-12T00:00"] == 15.0

    # The clock was that of Zurich, and the numbers were in Fahrenheit.
    document["feed"][0]["timezone"] = SUMMER
    document["feed"][0]["columns"]["air_temperature"] = {"variable": "air_temperature", "unit": "degF"}
    document["station"] = [{"id": "N1", "lon": 7.5, "lat": 46.5}, {"id": "N2", "lon": 7.6, "lat": 46.6}]
    importer.describe(name, document)
    again = finish(importer, name)
    assert again["state"] == "done", again
    assert again["report"]["remap"]["files"] == 1
    corrected = values(archive)
    assert corrected["2024-07-11T22:00"] == pytest.approx((15.0 - 32) / 1.8)
    assert len(corrected) == 24
    assert Archive.open(archive).stations["N1"].position.lon == 7.5
    # A file of the same name of another import is left alone.
    assert values(archive, station="M1") == untouched
    # The folder is one that the command line takes, to which there is nothing to add.
    folder = archive / FOLDER / name / "files"
    report = ingest([folder], archive, engine="inprocess", now_ns=time.time_ns())
    assert (report.files, report.files_skipped) == (0, 1)
    assert load(folder / "deployment.toml").feeds[0].options.timezone == SUMMER


@pytest.mark.parametrize("dirty", DIRTY, ids=lambda dirty: dirty.name)
def test_dirty_files_are_ingested_as_proposed(dirty: Dirty, archive: Path, now_ns: int) -> None:
    folder = archive.parent / "in"
    folder.mkdir()
    for name, content in dirty.files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    run = dry_run([folder])
    opened = Archive.open(archive)
    proposal = json.loads(json.dumps(describe_dry_run(run, None, opened), allow_nan=False))
    document = proposal["document"]
    for feed, shown in zip(document["feed"], proposal["feeds"], strict=True):
        for column in shown["columns"]:
            # Whoever knows no answer leaves the column out, as the text of a proposal does.
            if column["candidates"]:
                del feed["columns"][column["name"]]
    document["feed"] = [feed for feed in document["feed"] if feed.get("columns")]
    if not document["feed"]:
        assert proposal["questions"] or dirty.counts == (0, 0, 0)
        return
    text = write_toml(document)
    assert tomllib.loads(text) == document
    (folder / "deployment.toml").write_text(text, "utf-8")
    report = ingest([folder], archive, engine="inprocess", now_ns=now_ns)
    assert (report.values, report.missing, report.readings_rejected) == dirty.counts


SOIL_T = """[network]
name = "own"
[[variable]]
name = "soil_t"
unit = "{unit}"
[[feed]]
name = "f"
files = "*.csv"
format = "csv"
timezone = "UTC"
[feed.columns]
{columns}
{more}
"""


def soil_archive(archive: Path, now_ns: int) -> Path:
    """Create an archive that keeps soil_t in degC, beside an empty one."""
    path = archive.with_name("soil")
    Archive.create(path, name="soil", slice_s=120.0, variables=[Variable("soil_t", "degC")], now_ns=now_ns)
    return path


@pytest.mark.parametrize(
    ("unit_line", "column", "kept"),
    [
        ("", '"soil_t"', "degF"),
        ("", '{ variable = "soil_t", unit = "K" }', "K"),
        # The file's own unit precedes that of the variable.
        ("-,-,degC\n", '"soil_t"', None),
    ],
)
def test_columns_keep_their_declared_unit(
    unit_line: str, column: str, kept: str | None, archive: Path, now_ns: int
) -> None:
    archive, folder = soil_archive(archive, now_ns), archive.parent / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(f"station,time,temp\n{unit_line}N1,2024-07-12T00:00,60\n")
    description = folder / "deployment.toml"
    description.write_text(SOIL_T.format(unit="degF", columns=f"temp = {column}", more=""))
    document = describe_dry_run(dry_run([folder]), None, Archive.open(archive))["document"]
    assert document["variable"][0]["unit"] == "degC"
    (mapped,) = document["feed"][0]["columns"].values()
    assert (mapped["unit"] if isinstance(mapped, dict) else None) == kept
    description.write_text(write_toml(document))
    ingest([folder], archive, engine="inprocess", now_ns=now_ns)
    right = {"degF": (60 - 32) / 1.8, "K": 60 - 273.15, None: 60.0}[kept]
    assert values(archive, "soil_t") == {"2024-07-12T00:00": pytest.approx(right)}


@pytest.mark.parametrize(
    ("unit", "more", "reason"),
    [
        ("hPa", "", "does not convert"),
        ("1", "", "does not convert"),
        ("degF", "[quality.soil_t]\ngross_range = { fail = [-40, 140] }", "quality.soil_t"),
    ],
)
def test_units_that_do_not_fit_the_archive_are_refused(
    unit: str, more: str, reason: str, archive: Path, now_ns: int
) -> None:
    archive, folder = soil_archive(archive, now_ns), archive.parent / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("station,time,temp\nN1,2024-07-12T00:00,60\n")
    (folder / "deployment.toml").write_text(SOIL_T.format(unit=unit, columns='temp = "soil_t"', more=more))
    with pytest.raises(ArchiveConflict, match=reason):
        describe_dry_run(dry_run([folder]), None, Archive.open(archive))


def test_a_question_is_answered_by_a_feed(importer: FolderImporter, archive: Path) -> None:
    rows = "".join(f"0{day}/0{day + 1}/2024 {hour:02}:00,{day + hour}\n" for day in range(1, 4) for hour in range(24))
    name = send(importer, {"a.csv": "time,T [degC]\n" + rows, "b.csv": hourly("T [degC]", lambda n: f"{warm(n)}")})
    proposal = importer.propose(name)
    assert proposal["unreadable"]["a.csv"].startswith("ambiguous dates")
    document = proposal["document"]
    assert [feed["files"] for feed in proposal["feeds"]] == [["b.csv"]]
    document["feed"].insert(0, {"name": "a", "files": "a.csv", "format": "csv", "time_format": "%d/%m/%Y %H:%M"})
    importer.describe(name, document)
    proposal = importer.propose(name)
    assert proposal["unreadable"] == {}
    filled = proposal["document"]["feed"][0]
    assert (filled["name"], filled["time_format"]) == ("a", "%d/%m/%Y %H:%M")
    assert filled["columns"]["T [degC]"] == {"variable": "air_temperature", "unit": "degC"}
    importer.describe(name, proposal["document"])
    # A file that comes later is proposed beside what is kept.
    send(importer, {"c.csv": hourly("RH [%]", lambda n: f"{60 + n % 9}")}, name)
    proposal = importer.propose(name)
    assert [feed["files"] for feed in proposal["feeds"]] == [["a.csv"], ["b.csv"], ["c.csv"]]
    importer.describe(name, proposal["document"])
    assert finish(importer, name)["report"]["ingest"]["values"] == 72 + 48 + 48
    assert min(values(archive, station="a")) == "2024-02-01T00:00"


def rows_of(count: int) -> str:
    start = parse_instant("2024-01-01") // 10**9
    return "epoch,T [degC],RH [%]\n" + "".join(f"{start + 60 * n},{n % 30},{n % 100}\n" for n in range(count))


def when_stage(folder: ImportFolder, stage: str) -> None:
    """Wait until a run reports a stage, or ends."""
    while folder.read("progress").get("stage") != stage and not is_free(folder.lock):
        time.sleep(0.001)


@pytest.mark.parametrize("stage", ["", "parse", "store"])
def test_a_killed_import_loses_and_repeats_nothing(stage: str, importer: FolderImporter, archive: Path) -> None:
    name = send(importer, {"a.csv": rows_of(40_000)})
    document = importer.propose(name)["document"]
    document["feed"][0]["timezone"] = "UTC"
    importer.describe(name, document)
    importer.run(name)
    folder = ImportFolder.find(archive, name)
    when_stage(folder, stage)
    os.killpg(folder.read("process")["pid"], signal.SIGKILL)
    state = wait(importer, name)
    assert state["state"] in ("interrupted", "done")
    # As a server that starts anew sees it, too.
    assert FolderImporter(archive, LIMITS).show(name)["state"] == state["state"]
    assert len(values(archive, station="a") if "air_temperature" in Archive.open(archive).variables else ()) in (
        0,
        40_000,
    )
    assert finish(importer, name)["state"] == "done"
    held = values(archive, station="a")
    assert len(held) == 40_000
    opened = Archive.open(archive)
    assert len(opened.read("air_temperature", superseded=True)) == 0
    assert len({entry.sha256 for entry in opened.files()}) == 1


def test_a_run_outlives_its_server_and_one_runs_at_a_time(importer: FolderImporter, archive: Path) -> None:
    name = send(importer, {"a.csv": rows_of(40_000)})
    importer.describe(name, importer.propose(name)["document"])
    later = send(importer, {"b.csv": rows_of(10)})
    importer.describe(later, importer.propose(later)["document"])
    importer.run(name)
    restarted = FolderImporter(archive, LIMITS)
    assert restarted.show(name)["state"] == "running"
    attempts: list[Callable[[], object]] = [
        lambda: restarted.run(later),
        lambda: restarted.run(name),
        lambda: restarted.describe(name, "x = 1"),
        lambda: send(restarted, {"c.csv": "x"}, name),
        lambda: restarted.remove_file(name, "a.csv"),
    ]
    for attempt in attempts:
        with pytest.raises(ImportBusy):
            attempt()
    restarted.stop(name)
    assert restarted.show(name)["state"] == "interrupted"
    assert finish(restarted, later)["report"]["ingest"]["values"] == 20
    restarted.remove(name)
    assert [one["id"] for one in restarted.listing()] == [later]


def test_a_run_that_takes_too_long_ends(archive: Path) -> None:
    importer = FolderImporter(archive, ImportLimits(50_000_000, 50, 200_000_000, 1))
    slow = FolderImporter(archive, LIMITS)
    name = send(importer, {"a.csv": rows_of(200_000)})
    slow.describe(name, slow.propose(name)["document"])
    state = finish(importer, name)
    assert state["state"] == "failed"
    assert "import_seconds" in state["error"]
    assert Archive.open(archive).files() == []


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (JobLimits(60, 1000, 0), "bytes unpacked"),
        (JobLimits(60, 10**9, 2**62), "disk has"),
        (JobLimits(0, 10**9, 0), "import_seconds"),
    ],
)
def test_a_process_stops_at_its_limits(limits: JobLimits, reason: str, tmp_path: Path) -> None:
    former = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(ImportStopped, match=reason):
        unpack_and_wait(limits, tmp_path)
    assert signal.getsignal(signal.SIGUSR1) == former


def unpack_and_wait(limits: JobLimits, folder: Path) -> None:
    with limit_resources(limits, "ingest", [folder]):
        (folder / "unpacked").write_bytes(bytes(2000))
        time.sleep(LONGEST_S)


def test_paths_are_hidden_in_reasons_only() -> None:
    folder = Path("/srv/archive/imports/0/files")
    text = f"{folder}/a.csv is damaged"
    hidden = hide_paths(
        {"unreadable": {"a": text}, "document": {"why": text}, "first_rows": [text]}, [folder, Path("/srv/archive")]
    )
    assert hidden == {"unreadable": {"a": "a.csv is damaged"}, "document": {"why": text}, "first_rows": [text]}


def hang(*_: object) -> list[str]:
    """Return the command line of a process that does not end by itself."""
    return [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_run_that_hangs_is_killed(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer_module, "command", hang)
    monkeypatch.setattr(importer_module, "_STOPPED_S", 0.1)
    with closing(FolderImporter(archive, replace(LIMITS, seconds=1))) as importer:
        name = send(importer, {"deployment.toml": FITTING})
        state = finish(importer, name)
        ends_s = time.monotonic() + LONGEST_S
        while state["state"] == "interrupted" and time.monotonic() < ends_s:
            state = importer.show(name)
        assert (state["state"], "was killed" in state["error"]) == ("failed", True)


def test_a_proposal_that_hangs_ends_with_its_import(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer_module, "command", hang)
    with closing(FolderImporter(archive, LIMITS)) as importer, ThreadPoolExecutor(2) as pool:
        for end in (importer.remove, lambda _name: importer.close()):
            name = send(importer, {"a.csv": "x"})
            proposal = pool.submit(importer.propose, name)
            while importer._proposal is None and not proposal.done():
                time.sleep(0.01)
            end(name)
            with pytest.raises((NotFound, ImportUnreadable)):
                proposal.result(LONGEST_S)


def test_a_file_that_arrives_after_a_run_started_changes_nothing(importer: FolderImporter, archive: Path) -> None:
    name = send(importer, {"a.csv": "first", "deployment.toml": FITTING})
    folder = ImportFolder.find(archive, name)
    with ExitStack() as run:
        # Held from the middle of the upload on, as by the process of a run.
        with pytest.raises(ImportBusy):
            receive(importer, name, lambda: run.enter_context(try_lock(folder.lock, "a run")))
    assert [path.read_text() for path in folder.files()] == ["first"]
    assert not list(folder.files_folder.glob(".*"))


def receive(importer: FolderImporter, name: str, halfway: Callable[[], object]) -> None:
    with importer.receive(name, "a.csv") as upload:
        upload.write(b"second")
        halfway()


def test_a_second_server_leaves_the_files_that_the_first_receives(importer: FolderImporter, archive: Path) -> None:
    name = send(importer, {})
    with importer.receive(name, "a.csv") as upload:
        upload.write(b"x")
        FolderImporter(archive, LIMITS).close()
    assert [file["name"] for file in importer.show(name)["files"]] == ["a.csv"]


def test_a_poll_does_not_refuse_a_run(importer: FolderImporter, archive: Path) -> None:
    lock = ImportFolder.find(archive, send(importer, {})).lock
    lock.touch()
    with lock.open() as polled, ThreadPoolExecutor(1) as pool:
        fcntl.flock(polled, fcntl.LOCK_SH)
        holding = pool.submit(hold_once, ImportFolder(lock.parent))
        time.sleep(0.05)
        fcntl.flock(polled, fcntl.LOCK_UN)
        holding.result(LONGEST_S)


def hold_once(folder: ImportFolder) -> None:
    with importer_module._hold_for_child(folder):
        assert not is_free(folder.lock)


def test_a_deployment_that_is_too_large_is_refused(importer: FolderImporter) -> None:
    text = FITTING + "#" * importer_module.DEPLOYMENT_BYTES_MOST
    with pytest.raises(ImportTooLarge, match="1,048,576 bytes"):
        send(importer, {"deployment.toml": text})
    with pytest.raises(ImportTooLarge, match="1,048,576 bytes"):
        importer.describe(importer.create("somebody")["id"], text)


@pytest.fixture(scope="module")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The description that is proposed for `HOURLY`."""
    path = tmp_path_factory.mktemp("proposed") / "archive"
    Archive.create(path, name="empty", slice_s=120.0, variables=(), now_ns=1)
    with closing(FolderImporter(path, LIMITS)) as importer:
        name = send(importer, HOURLY)
        document: dict[str, Any] = importer.propose(name)["document"]
        importer.describe(name, document)
    return document


@pytest.mark.parametrize(
    ("change", "key", "kind"),
    [
        (lambda d: d["feed"][0].update(timezone="Europe/Zurick"), "feed[0].timezone", InvalidDeployment),
        (lambda d: d["feed"][0]["columns"].update(T={"variable": "air_temprature"}), "feed[0].columns.T.variable",
         InvalidDeployment),
        (lambda d: d["network"].update(stations="../../../hypergrid.json"), "network.stations", InvalidDeployment),
        (lambda d: d["network"].update(stations=["a"]), "network.stations", InvalidDeployment),
        (lambda d: d["feed"][0].update(arrivals="/etc/passwd"), "feed[0].arrivals", InvalidDeployment),
        (lambda d: d.update(mqtt={"url": "mqtt://host"}), "mqtt", InvalidDeployment),
        (lambda d: d.update(archive={"store": "s3://bucket"}), "archive", InvalidDeployment),
        (lambda d: d["feed"][0].update(decimal=None), "feed[0].decimal", InvalidDeployment),
        (lambda d: d.update(feed=[]), "feed", InvalidDeployment),
        (lambda d: d["network"].update(name="another"), "", ArchiveConflict),
    ],
)  # fmt: skip
def test_a_description_that_cannot_be_used_is_refused_at_its_key(
    change: Callable[[dict[str, Any]], None],
    key: str,
    kind: type[Exception],
    proposed: dict[str, Any],
    importer: FolderImporter,
) -> None:
    name = send(importer, HOURLY)
    document = deepcopy(proposed)
    change(document)
    with pytest.raises(kind) as raised:
        importer.describe(name, document)
    assert getattr(raised.value, "key", "") == key
    assert not importer.show(name)["described"]


def test_a_document_is_the_same_as_toml(tmp_path: Path) -> None:
    document = {
        "network": {"name": 'quoted "name" \\ é \x7f \n', "slice_s": 120.5},
        "variable": [{"name": "x", "counter": True, "resolution": 0.1}],
        "feed": [
            {"name": "a", "nodata": ["-999", "NA"], "columns": {"T.x y": {"variable": "x"}, "": "y", "b-c_1": "z"}},
            {"name": "b", "flags": {"good": 1}},
        ],
        "station": [{"id": "1", "moved": [{"from": "2024-01-01", "lon": 7.0}]}],
        "quality": {"run": False, "range": {"x": {"fail": [1, 2.5]}}},
    }
    assert tomllib.loads(write_toml(document)) == document
