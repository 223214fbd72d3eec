"""Every bad file has its outcome: these rows, these rejects, a message and no traceback, and bounded memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypergrid.archive import Archive
from hypergrid.cli.main import app
from station_data.bad_files import BAD_FILES, DEPLOYMENT, SMALL_BYTES, BadFile, write_all

FOLDER = Path(__file__).parents[2] / "station_data" / "faults"
LARGE = ("endless_line.csv", "bomb.csv.gz", "bomb.zip", "declares_much.zip")
MEASURED = """
import sys
from hypergrid.cli.main import main
from tests.bench.resident import peak
sys.argv = ["hypergrid", *sys.argv[1:]]
try:
    main()
finally:
    print(peak(), file=sys.stderr)
"""


def placed(bad: BadFile, folder: Path) -> Path:
    folder.mkdir()
    (folder / "deployment.toml").write_text(DEPLOYMENT)
    (folder / bad.name).write_bytes(bad.content())
    return folder / bad.name


@pytest.mark.parametrize("bad", BAD_FILES, ids=[bad.name[:40] for bad in BAD_FILES])
def test_every_bad_file_has_its_outcome(bad: BadFile, tmp_path: Path) -> None:
    path = placed(bad, tmp_path / "in")
    done = CliRunner().invoke(app, ["ingest", "--json", "--archive", str(tmp_path / "a"), "--", str(path)])
    # An ingest that brings nothing in says so, and does not end as one that did.
    assert done.exit_code == (0 if bad.rows else 1), done.output
    assert ("nothing was brought in" in done.stderr) == (not bad.rows)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "Traceback" not in done.output
    report = json.loads(done.stdout)
    assert (report["rows"], report["rejects"]) == (bad.rows, dict(bad.rejects))
    assert (report["superseded"], report["duplicates"]) == (bad.superseded, bad.duplicates)
    # Nothing is lost: the ledger of readings closes.
    assert report["readings"] == report["stored"] + report["duplicates"] + report["superseded"]
    archive = Archive.open(tmp_path / "a")
    found = {archive.series(name)[i].station for name in archive.variables for i in archive.read(name).index.tolist()}
    assert sorted(found) == sorted(bad.stations)
    rejects = archive.rejects()
    assert all(reject.reason and len(reject.text) <= 200 for reject in rejects)
    # Nothing was written but the archive.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "in"]
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == sorted(["deployment.toml", bad.name])


def test_strict_ends_with_a_message_and_status_1(tmp_path: Path) -> None:
    bad = next(bad for bad in BAD_FILES if bad.name == "bad_number.csv")
    path = placed(bad, tmp_path / "in")
    done = subprocess.run(
        [sys.executable, "-m", "hypergrid", "ingest", "--strict", "--archive", str(tmp_path / "a"), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "3 x bad number" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "a").exists()


def test_carriage_returns_between_whole_rows_are_line_ends_and_others_damage(tmp_path: Path) -> None:
    rows = [f"R,2020-01-01T00:0{minute}:00Z,{minute}" for minute in range(5)]
    path = tmp_path / "returns.csv"
    # Some rows of a file end as on an old Macintosh; the last one has a carriage return within its number.
    path.write_bytes("\r".join(["station,time,air_temperature\n" + rows[0], *rows[1:4]]).encode() + b"\n")
    path.write_bytes(path.read_bytes() + rows[4].encode() + b"\r5\n")
    done = CliRunner().invoke(app, ["ingest", "--json", "--archive", str(tmp_path / "a"), str(path)])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["rows"], report["rejects"]) == (4, {"binary": 1})
    listed = CliRunner().invoke(app, ["rejects", "--json", "--archive", str(tmp_path / "a")])
    assert "a carriage return inside a line" in listed.output
    assert Archive.open(tmp_path / "a").read("air_temperature").value.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("name", LARGE)
def test_memory_is_bounded(name: str, tmp_path: Path) -> None:
    def peak_bytes(bad: BadFile, folder: Path) -> int:
        path = placed(bad, folder)
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, "ingest", "--json", "--archive", f"{folder}.archive", str(path)],
            capture_output=True,
            text=True,
            check=False,
            cwd=FOLDER.parents[1],
        )
        assert done.returncode == (0 if bad.rows else 1), done.stderr
        return int(done.stderr.split()[-1])

    by_name = {bad.name: bad for bad in BAD_FILES}
    least = peak_bytes(by_name["header_only.csv"], tmp_path / "least")
    assert peak_bytes(by_name[name], tmp_path / "large") < least + (64 << 20)


def test_there_are_many_and_the_small_ones_lie_in_the_project(tmp_path: Path) -> None:
    assert len(BAD_FILES) >= 40
    assert len({bad.name for bad in BAD_FILES}) == len(BAD_FILES)
    written = write_all(tmp_path / "out", most_bytes=SMALL_BYTES)
    assert len(written) >= len(BAD_FILES) - 4
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {"deployment.toml", *(path.name for path in written)}
    # Packers differ in their bytes from version to version.
    plain = [path for path in written if path.suffix not in (".gz", ".zip")]
    assert all((FOLDER / path.name).read_bytes() == path.read_bytes() for path in plain)


def test_stamps_in_the_future_are_told(tmp_path: Path) -> None:
    bad = next(bad for bad in BAD_FILES if bad.name == "future.csv")
    path = placed(bad, tmp_path / "in")
    done = CliRunner().invoke(app, ["ingest", "--json", "--archive", str(tmp_path / "a"), "--", str(path)])
    (told,) = [text for text in json.loads(done.stdout)["warnings"] if "future" in text]
    assert "A (to 2199-01-01T00:00Z)" in told
