"""Counters that a deployment declares: their resolution and rollover reach the archive, and the queries."""

import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hypergrid as hg
from hypergrid.cli.main import app, main
from hypergrid.core.errors import InvalidDeployment, InvalidQuery
from ingest.batch.dry_run import dry_run
from ingest.batch.proposal import propose_deployment
from ingest.deployment.deployment_file import load
from ingest.job import ingest

NOW_NS = 1_200_000_000 * 10**9

DEPLOYMENT = """
[network]
name = "gauges"
[[station]]
id = "s1"
lon = 7.18
lat = 45.87
elevation_m = 2400

[[variable]]
name = "bucket"
unit = "mm"
long_name = "Content of the bucket"
{declared}

[[feed]]
name = "logger"
files = "*.csv"
format = "csv"
station = "s1"
interval_s = 600
time_column = "time"
[feed.columns]
level = {{variable = "bucket", unit = "mm"}}
"""


def write(folder: Path, declared: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "deployment.toml"
    path.write_text(DEPLOYMENT.format(declared=declared), encoding="utf-8")
    return path


def test_a_declared_rollover_reaches_the_query(tmp_path: Path) -> None:
    """A fall from 9.8 to 0.3 is a rollover at 10 mm, where it would be a reset else."""
    deployment = write(tmp_path / "in", "counter = true\nresolution = 0.1\nrollover = 10.0")
    shown = np.round(np.arange(144) * 0.2 % 10.0, 1)
    lines = [f"2007-10-01T{i // 6:02d}:{i % 6}0:00Z,{value}" for i, value in enumerate(shown)]
    (tmp_path / "in" / "s1.csv").write_text("time,level\n" + "\n".join(lines) + "\n", encoding="utf-8")
    ingest([tmp_path / "in"], tmp_path / "archive", deployment=deployment, engine="inprocess", now_ns=NOW_NS)
    archive = hg.open(tmp_path / "archive")
    day = archive["bucket"].aggregate("rain_accumulation", time="1day", min_coverage=0)
    assert "resolution=0.1, rollover=10" in day.explain()
    found = day.compute()
    assert found["value"].to_numpy().ravel() == pytest.approx([143 * 0.2])
    assert "a counter fell: 2 rollovers" in found.attrs["comment"]
    inches = archive["bucket"].convert("scale", factor=1 / 25.4, unit="inch")
    scaled = inches.aggregate("rain_accumulation", time="1day", min_coverage=0).compute()
    assert scaled["value"].to_numpy().ravel() == pytest.approx([143 * 0.2 / 25.4])
    # A parameter of the query comes first.
    assert "rollover=1000" in archive["bucket"].aggregate("rain_accumulation", time="1h", rollover=1000.0).explain()
    with pytest.raises(InvalidQuery, match="a mean of 'bucket' has no meaning"):
        archive["bucket"].aggregate("mean", time="1h").plan()


def test_a_dry_run_shows_counters(tmp_path: Path) -> None:
    write(tmp_path / "in", "counter = true\nresolution = 0.1\nrollover = 10.0")
    (tmp_path / "in" / "s1.csv").write_text("time,level\n2007-10-01T00:00:00Z,0.1\n2007-10-01T00:10:00Z,0.2\n")
    shown = CliRunner().invoke(app, ["ingest", "--dry-run", str(tmp_path / "in")])
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert "bucket: a counter, resolution 0.1 mm, rollover 10 mm: rain_accumulation gives what it grew by" in words
    run = dry_run([tmp_path / "in"])
    (column,) = run.to_dict()["sources"][0]["columns"]
    assert column["counter"] == {"resolution": 0.1, "rollover": 10.0}


def test_a_proposal_leaves_lines_for_what_is_known_of_a_gauge(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "s1.csv").write_text(
        "time,station,rain_meter\n2007-10-01T00:00:00Z,s1,0.1\n2007-10-01T00:10:00Z,s1,0.2\n", encoding="utf-8"
    )
    run = dry_run([tmp_path / "in"])
    assert run.to_dict()["sources"][0]["columns"][0]["counter"] == {"resolution": None, "rollover": None}
    path = tmp_path / "start.toml"
    text = propose_deployment(run)
    hint = text[text.index("# rain_meter counts") :].split("\n\n")[0].splitlines()
    # The comment is a declaration that works, once its first marks are gone and a number stands there.
    lines = [line.removeprefix("# ").replace("# resolution = ", "resolution = 0.2") for line in hint[1:]]
    path.write_text(text.replace("\n".join(hint), "\n".join(lines)), encoding="utf-8")
    (variable,) = load(path).variables
    assert (variable.name, variable.is_counter, variable.resolution) == ("rain_meter", True, 0.2)


def test_the_command_line_refuses_a_rollover_below_its_resolution_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "in", "counter = true\nresolution = 0.2\nrollover = 0.1")
    given = ("ingest", str(tmp_path / "in"), "--archive", str(tmp_path / "a"), "--deployment", str(path))
    monkeypatch.setattr(sys, "argv", ["hypergrid", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code not in (0, None)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("a rollover of 0.1 with a resolution of 0.2") == 1
    assert "Traceback" not in said
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("counter = 1", "counter needs true or false; got 1"),
        ("resolution = 0.1", "add counter = true"),
        ("counter = true\nresolution = -1.0", "resolution of a counter needs a number above 0; got -1"),
        ("counter = true\nresolution = -1.0\nrollover = 9.0", "[.]resolution does not fit: the resolution of a"),
        ("counter = true\nresolution = 0.2\nrollover = 0.1", "a rollover of 0.1 with a resolution of 0.2"),
    ],
)
def test_what_is_no_counter_is_refused_by_name(tmp_path: Path, declared: str, message: str) -> None:
    with pytest.raises(InvalidDeployment, match=message):
        load(write(tmp_path, declared))


def test_a_temperature_is_no_counter(tmp_path: Path) -> None:
    path = write(tmp_path, "counter = true")
    path.write_text(path.read_text().replace('unit = "mm"\nlong', 'unit = "degC"\nlong'), encoding="utf-8")
    with pytest.raises(InvalidDeployment, match="counter needs a unit that can be amassed, such as 'mm'; got 'degC'"):
        load(path)
