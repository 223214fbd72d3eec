"""The archive is the first argument of every command; --archive and the environment stand for it."""

from pathlib import Path

import pytest
import typer

from hypergrid.archive import Archive
from hypergrid.cli import commands
from hypergrid.cli.archive_argument import ArchiveCommand
from hypergrid.core.units import KNOWN_VARIABLES
from tests.hypergrid.cli.test_archive_commands import run

WITHOUT = {"functions", "demo", "bench", "cql check"}
"""Commands that take no archive, or need none."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("archives")
    for name, variable in (("one", "air_temperature"), ("two", "wind_speed")):
        Archive.create(folder / name, name=name, slice_s=60, variables=[KNOWN_VARIABLES[variable]], now_ns=0)
    return folder / "one", folder / "two"


def _list_commands() -> dict[str, typer.core.TyperCommand]:
    found = {}
    for name, command in typer.main.get_command(commands.app).commands.items():  # type: ignore[attr-defined]
        parts = getattr(command, "commands", None)
        found |= {f"{name} {part}": one for part, one in parts.items()} if parts else {name: command}
    return {name: command for name, command in found.items() if name not in WITHOUT}


@pytest.mark.parametrize("name", sorted(_list_commands()))
def test_every_command_takes_the_archive_first(name: str) -> None:
    command = _list_commands()[name]
    assert isinstance(command, ArchiveCommand)
    first, *others = (param for param in command.params if param.param_type_name == "argument")
    assert (first.name, first.metavar) == ("archive", "ARCHIVE")
    assert all(param.metavar == param.metavar.upper() for param in others)
    assert "--archive" not in {option for param in command.params for option in param.opts}


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        ("variables ONE --json", ""),
        ("variables --archive ONE --json", ""),
        ("variables --json --archive=ONE", ""),
        ("variables --json", "ONE"),
        ("variables ONE --archive ONE --json", ""),
        ("variables ONE --json", "TWO"),
        ("variables --archive ONE --json", "TWO"),
    ],
)
def test_the_archive_is_given_in_any_way(
    archives: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, line: str, environment: str
) -> None:
    places = {"ONE": str(archives[0]), "TWO": str(archives[1])}
    monkeypatch.setenv("HYPERGRID_ARCHIVE", places.get(environment, ""))
    words = [word.replace("ONE", places["ONE"]).replace("TWO", places["TWO"]) for word in line.split()]
    assert run(*words) == run("variables", archives[0], "--json")


def test_other_arguments_follow_it_however_it_is_given(archives: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "query.json").write_text('{"variable": "air_temperature", "steps": []}')
    answers = {
        run("explain", archives[0], tmp_path / "query.json"),
        run("explain", tmp_path / "query.json", "--archive", archives[0]),
        run("explain", "--archive", archives[0], "--", tmp_path / "query.json"),
    }
    assert len(answers) == 1


def test_two_archives_are_refused(archives: tuple[Path, Path]) -> None:
    one, two = archives
    for words in (("variables", one), ("suggest", one), ("query", one, "--again", "x.nc"), ("ingest", one, "x.csv")):
        status, out, said = run(*words, "--archive", two)
        assert (status, out) == (2, "")
        assert f"needs one archive; got {one} as the first argument, and --archive {two}" in said


def test_a_file_in_the_place_of_the_archive_is_explained(archives: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("station,time,air_temperature\n")
    for command, rest in (("query", ("-o", "x.nc")), ("explain", ()), ("ingest", ("x.csv",))):
        status, _, said = run(command, tmp_path / "a.csv", *rest)
        assert status == 2
        assert f"{command} ARCHIVE {tmp_path / 'a.csv'}'" in said
    status, _, said = run("variables", "--archive")
    assert (status, "--archive needs the folder of an archive" in said) == (2, True)
    assert "got only" in run("ingest", tmp_path)[2]


def test_a_dry_run_needs_no_archive(archives: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("station,time,air_temperature\nA,2024-01-01T00:00Z,1.5\n")
    told = run("ingest", "--dry-run", tmp_path / "a.csv", "--json")
    assert told[0] == 0
    assert run("ingest", archives[0], tmp_path / "a.csv", "--dry-run", "--json")[1] == told[1]
    assert run("ingest", tmp_path / "new", tmp_path / "a.csv", "--dry-run", "--json")[1] == told[1]
    assert not (tmp_path / "new").exists()


def test_a_backup_is_restored_into_the_archive_that_stands_first(archives: tuple[Path, Path], tmp_path: Path) -> None:
    assert run("backup", archives[0], tmp_path / "backup")[0] == 0
    status, _, said = run("restore", tmp_path / "backup", tmp_path / "new")
    assert (status, f"'hypergrid restore {tmp_path / 'new'} {tmp_path / 'backup'}'" in said) == (2, True)
    assert run("restore", tmp_path / "new", tmp_path / "backup")[0] == 0
    assert run("variables", tmp_path / "new", "--json")[1] == run("variables", archives[0], "--json")[1]
