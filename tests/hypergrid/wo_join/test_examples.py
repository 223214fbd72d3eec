"""What the README and the docstrings show, runs."""

import doctest
import importlib
from pathlib import Path

import pytest

import hypergrid.wo_join


@pytest.mark.parametrize("name", ["join", "memory", "monitors", "pipeline"])
def test_examples_of_docstrings_run(name: str) -> None:
    ran = doctest.testmod(importlib.import_module(f"hypergrid.wo_join.{name}"))
    assert ran.attempted > 0
    assert ran.failed == 0


def test_the_readme_runs_and_names_every_file() -> None:
    folder = Path(hypergrid.wo_join.__file__).parent
    text = (folder / "README.md").read_text(encoding="utf-8")
    made: dict[str, object] = {}
    exec(compile(text.split("```python\n")[1].split("```")[0], "README.md", "exec"), made)
    matches = made["matches"]
    assert isinstance(matches, hypergrid.wo_join.Matches)
    assert matches.rows.tolist() == [[0, 0, 0]]
    # Small ones that only serve others.
    left_out = {"compiled.py", "config.py"}
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py") if path.stem != "__init__"} - left_out
    assert {file for file in files if f"`{file}`" not in text and f"wo_join.{file[:-3]}`" not in text} == set()


def test_only_what_exists_is_exported() -> None:
    assert all(getattr(hypergrid.wo_join, name).__name__ == name for name in hypergrid.wo_join.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        hypergrid.wo_join.Nobody  # noqa: B018 - asked for only
