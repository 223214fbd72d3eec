"""`hypergrid stream` of files that grow, and of files in the order in which their lines came, beside a batch ingest."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hypergrid.archive import Archive
from ingest.job import ingest
from tests.ingest.streamed import SAMPLE, messages

SENSORSCOPE = tuple(map(str, range(1, 13)))
MESSAGES = ("13", "14")
FEED = '\n[[feed]]\nname = "radio"\nfiles = "*.jsonl"\nformat = "messages"\n{columns}\n'


def run_stream(archive: Path, *words: str | Path) -> dict[str, Any]:
    """Run the command in a process of its own until nothing more comes; return its report."""
    command = [sys.executable, "-m", "hypergrid", "stream", str(archive), *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def values(archive: Path) -> dict[str, dict[tuple[str, int], float]]:
    """Return the values of each variable by station and stamp."""
    opened, found = Archive.open(archive), {}
    for name in opened.variables:
        stored = opened.read(name)
        stations = [stored.series[number].station for number in stored.index.tolist()]
        rows = zip(stations, stored.time_ns.tolist(), stored.value.tolist(), strict=True)
        found[name] = {(station, stamp): value for station, stamp, value in rows if value == value}
    return found


def write_description(folder: Path, more: str) -> Path:
    """Write the sample's deployment file without arrivals and quality tests, with a feed of messages."""
    text = (SAMPLE / "deployment.toml").read_text().replace('arrivals = "arrivals.csv"\n', "")
    columns = text[text.index("[feed.columns]") : text.index("[[station]]")]
    path = folder / "deployment.toml"
    path.write_text(text + FEED.format(columns=columns) + more)
    return path


@pytest.mark.spark
def test_files_that_grow_become_the_archive_of_a_batch_ingest(tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    # Little memory for what waits: the stations come one after another, so all rows of the first wait for the last.
    deployment = write_description(watched, '\n[stream]\njoin = "feed"\nmemory = "2MiB"\n')
    lines = {
        f"pass-meteo-{station}.txt": (SAMPLE / "sensorscope" / f"pass-meteo-{station}.txt").read_text().splitlines()
        for station in SENSORSCOPE
    }
    lines["radio.jsonl"] = [one.payload.decode() for one in messages(MESSAGES)]
    lines["radio.jsonl"].insert(3, '{"station": "13", "time": "no time", "air_temperature": 1.0}')
    for name, every in lines.items():
        (watched / name).write_text("".join(f"{line}\n" for line in every[: len(every) // 2]))
    with zipfile.ZipFile(watched / "more.zip", "w") as packed:
        packed.write(SAMPLE / "sensorscope" / "pass-meteo-20.txt", "pass-meteo-20.txt")
    archive = tmp_path / "archive"
    first = run_stream(archive, "--deployment", deployment, "--watch", watched, "--until-idle", "--trigger", "1s")
    assert first["ledger"]["held"] == 0
    for name, every in lines.items():
        with (watched / name).open("a") as file:
            file.writelines(f"{line}\n" for line in every[len(every) // 2 :])
    second = run_stream(archive, "--watch", watched, "--until-idle", "--trigger", "1s")
    assert second["ledger"]["came"] > first["ledger"]["came"]
    ingest([watched], tmp_path / "expected", now_ns=1, engine="inprocess")
    assert values(archive) == values(tmp_path / "expected")
    assert [reject.line for reject in Archive.open(archive).rejects() if reject.file.endswith("radio.jsonl")]


@pytest.mark.spark
def test_files_are_replayed_in_the_order_in_which_their_lines_came(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("deployment.toml", "arrivals.csv", *(f"sensorscope/pass-meteo-{station}.txt" for station in "147")):
        (source / Path(name).name).write_bytes((SAMPLE / name).read_bytes())
    archive = tmp_path / "archive"
    command = [sys.executable, "-m", "hypergrid", "stream", archive, "--deployment", source / "deployment.toml"]
    done = subprocess.run(
        [*map(str, command), "--watch", str(source), "--by-arrival"], capture_output=True, text=True, check=False,
        timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "batches in" in done.stdout + done.stderr
    ingest([source], tmp_path / "expected", now_ns=1, engine="inprocess")
    assert values(archive) == values(tmp_path / "expected")
