import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from hypergrid.cli import commands
from hypergrid.cli.main import COMMANDS, PANELS, app, load_command


def test_the_table_of_commands_is_that_of_the_commands() -> None:
    loaded = typer.main.get_command(commands.app).commands  # type: ignore[attr-defined]
    assert {name: command.get_short_help_str(500) for name, command in loaded.items()} == dict(COMMANDS)


def test_a_command_is_loaded_when_it_is_given() -> None:
    assert {option.name for option in load_command("explain").params} >= {"file", "archive"}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("hypergrid re", {"rejects", "reprocess", "restore"}),
        ("hypergrid standing m", {"mute"}),
        ("hypergrid query --a", {"--again", "--allowed-bytes"}),
    ],
)
def test_a_shell_completes_commands_and_options(words: str, offered: set[str]) -> None:
    told = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_HYPERGRID_COMPLETE": "complete_bash"}
    answer = CliRunner().invoke(app, [], env=told, prog_name="hypergrid")
    assert set(answer.output.split()) == offered


@pytest.mark.parametrize("columns", [80, 160])
def test_help_fits_the_terminal_and_follows_the_order_of_use(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Read by Typer once, when it is imported.
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", columns)
    lines = CliRunner().invoke(app, ["--help"], prog_name="hypergrid").output.splitlines()
    assert max(map(len, lines)) == columns
    at = [next(n for n, line in enumerate(lines) if line.startswith(f"│ {name} ")) for name in COMMANDS]
    assert at == sorted(at)
    assert [name for name in PANELS if not any(line.startswith(f"╭─ {name} ") for line in lines)] == []


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_lists_every_command_and_loads_no_engine(arguments: list[str]) -> None:
    program = (
        "import sys; from hypergrid.cli.main import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "try: main()\n"
        "finally: print('loaded:', *(name for name in ('numpy', 'xarray', 'icechunk', 'numba') if name in sys.modules))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=None, check=False, timeout=60
    )
    assert answer.stdout.splitlines()[-1] == "loaded:"
    assert [name for name in COMMANDS if name not in answer.stdout] == []


def test_a_server_begins_without_the_libraries_of_results() -> None:
    """They take as long to load as all else: its first answers need none, and they are loaded once it listens."""
    program = (
        "import sys, hypergrid.cli.commands, queries.web.serving\n"
        "late = ('xarray', 'pandas', 'matplotlib', 'bokeh', 'numba', 'pykrige', 'pyspark')\n"
        "print('loaded:', *(name for name in late if name in sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert answer.stdout.splitlines()[-1] == "loaded:", answer.stderr
