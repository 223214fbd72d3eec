"""Each ruling where the papers differ has a line in the README and a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_ruling_is_said_and_tested() -> None:
    rows = re.findall(
        r"^\| (R\d+)\b.*? \| (.*) \|$", (ROOT / "hypergrid/continuous/README.md").read_text(), re.MULTILINE
    )
    assert sorted({ruling for ruling, _ in rows}, key=lambda name: int(name[1:])) == [f"R{n}" for n in range(1, 13)]
    sources = "".join(path.read_text() for path in (ROOT / "tests/hypergrid/continuous").rglob("test_*.py"))
    for ruling, tests in rows:
        names = re.findall(r"`(test_\w+)`", tests)
        assert names, ruling
        for name in names:
            assert f"def {name}(" in sources, (ruling, name)
