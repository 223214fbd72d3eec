"""`hypergrid cql add|list|step|rows|remove`: live queries from the command line."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from hypergrid.archive import Archive
from hypergrid.cli.commands import app
from hypergrid.continuous.live import open_store
from hypergrid.core.errors import InvalidQuery, InvalidTime, NotFound
from hypergrid.query import open_archive
from tests.hypergrid.continuous.test_surfaces import DOCUMENTS, add_standing
from tests.support.continuous_live_archives import QUERIES, backtest, commit, create, draw_commits, given
from tests.support.processes import kill_at_exit

ROOT = Path(__file__).resolve().parents[3]
NEAR = "Select Istream(a.station, a.value) From air_temperature [Now] a, limits l "
NEAR += "Where a.station = l.station and a.value > l.most"


def invoke(*words: object, text: str = "") -> Result:
    return CliRunner().invoke(app, ["cql", *map(str, words)], input=text, catch_exceptions=False)


def run(*words: object, text: str = "") -> str:
    answer = invoke(*words, text=text)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_queries_are_added_followed_and_read(tmp_path: Path) -> None:
    folder, table = tmp_path / "a", tmp_path / "limits.csv"
    create(folder)
    table.write_text("station,most\ns0,3.5\ns1,4\n")
    assert json.loads(run("list", folder, "--json")) == []
    with pytest.raises(InvalidQuery, match="has no live query"):
        run("step", folder)
    commits = draw_commits(7, 3)
    commit(folder, 0, commits[0])
    run("add", folder, "-", "--name", "mean", "--disorder", "1min", text=QUERIES["mean"])
    run("add", folder, "-", "--name", "near", "--table", f"limits={table}", text=NEAR)
    table.unlink()
    run("step", folder, "--name", "mean")
    first = pd.read_csv(io.StringIO(run("rows", folder, "mean")))
    assert len(first)
    for number in (1, 2):
        commit(folder, number, commits[number])
        run("step", folder)
    mean, near = json.loads(run("list", folder, "--json"))
    assert (mean["name"], mean["is_newest"], mean["disorder_s"], mean["problem"]) == ("mean", True, 60.0, None)
    assert mean["late_windows"] > 0
    assert mean["projected_bytes"] > 0
    assert (mean["disorder_from"], near["disorder_from"]) == ("given", "arrivals")
    assert near["disorder_s"] is not None
    assert list(near["tables"]) == ["limits"]
    assert len(near["tables"]["limits"]) == 64
    assert "complete" in run("list", folder)
    file = tmp_path / "mean.csv"
    run("rows", folder, "mean", "--after", first["number"].iloc[-1], "-o", file)
    whole = pd.read_csv(io.StringIO(run("rows", folder, "mean")))
    assert whole["number"].tolist() == first["number"].tolist() + pd.read_csv(file)["number"].tolist()
    assert {"tau", "sign", "station", "corrects", "snapshot"} < set(whole.columns)
    entry = open_store(folder).find("mean")
    archive = open_archive(folder)
    expected = backtest(archive, QUERIES["mean"], entry.options.start_ns, entry.heartbeat_ns or 0)
    assert given(folder, "mean") == expected
    assert set(pd.read_csv(io.StringIO(run("rows", folder, "near")))["station"]) <= {"s0", "s1"}
    run("remove", folder, "mean")
    with pytest.raises(NotFound, match="live query"):
        run("rows", folder, "mean")
    assert [row["name"] for row in json.loads(run("list", folder, "--json"))] == ["near"]


def test_surfaces_are_kept_with_a_query_and_listed(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    commits = draw_commits(8, 3)
    commit(folder, 0, commits[0])
    add_standing(open_archive(folder), {"frost": DOCUMENTS["frost"], "cold-air": DOCUMENTS["cold-air"]})
    text = "Select max(value) as warmest From surface_frost"
    answer = invoke("add", folder, "-", "--name", "warmest", "--disorder", "1min", text=text)
    assert "kept with it as they are now: surface_frost; 'hypergrid cql step" in answer.stderr
    for number in (1, 2):
        commit(folder, number, commits[number])
        run("step", folder)
    (listed,) = json.loads(run("list", folder, "--json"))
    assert (listed["surfaces"], listed["problem"]) == ({"surface_frost": "frost"}, None)
    entry = open_store(folder).find("warmest")
    expected = backtest(open_archive(folder), text, entry.options.start_ns, entry.heartbeat_ns or 0)
    assert given(folder, "warmest") == expected
    assert len(pd.read_csv(io.StringIO(run("rows", folder, "warmest")))) >= len(expected) > 3


def test_results_are_kept_for_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    with pytest.raises(InvalidQuery, match="a day to 500 years"):
        run("add", folder, "-", "--name", "mean", "--keep", "6h", text=QUERIES["mean"])
    with pytest.raises(InvalidTime, match="--keep: a duration needs"):
        run("add", folder, "-", "--name", "mean", "--keep", "long", text=QUERIES["mean"])
    run("add", folder, "-", "--name", "mean", "--keep", "90d", text=QUERIES["mean"])
    (row,) = json.loads(run("list", folder, "--json"))
    assert (row["keep_s"], row["kept_from"], row["too_late_windows"]) == (90 * 86_400.0, None, 0)
    assert "for 30d" in run("keep", folder, "mean", "30d") + invoke("keep", folder, "mean", "30d").output
    assert json.loads(run("list", folder, "--json"))[0]["keep_s"] == 30 * 86_400.0
    run("keep", folder, "mean", "always")
    assert json.loads(run("list", folder, "--json"))[0]["keep_s"] is None
    with pytest.raises(NotFound, match="live query 'none'"):
        run("keep", folder, "none", "30d")


def test_rows_are_followed_until_their_reader_has_enough(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    commits = draw_commits(7, 3)
    commit(folder, 0, commits[0])
    run("add", folder, "-", "--name", "mean", "--disorder", "1min", text=QUERIES["mean"])
    words = [sys.executable, "-m", "hypergrid", "cql", "rows", str(folder), "mean", "--follow", "--every", "100ms"]
    paths = os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    with process, kill_at_exit(process):
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [json.loads(process.stdout.readline())]
        newest = Archive.open(folder).snapshot
        commit(folder, 1, commits[1])
        while lines[-1]["snapshot"] == newest:
            lines.append(json.loads(process.stdout.readline()))
        # As `head` does.
        process.stdout.close()
        commit(folder, 2, commits[2])
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""
    whole = pd.read_csv(io.StringIO(run("rows", folder, "mean"))).head(len(lines))
    assert [line["number"] for line in lines] == whole["number"].tolist()
    assert [line["sign"] for line in lines] == whole["sign"].tolist()
    assert [line["row"]["station"] for line in lines] == whole["station"].tolist()
    assert [line["snapshot"] for line in lines] == whole["snapshot"].tolist()


def test_a_query_that_fails_stands_and_others_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    commits = draw_commits(8, 2)
    commit(folder, 0, commits[0])
    for name in ("join", "mean"):
        run("add", folder, "-", "--name", name, "--start", "2007-01-01", text=QUERIES[name])
    run("step", folder)
    before = open_store(folder).find("join")
    store = open_store(folder)
    with store._transaction():  # noqa: SLF001
        # As if the stream had been there when the query was added.
        text = QUERIES["join"].replace("wind_speed", "snow_depth")
        store._db.execute("UPDATE queries SET text = ? WHERE name = 'join'", (text,))  # noqa: SLF001
    commit(folder, 1, commits[1])
    answer = invoke("step", folder)
    assert answer.exit_code == 1
    assert "live query 'join' does not fit the archive any more, and stands where it is" in answer.stderr
    assert "snow_depth" in answer.stderr
    join, mean = json.loads(run("list", folder, "--json"))
    assert (join["snapshot"], mean["snapshot"]) == (before.snapshot, Archive.open(folder).snapshot)
    assert "snow_depth" in join["problem"]
    assert mean["problem"] is None
    with store._transaction():  # noqa: SLF001
        store._db.execute("UPDATE queries SET text = ? WHERE name = 'join'", (QUERIES["join"],))  # noqa: SLF001
    # The stream is back.
    run("step", folder)
    entry = store.find("join")
    assert given(folder, "join") == backtest(
        open_archive(folder), QUERIES["join"], entry.options.start_ns, entry.heartbeat_ns or 0
    )


def test_windows_beyond_their_share_are_refused_with_what_fits(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    for number, parts in enumerate(draw_commits(9, 2)):
        commit(folder, number, parts)
    text = "Select a.station, a.value, w.value From air_temperature [Range 2 Hours] a, wind_speed [Range 1 Hour] w "
    text += "Where a.station = w.station"
    needed = round(project(folder, text))
    allowed = round(0.6 * needed)
    with pytest.raises(InvalidQuery, match=f"need {needed:,} bytes .* may take {allowed:,};") as refused:
        run("add", folder, "-", "--name", "b", "--memory", allowed, text=text)
    words = str(refused.value)
    span = words.split("What would fit: ")[1].split(" in place")[0]
    share = words.split("Sample(")[1].split(")")[0]
    shorter = text.replace("[Range 2 Hours]", span)
    sampled = text.replace("Hours] a", f"Hours] Sample({share}) a").replace("Hour] w", f"Hour] Sample({share}) w")
    for number, fitting in enumerate((shorter, sampled)):
        run("add", folder, "-", "--name", f"fits{number}", "--memory", allowed, text=fitting)
        assert 0.9 * allowed < project(folder, fitting) <= allowed
    run("add", folder, "-", "--name", "b", "--memory", needed + 1, text=text)


def test_runs_and_backtests_have_the_same_limit(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    commit(folder, 0, draw_commits(9, 1)[0])
    out = tmp_path / "rows.csv"
    commands = [
        ("run", folder, "-"),
        ("backtest", folder, "-", "-o", out),
        ("backtest", folder, "-", "-o", out, "--spark"),
    ]
    for words in commands:
        with pytest.raises(InvalidQuery, match=r"need [\d,]+ bytes .* may take 100; .* What would fit: .*or allow"):
            run(*words, "--memory", 100, text=QUERIES["mean"])
    assert not out.exists()
    run(*commands[1], "--memory", 10**6, text=QUERIES["mean"])
    assert out.exists()


def project(folder: Path, text: str) -> float:
    store = open_store(folder)
    run("add", folder, "-", "--name", "probe", text=text)
    probe = {row["name"]: row["projected_bytes"] for row in json.loads(run("list", folder, "--json"))}["probe"]
    store.remove("probe")
    return float(probe)


def test_readings_may_be_awaited_for_no_time(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    commit(folder, 0, draw_commits(7, 1)[0])
    run("add", folder, "-", "--name", "mean", "--disorder", "0s", text=QUERIES["mean"])
    (mean,) = json.loads(run("list", folder, "--json"))
    assert (mean["disorder_s"], mean["disorder_from"]) == (0.0, "given")
    for option, value in (("--idle", "0s"), ("--disorder", "-1s")):
        with pytest.raises(InvalidTime, match=f"{option}: a duration must be"):
            run("add", folder, "-", "--name", "b", f"{option}={value}", text=QUERIES["mean"])
