"""A file that is replaced is the old one or the new one, whatever ends the writer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hypergrid.core.files import replace_atomically


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_replaced_at_the_end(tmp_path: Path, *, durable: bool) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with replace_atomically(path, durable=durable) as scratch:
        scratch.write_text("new")
        assert (scratch.suffix, path.read_text()) == (".json", "old")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")

    def fail() -> None:
        with replace_atomically(path) as scratch:
            scratch.write_text("half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_wrote_nothing_is_told_and_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replace_atomically(tmp_path / "a.json"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    program = (
        "import os, signal, sys; from pathlib import Path; from hypergrid.core.files import replace_atomically\n"
        "with replace_atomically(Path(sys.argv[1])) as scratch:\n"
        "    scratch.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, path], env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert ended.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    with replace_atomically(path) as scratch:
        scratch.write_text("new")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("a.json", "new")]
