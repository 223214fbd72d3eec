import subprocess
import sys

import pytest
import typer

from hypergrid.cli import commands
from hypergrid.cli.main import COMMANDS, load_command


def test_the_table_of_commands_is_that_of_the_commands() -> None:
    loaded = typer.main.get_command(commands.app).commands  # type: ignore[attr-defined]
    assert {name: command.get_short_help_str(500) for name, command in loaded.items()} == dict(COMMANDS)


def test_a_command_is_loaded_when_it_is_given() -> None:
    assert {option.name for option in load_command("explain").params} >= {"file", "archive"}


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
