import filecmp
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from station_data import generate as generator
from station_data.generate import generate, main
from station_data.network import stations
from station_data.truth import VARIABLES

Table = NDArray[np.float64]
SAMPLE = Path(generator.__file__).parent / "sample"
DAY = 86_400
SAMPLE_START = int(np.datetime64("2007-10-01", "s").astype(np.int64))


def everything(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def assert_same(one: Path, other: Path) -> None:
    assert everything(one) == everything(other)
    _, different, unreadable = filecmp.cmpfiles(one, other, map(str, everything(one)), shallow=False)
    assert (different, unreadable) == ([], [])


@pytest.mark.parametrize(("seed", "count"), [(2007, 24), (5, 3), (5, 30)])
def test_same_arguments_give_the_same_bytes(tmp_path: Path, seed: int, count: int) -> None:
    for name in ("one", "other"):
        generate(tmp_path / name, start="2007-10-01", days=1, seed=seed, stations=count)
    assert_same(tmp_path / "one", tmp_path / "other")
    assert len(list((tmp_path / "one" / "csv").iterdir())) == count


def test_seeds_differ(tmp_path: Path) -> None:
    texts = [
        (generate(tmp_path / str(seed), days=1, seed=seed, stations=1) / "csv" / "pass-1.csv").read_text()
        for seed in (1, 2)
    ]
    assert texts[0] != texts[1]


def test_sample_is_what_the_command_line_writes(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "station_data.generate", str(tmp_path / "again")]
    subprocess.run([*words, "--start", "2007-10-01", "--days", "1", "--format", "sensorscope"], check=True)
    assert_same(tmp_path / "again", SAMPLE)


def test_sample_equals_its_day_of_the_four_weeks(
    four_weeks: Path, read_text: Callable[[Path, str], Table], read_arrivals: Callable[[Path], Table]
) -> None:
    for station in stations():
        long = read_text(four_weeks, station.id)
        day = long[(long[:, 7] >= SAMPLE_START) & (long[:, 7] < SAMPLE_START + DAY)]
        np.testing.assert_array_equal(day, read_text(SAMPLE, station.id))
    arrivals = read_arrivals(four_weeks)
    of_day = (arrivals[:, 1] >= SAMPLE_START) & (arrivals[:, 1] < SAMPLE_START + DAY)
    np.testing.assert_array_equal(arrivals[of_day], read_arrivals(SAMPLE))


def test_sizes(four_weeks: Path) -> None:
    def size(folder: Path) -> int:
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    assert size(SAMPLE) < 3_000_000
    assert 35e6 < size(four_weeks / "sensorscope") < 50e6


def test_text_is_in_the_format_of_the_network(four_weeks: Path, read_text: Callable[[Path, str], Table]) -> None:
    line = (four_weeks / "sensorscope" / "pass-meteo-3.txt").read_text().splitlines()[1000]
    tokens = line.split(" ")
    assert len(tokens) == 17
    assert tokens[0] == "3"
    local = f"{tokens[1]}-{tokens[2]}-{tokens[3]}T{tokens[4]}:{tokens[5]}:{tokens[6]}"
    assert int(np.datetime64(local, "s").astype(np.int64)) - int(tokens[7]) == 7200
    assert all(token == "NaN" or len(token.split(".")[1]) == 3 for token in tokens[8:])
    assert "-0.000" not in tokens
    share = np.isnan(read_text(four_weeks, "3")[:, 8:]).mean()
    assert 0.001 < share < 0.2


def test_csv_holds_the_same_readings(tmp_path: Path, read_text: Callable[[Path, str], Table]) -> None:
    out = generate(tmp_path / "out", start="2007-10-01", days=1, stations=2)
    lines = (out / "csv" / "pass-2.csv").read_text().splitlines()
    assert lines[0] == ",".join(("station", "time", *VARIABLES))
    text = read_text(out, "2")
    assert len(lines) - 1 == len(text)
    for line, row in zip(lines[1:], text, strict=True):
        station, time, *values = line.split(",")
        assert (station, time[-1]) == ("2", "Z")
        assert np.datetime64(time[:-1], "s").astype(np.int64) == row[7]
        np.testing.assert_array_equal([float(value) if value else np.nan for value in values], row[8:])


def test_clocks_are_unsynchronised_and_119_to_121_s_apart(
    four_weeks: Path, read_text: Callable[[Path, str], Table]
) -> None:
    phases = set()
    for station in ("1", "2", "3", "9"):
        times = read_text(four_weeks, station)[:, 7]
        periods = np.diff(times)
        near = periods[periods < 125]
        assert set(near) == {119.0, 120.0, 121.0}
        assert near.size > 0.98 * periods.size
        phases.add(times[0] % 120)
    assert len(phases) == 4


def test_deployment_file_names_feeds_columns_and_stations(tmp_path: Path) -> None:
    out = generate(tmp_path / "out", start="2007-10-01", days=1, stations=5)
    deployment = tomllib.loads((out / "deployment.toml").read_text(encoding="utf-8"))
    assert deployment["network"]["slice_s"] == 120
    assert [feed["format"] for feed in deployment["feed"]] == ["sensorscope", "csv"]
    for feed in deployment["feed"]:
        columns = feed["columns"]
        assert [columns[name]["variable"] for name in columns] == list(VARIABLES)
        assert [columns[name]["unit"] for name in columns] == list(VARIABLES.values())
        assert (out / feed["arrivals"]).is_file()
        matched = [path for path in (out / feed["name"]).iterdir() if path.match(feed["files"])]
        assert len(matched) == 5
        # Tables beside the readings must not be taken for readings when the whole folder is ingested.
        assert not [path for path in out.iterdir() if path.is_file() and path.match(feed["files"])]
    assert [one["id"] for one in deployment["station"]] == ["1", "2", "3", "4", "5"]
    table = np.loadtxt(out / "stations.csv", delimiter=",", skiprows=1)
    assert [[float(one[key]) for key in ("id", "lon", "lat", "elevation_m")] for one in deployment["station"]] == (
        table.tolist()
    )


def test_folder_in_use_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="needs a folder that does not exist or is empty"):
        generate(tmp_path, days=1, stations=1)
    assert everything(tmp_path) == [Path("note.txt")]
    assert main([str(tmp_path), "--days", "1", "--stations", "1"]) == 1


def test_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "out", days=1, stations=2, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        ["--days", "0"],
        ["--seed", "-1"],
        ["--stations", "0"],
        ["--format", "xml"],
        ["--start", "2007-10-01T06:00"],
        ["--start", "tomorrow"],
    ],
)
def test_wrong_use_ends_with_status_2(tmp_path: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "out"), *wrong]) == 2
    assert capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
