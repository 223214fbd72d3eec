"""The command line, run in the process of the tests or in one of its own."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from hypergrid.cli.main import main


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def hypergrid(*words: str | Path) -> Done:
    """Run the command line in this process: a start of Python for each case would take most of the test's time."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["hypergrid", *map(str, words)])
        try:
            main()
        except SystemExit as leaving:
            status = int(leaving.code or 0)
        else:
            status = 0
    return Done(status, out.getvalue(), err.getvalue())


def process(*words: str | Path) -> Done:
    """Run the command line in a process of its own, as a user does."""
    command = [sys.executable, "-m", "hypergrid", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)
