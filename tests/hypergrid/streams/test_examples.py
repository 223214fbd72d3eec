"""What the README and the docstrings show, runs."""

import doctest
import importlib
from pathlib import Path

import pytest

import hypergrid.streams


@pytest.mark.parametrize("name", ["cost", "join", "monitors", "pipeline", "sharing"])
def test_examples_of_docstrings_run(name: str) -> None:
    ran = doctest.testmod(importlib.import_module(f"hypergrid.streams.{name}"))
    assert ran.attempted > 0
    assert ran.failed == 0


def test_the_readme_runs_and_names_every_file() -> None:
    folder = Path(hypergrid.streams.__file__).parent
    text = (folder / "README.md").read_text(encoding="utf-8")
    made: dict[str, object] = {}
    exec(compile(text.split("```python\n")[1].split("```")[0], "README.md", "exec"), made)
    matches = made["matches"]
    assert isinstance(matches, hypergrid.streams.Matches)
    assert matches.rows.tolist() == [[0, 0, 0]]
    # Small ones that only serve others, and the laboratory.
    left_out = {
        "__init__",
        "compiled",
        "parameters",
        "arrivals",
        "generator",
        "loads",
        "replay",
        "optimum",
        "fixed_window",
    }
    ours = {path.stem for path in folder.glob("*.py")} - left_out
    assert {name for name in ours if f"`{name}.py`" not in text and f"streams.{name}`" not in text} == set()


def test_only_what_exists_is_exported() -> None:
    assert all(getattr(hypergrid.streams, name).__name__ == name for name in hypergrid.streams.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        hypergrid.streams.Nobody  # noqa: B018 - asked for only
