"""The command line as a newcomer meets it: exit statuses, messages, nothing half-written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

from tests.end_to_end.in_process import hypergrid


@pytest.fixture
def archive(five_days: Path) -> Path:
    """An archive of the sample network."""
    return five_days / "build/demo/archive"


def with_changes(root: Path, tmp_path: Path, **changes: object) -> Path:
    """Write Q1 with other keys; a path such as `grid.step` goes into the interpolation."""
    document = json.loads((root / "station_data/queries/q1.json").read_text())
    for key, value in changes.items():
        if key in document:
            document[key] = value
        else:
            next(step for step in document["steps"] if key in step)[key] = value
    path = tmp_path / "query.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("ending", [".nc", ".csv", ".png", ".zarr"])
def test_query_writes_each_kind_of_file(root: Path, archive: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"q1{ending}"
    done = hypergrid("query", root / "station_data/queries/q1.json", "--archive", archive, "-o", out)
    assert done.returncode == 0, done.stderr
    assert out.exists()
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_json_summary_names_the_snapshot(root: Path, archive: Path, tmp_path: Path) -> None:
    out = tmp_path / "q1.nc"
    done = hypergrid("query", root / "station_data/queries/q1.json", "--archive", archive, "-o", out, "--json")
    summary = json.loads(done.stdout)
    assert summary["cells"] == 529
    assert summary["missing"] == 0
    with xr.open_dataset(out) as dataset:
        assert dataset.attrs["hypergrid_snapshot"] == summary["snapshot"]
        assert dataset.attrs["hypergrid_token"] == summary["token"]


def test_a_second_opinion_is_a_note_and_finds_a_changed_cell(root: Path, archive: Path, tmp_path: Path) -> None:
    question = with_changes(root, tmp_path, clip={"time": ["2007-10-01T00:00Z", "2007-10-01T02:00Z"]})
    out = tmp_path / "q1.nc"
    done = hypergrid("query", question, "--archive", archive, "-o", out, "--second-opinion", 50)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stderr.split())
    assert "note: second opinion by PyKrige 1." in told
    assert "50 of 529 cells agree, greatest difference" in told
    with xr.open_dataset(out) as dataset:
        assert json.loads(dataset.attrs["hypergrid_second_opinion"])["agrees"]
        changed = dataset.load()
    changed["air_temperature"][0, 3, 4] += 0.5
    changed.to_netcdf(tmp_path / "changed.nc", engine="h5netcdf")
    checked = hypergrid("query", "--again", out, "--archive", archive, "--second-opinion", 529)
    assert checked.returncode == 0, checked.stderr
    assert "529 of 529 cells agree" in checked.stdout
    caught = hypergrid("query", "--again", tmp_path / "changed.nc", "--archive", archive, "--second-opinion", 529)
    assert caught.returncode == 1
    assert "1 DIFFER, greatest difference 0.5 degC" in " ".join(caught.stdout.split())


def test_a_result_is_told_with_its_notes_a_line_each(root: Path, archive: Path, tmp_path: Path) -> None:
    document = json.loads((root / "station_data/queries/q1.json").read_text())
    interpolation = next(step for step in document["steps"] if step["op"] == "interpolate")
    interpolation["params"] = {"variogram": "fit"}
    path = tmp_path / "query.json"
    path.write_text(json.dumps({**document, "variance": True}))
    told = {}
    for ending in (".nc", ".png"):
        done = hypergrid("query", path, "--archive", archive, "-o", tmp_path / f"out{ending}", "--json")
        assert done.returncode == 0, done.stderr
        told[ending] = [" ".join(line.split()) for line in done.stderr.splitlines()]
        notes = json.loads(done.stdout)["notes"]
        assert any(note.startswith("variogram fitted to") for note in notes)
        assert [line for line in told[ending] if line.startswith("note: ")] == [f"note: {note}" for note in notes]
    with xr.open_dataset(tmp_path / "out.nc") as dataset:
        assert dataset.attrs["comment"] == "; ".join(notes)
    unseen = "the picture does not show the variance; .nc and .zarr hold it"
    assert [unseen in told[ending] for ending in told] == [False, True]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"variable": "air_temprature"}, ["air_temprature", "did you mean 'air_temperature'"]),
        ({"method": "ordinary_crigging"}, ["ordinary_crigging", "ordinary_kriging"]),
        ({"function": "valid_rang"}, ["valid_rang", "valid_range"]),
        ({"grid": {"lon": 10.0, "lat": 50.0, "step": "1arcsec", "shape": [5, 5]}}, ["misses all", "km away"]),
        ({"grid": {"lon": 7.18, "lat": 45.87, "step": -1, "shape": [5, 5]}}, ["step above zero", "-1"]),
        ({"clip": {"time": ["2007-10-04", "2007-10-01"]}}, ["2007-10-04", "stop after its start"]),
        ({"clip": {"time": ["2009-10-01", "2009-10-04"]}}, ["no reading", "2009-10-01"]),
    ],
    ids=["variable", "method", "function", "grid", "step", "reversed", "empty"],
)  # fmt: skip
def test_bad_queries_are_refused_before_running(
    root: Path, archive: Path, tmp_path: Path, changes: dict[str, object], words: list[str]
) -> None:
    """Each names what was given and what exists; no file appears."""
    query = with_changes(root, tmp_path, **changes)
    done = hypergrid("query", query, "--archive", archive, "-o", tmp_path / "out.nc")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in " ".join(done.stderr.split())
    assert not (tmp_path / "out.nc").exists()


def test_a_folder_that_is_no_archive_is_refused_untouched(root: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    for words in (["stations", tmp_path], ["ingest", tmp_path, root / "station_data/sample"]):
        done = hypergrid(*words)
        assert done.returncode == 2, done.stderr
        assert "is no archive" in " ".join(done.stderr.split())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_unknown_ending_and_a_missing_file_are_explained(root: Path, archive: Path, tmp_path: Path) -> None:
    done = hypergrid("query", root / "station_data/queries/q1.json", "--archive", archive, "-o", tmp_path / "out.doc")
    assert done.returncode == 2
    assert ".doc" in done.stderr
    assert ".nc" in done.stderr
    done = hypergrid("query", tmp_path / "none.json", "--archive", archive, "-o", tmp_path / "out.nc")
    assert done.returncode == 2
    assert "cannot be read" in " ".join(done.stderr.split())


def test_a_result_that_cannot_be_written_is_refused_before_computing(
    root: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hypergrid.query.Query.compute", lambda *_, **__: pytest.fail("it was computed"))
    (tmp_path / "mine.nc").mkdir()
    for out, words in (("mine.nc", "a folder is there"), ("nowhere/out.nc", "does not exist")):
        done = hypergrid("query", root / "station_data/queries/q1.json", "--archive", archive, "-o", tmp_path / out)
        assert done.returncode == 2
        assert words in " ".join(done.stderr.split())
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine.nc"]


def test_json_of_stations_without_position_is_json(tmp_path: Path) -> None:
    (tmp_path / "buoy.csv").write_text("time,air_temperature\n2007-10-01T00:00Z,1.5\n")
    assert hypergrid("ingest", tmp_path / "buoy.csv", "--archive", tmp_path / "a", "--json").returncode == 0
    listed = json.loads(hypergrid("stations", "--archive", tmp_path / "a", "--json").stdout, parse_constant=pytest.fail)
    assert listed == [{"station": "buoy", "name": "buoy", "lon": None, "lat": None, "elevation_m": None}]


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), ("port = = 1", "line 1"), ("port = 70000", "from 0 to 65535")],
)
def test_settings_that_cannot_be_used_are_told(tmp_path: Path, archive: Path, content: str | None, words: str) -> None:
    settings = tmp_path / "settings.toml"
    if content is not None:
        settings.write_text(content)
    done = hypergrid("serve", "--archive", archive, "--settings", settings)
    assert done.returncode == 2
    told = " ".join(done.stderr.split())
    assert str(settings) in told
    assert words in told


def test_strict_ingest_fails_and_commits_nothing(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "bad.csv").write_text("station,time,air_temperature\nA,2007-10-01T00:00Z,1.5\nA,yesterday,2.5\n")
    loose = hypergrid("ingest", folder, "--archive", tmp_path / "loose")
    assert loose.returncode == 0, loose.stderr
    assert "could not be read" in " ".join(loose.stderr.split())
    listed = json.loads(hypergrid("rejects", "--archive", tmp_path / "loose", "--json").stdout)
    assert [(row["line"], row["column"]) for row in listed] == [(3, "time")]
    strict = hypergrid("ingest", folder, "--archive", tmp_path / "strict", "--strict")
    assert strict.returncode == 1
    assert not (tmp_path / "strict").exists()


def test_an_ingest_that_brought_nothing_in_fails_and_one_without_news_does_not(tmp_path: Path) -> None:
    folder, archive = tmp_path / "files", tmp_path / "archive"
    folder.mkdir()
    (folder / "bad.csv").write_text("station,time,air_temperature\nA,yesterday,2.5\n")
    for more in ([], ["--json"]):
        done = hypergrid("ingest", folder, "--archive", tmp_path / f"archive{len(more)}", *more)
        assert (done.returncode, "nothing was brought in" in done.stderr) == (1, True)
        assert "--dry-run" in done.stderr
    (folder / "good.csv").write_text("station,time,air_temperature\nA,2007-10-01T00:00Z,1.5\n")
    assert hypergrid("ingest", folder, "--archive", archive).returncode == 0
    assert hypergrid("ingest", folder, "--archive", archive).returncode == 0


def test_a_process_of_its_own_ends_with_the_same_status(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hypergrid", "stations", "--archive", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "is no archive" in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_help_answers_without_the_heavy_rooms() -> None:
    code = "import sys, hypergrid.cli.main; print([m for m in ('pyspark', 'fastapi', 'bokeh') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_query_reads_zones_beside_the_query_file(root: Path, archive: Path, tmp_path: Path) -> None:
    ring = [[7.178, 45.868], [7.182, 45.868], [7.18, 45.872], [7.178, 45.868]]
    feature = {
        "type": "Feature",
        "properties": {"BASIN": "upper"},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }
    (tmp_path / "basins.geojson").write_text(json.dumps(feature))
    document = json.loads((root / "station_data/queries/q1.json").read_text())
    document["steps"].append(
        {"op": "aggregate", "function": "mean", "zones": {"file": "basins.geojson", "name": "BASIN"}}
    )
    asked, out = tmp_path / "query.json", tmp_path / "zones.nc"
    asked.write_text(json.dumps(document))
    done = hypergrid("query", asked, "--archive", archive, "-o", out)
    assert done.returncode == 0, done.stderr
    result = xr.open_dataset(out)
    assert result["zone"].to_numpy().tolist() == ["upper"]
    assert result["air_temperature"].notnull().all()
    again = tmp_path / "again.json"
    again.write_text(result.attrs["hypergrid_query"])
    assert hypergrid("query", again, "--archive", archive, "-o", tmp_path / "again.nc").returncode == 0
    xr.testing.assert_identical(result["air_temperature"], xr.open_dataset(tmp_path / "again.nc")["air_temperature"])
    ring[-1] = [7.1, 45.0]
    (tmp_path / "basins.geojson").write_text(json.dumps(feature))
    done = hypergrid("query", asked, "--archive", archive, "-o", out)
    assert done.returncode != 0
    assert "zone 'upper' has an open ring" in done.stderr
