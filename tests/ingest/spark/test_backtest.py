"""Back-tests on Spark are the same files, row by row, as those of one process."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from hypergrid.cli.main import main
from hypergrid.continuous.archive_parts import merge_parts, plan_parts, write_part
from hypergrid.continuous.archive_query import ArchiveQuery, ContinuousArchive, open_inputs
from hypergrid.core.errors import HyperGridError
from hypergrid.query import open_archive
from ingest.spark import backtest
from ingest.spark.backtest import BacktestTask, backtest_on_spark, run_task
from ingest.spark.batch import Executors
from tests.bench.reprocess_archive import make_archive

QUERIES = {
    "mean": (
        "Select station, avg(value) as mean From air_temperature [Range 6 Hours] Group By station",
        ("key", "time"),
    ),
    "network": ("Select avg(value) as mean, count(*) as n From air_temperature [Range 1 Hour]", ("time",)),
    "stuck": (
        "Select series From readings [Partition By series Rows 30] Group By series Having count(distinct value) = 1",
        ("key",),
    ),
    "silent": (
        "Select station From stations Where station Not In (Select station From air_temperature [Range 5 Minutes])",
        ("key", "time"),
    ),
    "last": ("Select station, value From air_temperature [Rows 5]", ()),
    "limits": (
        "Select Istream(a.station, a.value) From air_temperature [Now] a, limits l "
        "Where a.station = l.station and a.value > l.most",
        ("key", "time"),
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backtest")
    make_archive(folder / "a", days=20, stations=7)
    pd.DataFrame({"station": ["s001", "s004", "nowhere"], "most": [8.0, 5.0, 0.0]}).to_csv(
        folder / "limits.csv", index=False
    )
    for name, (text, _) in QUERIES.items():
        (folder / f"{name}.cql").write_text(text)
    return folder


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    monkeypatch.setattr(sys, "argv", ["hypergrid", "cql", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


def _list_parts(explained: str) -> list[str]:
    """Return the lines of an explanation that say by what a back-test is split."""
    lines = explained.splitlines()
    start = lines.index("back-test in parts") + 1
    return [line.strip() for line in itertools.takewhile(lambda line: line.startswith(" "), lines[start:])][:2]


def run_alone(query: ArchiveQuery, order: str) -> pd.DataFrame:
    parts = [part for part, _ in query.iterate(order=order, by_value=True) if len(part)]
    return pd.concat(parts or [query.tabulate([])], ignore_index=True)


@pytest.mark.parametrize("name", QUERIES)
def test_the_file_is_that_of_one_process(
    name: str,
    spark: SparkSession,
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = ("--table", f"limits={made / 'limits.csv'}") if name == "limits" else ()
    asked = ("backtest", made / "a", made / f"{name}.cql", "--from", "2021-01-03", "--to", "2021-01-18", *tables)
    alone, split = tmp_path / "alone.csv", tmp_path / "split.csv"
    run(capsys, monkeypatch, *asked, "-o", alone)
    report = json.loads(run(capsys, monkeypatch, *asked, "--spark", "-o", split, "--json"))
    assert split.read_text() == alone.read_text()
    assert report["rows"] == len(alone.read_text().splitlines()) - 1 > 0
    assert (report["tasks"] > 1) == bool(QUERIES[name][1])
    explained = run(capsys, monkeypatch, "explain", made / "a", made / f"{name}.cql", *tables)
    by_key, by_time = _list_parts(explained)
    if report["tasks"] > 1:
        assert report["split"] in (by_key, by_time)
    else:
        assert report["split"] == f"it runs in one task, {by_key}; {by_time}"
    assert (not by_key.startswith("not "), not by_time.startswith("not ")) == tuple(
        way in QUERIES[name][1] for way in ("key", "time")
    )
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("order", ["time", "arrival"])
@pytest.mark.parametrize("name", QUERIES)
def test_any_parts_are_merged_to_the_whole(name: str, order: str, made: Path, tmp_path: Path) -> None:
    text, ways = QUERIES[name]
    tables = {"limits": made / "limits.csv"} if name == "limits" else {}
    query = ContinuousArchive(open_inputs(open_archive(made / "a"), tables)).query(text)
    how = query.partitioning
    assert (bool(how.keys), how.horizon_ns is not None) == ("key" in ways, "time" in ways)
    for count in (1, 3, 9):
        plan = plan_parts(query, query.find_window(None, None, order), count)
        paths = [tmp_path / f"{count}-{number}" for number in range(len(plan.parts))]
        for part, path in zip(plan.parts, paths, strict=True):
            write_part(query, part, path)
        merged = [*merge_parts(query, paths, is_by_key=plan.is_by_key)]
        pd.testing.assert_frame_equal(
            pd.concat(merged, ignore_index=True),
            run_alone(query, order),
        )


def test_a_part_that_fails_says_so(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    query = ContinuousArchive(open_inputs(open_archive(made / "a"))).query(QUERIES["mean"][0])
    plan = plan_parts(query, query.find_window(None, None, "time"), 2)
    (tmp_path / "inputs.pickle").write_bytes(backtest.pickle.dumps(("Select nothing From readings", {}, {})))
    task = BacktestTask(str(made / "a"), open_archive(made / "a").store.snapshot, str(tmp_path), 1, plan.parts[1])
    with pytest.raises(HyperGridError, match="part 2 of the back-test failed"):
        run_task(task)


def test_results_are_read_from_the_folder(spark: SparkSession, made: Path, tmp_path: Path) -> None:
    query = ContinuousArchive(open_inputs(open_archive(made / "a"))).query(QUERIES["network"][0])
    seen: list[float] = []
    plan, parts = backtest_on_spark(
        query, QUERIES["network"][0], (None, None, "time"), workers=Executors(spark), folder=tmp_path,
        progress=lambda _, fraction: seen.append(fraction),
    )  # fmt: skip
    pd.testing.assert_frame_equal(
        pd.concat([*parts], ignore_index=True),
        run_alone(query, "time"),
    )
    assert len(plan.parts) > 1
    assert seen[-1] == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--master", "spark://h:7077"), "give --spark as well"),
        (("--spark", "--order", "random"), "time or arrival"),
        (("--spark", "--from", "2030-01-01"), "is empty"),
    ],
)
def test_bad_input_is_refused(
    options: tuple[str, ...],
    message: str,
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = ("cql", "backtest", made / "a", made / "mean.cql", *options, "-o", tmp_path / "out.csv")
    monkeypatch.setattr(sys, "argv", ["hypergrid", *map(str, asked)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_is_none_is_refused(made: Path, tmp_path: Path) -> None:
    asked = [made / "a", made / "mean.cql", "--spark", "--master", "yarn", "-o", tmp_path / "out.csv"]
    command = [sys.executable, "-m", "hypergrid", "cql", "backtest", *map(str, asked)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "a master is spark://HOST:PORT; got 'yarn'" in ended.stderr
    assert list(tmp_path.iterdir()) == []
