"""The README is true: its Python runs as printed, its commands work, its links lead somewhere."""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import xarray as xr

import hypergrid as hg
from hypergrid.cli.main import app, load_command
from hypergrid.core.times import parse_instant
from hypergrid.layers.raster_reader import read_raster
from station_data.terrain import write_terrain
from tests.end_to_end.conftest import ROOT
from tests.end_to_end.in_process import hypergrid


def blocks(readme: Path, language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", readme.read_text(), flags=re.DOTALL)


def test_python_example_runs_exactly_as_printed(root: Path, five_days: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = blocks(root / "README.md", "python")
    monkeypatch.chdir(five_days)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "README.md", "exec"), {})
    text = printed.getvalue()
    assert "Rewritten by: " in text
    assert "100% of 529 cells" in text
    mean = re.search(r"^(-?\d+\.\d+) degC$", text, flags=re.MULTILINE)
    assert mean is not None
    assert -10 < float(mean[1]) < 15


@pytest.fixture
def demo_folder(root: Path, five_days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder that looks as the checkout does after `make demo`, and work in it."""
    (tmp_path / "station_data").symlink_to(root / "station_data")
    (tmp_path / "build/demo").mkdir(parents=True)
    (tmp_path / "build/demo/archive").symlink_to(five_days / "build/demo/archive")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands_of(root: Path) -> list[list[str]]:
    """Return the command lines of the README, word by word, but for `serve`: tests/browser serves."""
    lines = [line for block in blocks(root / "README.md", "sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True)[1:] for line in lines if "bin/hypergrid" in line]
    assert len(commands) >= 5
    return [words for words in commands if words[0] != "serve"]


ON_SPARK = ("stream", "reprocess")
"""Commands that start Spark, which wants a process of its own."""


def test_commands_of_the_command_line_work(root: Path, demo_folder: Path) -> None:
    for words in commands_of(root):
        if words[0] not in ON_SPARK:
            done = hypergrid(*words)
            assert done.returncode == 0, f"{words}\n{done.stderr}"
    with xr.open_dataset(demo_folder / "build/q1.nc") as answered:
        assert bool(answered["air_temperature"].notnull().all())


@pytest.mark.usefixtures("demo_folder")
def test_commands_that_start_spark_work(root: Path) -> None:
    # They go on with the archive that the first one makes.
    first, *others = commands_of(root)
    assert first[0] == "ingest"
    commands = [words for words in others if words[0] in ON_SPARK]
    assert {words[0] for words in commands} == set(ON_SPARK)
    for words in (first, *commands):
        command = [sys.executable, "-m", "hypergrid", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}\n{done.stderr}"


FOLDERS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.rglob("README.md")
    if not {".venv", "build", "tests"} & set(path.relative_to(ROOT).parts)
)
PLACEHOLDERS = {"ARCHIVE": "archive", "DIR": "archive", "NAME": "alice", "TARGET": "backup", "BACKUP": "backup"}
LONG_RUNNING = {"bench", "demo", "reprocess", "serve", "stream"}


def mentions(readme: Path) -> list[list[str]]:
    """Return the command lines in the text of a README, word by word, without what stands in square brackets."""
    lines = re.findall(r"`hypergrid ([^`]+)`", readme.read_text())
    return [re.sub(r"\[[^\]]*\]", "", line).split() for line in lines]


@pytest.mark.parametrize("readme", FOLDERS)
def test_commands_and_options_that_a_readme_names_exist(readme: str) -> None:
    root = typer.main.get_command(app)
    for words in mentions(ROOT / readme):
        command, *others = root, *words
        while others and not others[0].startswith("-") and hasattr(command, "commands") and others[0] != "…":
            command, others = command.commands[others[0]], others[1:]
            command = load_command(words[0]) if command.name == words[0] else command
        known = {option for param in command.params for option in param.opts}
        assert {word for word in others if re.match(r"--?[a-z]", word)} <= known | {
            "--install-completion", "--archive",
        }, words  # fmt: skip


def test_commands_of_the_folders_work_as_printed(root: Path, five_days: Path, demo_folder: Path) -> None:
    shutil.copytree(five_days / "build/demo/archive", demo_folder / "archive")
    write_terrain(demo_folder / "dem.tif")
    run = []
    for readme in FOLDERS:
        for words in mentions(root / readme):
            filled = [PLACEHOLDERS.get(word, word) for word in words]
            whole = all(
                (demo_folder / word).exists() for word in filled if re.search(r"[./]", word) and word != "best.png"
            )
            if words[0] in LONG_RUNNING or not whole or any(re.search("[A-Z…]", word) for word in filled):
                continue
            if len(words) > 1 + (words[0] in ("keys", "standing", "layers", "cql")) or words[0] == "functions":
                if words[0] == "restore":
                    shutil.rmtree("archive")
                done = hypergrid(*filled)
                # A name and an option alone, such as `hypergrid check --deep`, are no whole line.
                if not re.search("Missing argument|requires an argument|Missing option", done.stderr):
                    assert done.returncode == 0, f"{filled}\n{done.stderr}"
                    run.append(" ".join(words[:2]))
    assert {"functions quantile", "layers add", "restore ARCHIVE", "quality ARCHIVE", "keys create"} <= set(run)


def test_links_and_pictures_exist(root: Path) -> None:
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", (root / "README.md").read_text())
    assert len(targets) >= 8
    missing = [target for target in targets if not (root / target).exists()]
    assert not missing


def test_first_screen_says_what_it_is_and_gives_the_two_commands(root: Path) -> None:
    first = (root / "README.md").read_text().splitlines()[:30]
    text = "\n".join(first)
    for needed in ("stations", "make demo", "make test", ".png"):
        assert needed in text


def test_python_examples_of_points_and_of_heights_run_exactly_as_printed(
    root: Path, five_days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, heights = blocks(root / "hypergrid/README.md", "python")
    monkeypatch.chdir(five_days)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for example in (points, heights):
            exec(compile(example, "README.md", "exec"), {})
    huts, levels, column, counts = printed.getvalue().splitlines()
    assert "'time': 24, 'point': 2" in huts
    assert "'time': 24, 'z': 3, 'lat': 23, 'lon': 23" in levels
    assert "'z': 1, 'lat': 1, 'lon': 1" in column
    assert sum(map(int, counts.strip("[]").split())) > 10


def test_python_example_of_kriging_runs_exactly_as_printed(
    root: Path, five_days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = blocks(root / "hypergrid/interpolation/README.md", "python")
    shutil.copytree(five_days / "build/demo/archive", tmp_path / "build/demo/archive")
    terrain = read_raster(write_terrain(tmp_path / "terrain.tif"), name="elevation")
    hg.open(tmp_path / "build/demo/archive").store.add_layer(terrain, now_ns=parse_instant("2007-10-05"))
    monkeypatch.chdir(tmp_path)
    printed, made = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "README.md", "exec"), made)
    error, means = printed.getvalue().splitlines()
    assert 0 < float(error) < 1
    mean, variance = map(float, means.split())
    assert -10 < mean < 15
    assert 0 < variance < 1
    assert dict(made["fields"].sizes) == {"realisation": 5, "time": 1, "lat": 23, "lon": 23}
    assert made["by_region"].score.rmse > float(error)
