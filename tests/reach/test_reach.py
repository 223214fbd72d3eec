"""Functions that users reach are told from those that only tests call, and each that is listed exists."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reach import __main__ as report
from tests.reach.__main__ import Reach, prepare
from tests.reach.functions import Function, add_compiled, find_definitions, instrument, list_functions
from tests.reach.reasons import read_reasons, read_varying
from tests.reach.suite import LEFT_OUT, SERVERS, SUITE

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = '''
"""A product of functions."""
from functools import cached_property
from threading import Thread

def door(callback=None):
    """Do the work."""
    if callback:
        callback()
    return Shape(3).area

class Shape:
    def __init__(self, side):
        self.side = side

    @cached_property
    def area(self):
        return _multiply(self.side, self.side)

    def __repr__(self):
        return "shape"

def _multiply(a, b):
    return [a * b for _ in range(1)][0]

def private():
    return lonely()

def lonely():
    return 1

def in_a_thread():
    Thread(target=served).start()

def served():
    return 2

def of_a_document():
    return 3

def of_a_script():
    return 4

def of_a_command():
    return 5

def declared():
    """Only say so."""
    ...
'''
USES = """
import subprocess, sys
import typer
from typer.testing import CliRunner
from hypergrid import product
from hypergrid.product import door, in_a_thread, private
private()
door(callback=lambda: private())
in_a_thread()
exec(compile("product.of_a_document()", "README.md", "exec"))
made = typer.Typer()
made.command()(product.of_a_command)
CliRunner().invoke(made, [], catch_exceptions=False)
script = "from hypergrid import product; product.of_a_script(); product.door()"
subprocess.run([sys.executable, "-c", script], check=True)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a product of one module, and a test that calls it."""
    for name, text in (("hypergrid/__init__.py", ""), ("hypergrid/product.py", PRODUCT), ("tests/test_uses.py", USES)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_a_user_can_cause_is_told_from_what_a_test_calls(checkout: Path) -> None:
    functions = list_functions(checkout)
    environment = prepare(checkout / "state", functions, [("hypergrid/product.py", "door")], checkout)
    # Twice: the second run reads the bytecode that the first kept.
    for _ in range(2):
        subprocess.run([sys.executable, "tests/test_uses.py"], cwd=checkout, env=environment, check=True)
    marks = (checkout / "state" / "marks").read_bytes()
    reached = {function.name for function, mark in zip(functions, marks, strict=True) if mark}
    assert reached == {
        "door", "Shape.__init__", "Shape.area", "_multiply", "served", "of_a_document", "of_a_command",
    }  # fmt: skip


def test_what_a_user_reaches_counts_after_many_calls_by_another_test(checkout: Path) -> None:
    (checkout / "tests" / "test_uses.py").write_text(
        "from hypergrid.product import _multiply, door\n"
        "def test_internals():\n    for _ in range(100): _multiply(1, 2)\n"
        "def test_use():\n    door()\n"
    )
    functions = list_functions(checkout)
    environment = prepare(checkout / "state", functions, [("hypergrid/product.py", "door")], checkout)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "none.ini", "--rootdir", "."]
    (checkout / "none.ini").write_text("[pytest]\n")
    command += ["-p", "tests.reach.each_test", "tests/test_uses.py"]
    # Options of the suite around it are not for this one.
    environment.pop("PYTEST_ADDOPTS", None)
    subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True)
    marks = (checkout / "state" / "marks").read_bytes()
    reached = {function.name for function, mark in zip(functions, marks, strict=True) if mark}
    assert {"door", "Shape.area", "_multiply"} <= reached


def test_kinds_of_functions() -> None:
    source = (
        "class A:\n    def f(self): ...\n    def g(self):\n        raise NotImplementedError\n    @property\n"
        "    def h(self): return 1\n    @h.setter\n    def h(self, value): self.x = value\n"
        "    def __repr__(self): return 'A'\n"
        "@njit(cache=True)\ndef fast(x):\n    def inner(y): return y\n    return inner(x)\n"
        "@overload\ndef either(x: int) -> int: ...\n"
        "if TYPE_CHECKING:\n    def typed(): return 1\n"
    )
    assert [(name, kind) for _, name, kind in find_definitions(ast.parse(source))] == [
        ("A.f", "empty"), ("A.g", "empty"), ("A.h", "python"), ("A.h#2", "python"), ("A.__repr__", "empty"),
        ("fast", "compiled"), ("fast.<locals>.inner", "compiled"), ("either", "empty"), ("typed", "empty"),
    ]  # fmt: skip


def test_an_instrumented_function_keeps_its_docstring_and_its_lines() -> None:
    source = 'def f():\n    """Say it."""\n    return 1\n\nclass A:\n    def g(self): return 2\n'
    tree = instrument(source.encode(), 7)
    assert [ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)] == ["Say it."]
    assert "__reached__[7] or __reach__(7)" in ast.unparse(tree)
    assert "__reached__[8] or __reach__(8)" in ast.unparse(tree)
    names: dict[str, object] = {"__reached__": bytes(9), "__reach__": lambda number: 1 / (number - 7)}
    exec(compile(tree, "x.py", "exec"), names)
    with pytest.raises(ZeroDivisionError) as raised:
        names["f"]()  # type: ignore[operator]
    assert raised.traceback[-2].lineno == 2


def test_a_compiled_function_is_reached_with_its_caller() -> None:
    functions = [
        Function("a.py", "caller", 1, "python", frozenset({"fast"})),
        Function("a.py", "other", 2, "python", frozenset({"slow"})),
        Function("b.py", "fast", 1, "compiled", frozenset({"faster"})),
        Function("b.py", "fast.<locals>.inner", 2, "compiled", frozenset()),
        Function("c.py", "faster", 1, "compiled", frozenset()),
        Function("c.py", "slow", 2, "compiled", frozenset()),
    ]
    assert add_compiled(functions, {"a.py: caller"}) - {"a.py: caller"} == {
        "b.py: fast", "b.py: fast.<locals>.inner", "c.py: faster",
    }  # fmt: skip


def test_only_what_has_no_reason_is_a_finding() -> None:
    functions = [Function("a.py", name, 1, "python", frozenset()) for name in ("used", "explained", "dead")]
    reach = Reach(functions, frozenset({"a.py: used"}), {"a.py: explained": "an error of the disk"})
    assert [function.name for function in reach.unexplained] == ["dead"]
    assert reach.as_json()["reached"] == 1
    assert "users reach 1 of 3 functions (33.3%); 1 others have a reason" in reach.describe()
    assert reach.describe().splitlines()[1:] == ["a.py", "  1: dead"]
    assert json.dumps(reach.as_json())


def test_a_reason_of_what_is_reached_is_a_finding() -> None:
    functions = [Function("a.py", name, 1, "python", frozenset()) for name in ("used", "cached", "dead")]
    reasons = {function.key: "an error of the disk" for function in functions}
    reach = Reach(functions, frozenset({"a.py: used", "a.py: cached"}), reasons, frozenset({"a.py: cached"}))
    assert reach.outdated == reach.as_json()["outdated"] == ["a.py: used"]
    assert reach.describe().splitlines()[1:] == [
        "tests/reach/unexercised.toml has reasons of functions that were reached; remove them:", "  a.py: used",
    ]  # fmt: skip


def test_both_findings_fail_the_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    used = [Function("a.py", "used", 1, "python", frozenset())]
    statuses = []
    for reached, reasons in ((["a.py: used"], {}), (["a.py: used"], {"a.py: used": "x"}), ([], {})):
        (tmp_path / "reached.json").write_text(json.dumps(reached))
        monkeypatch.setattr(report, "list_functions", lambda: used)
        monkeypatch.setattr(report, "read_reasons", lambda kept=reasons: kept)
        monkeypatch.setattr(sys, "argv", ["tests.reach", "--report", "--state", str(tmp_path)])
        statuses.append(report.main())
    assert statuses == [0, 1, 1]


def test_groups_that_vary_are_those_that_say_so(tmp_path: Path) -> None:
    path = tmp_path / "list.toml"
    path.write_text(
        '[[group]]\nreason = "x"\nvaries = true\nfunctions = ["a"]\n[[group]]\nreason = "y"\nfunctions = ["b"]\n'
    )
    assert read_varying(path) == {"a"}
    assert {key.partition(":")[0] for key in read_varying()} == {
        "hypergrid/interpolation/solvers/field.py", "hypergrid/wo_join/compiled.py", "hypergrid/wo_join/warm.py",
        "ingest/formats/csv_sniffer.py", "ingest/spark/streaming_query.py", "ingest/streaming/stream_commit.py",
        "queries/standing/notifications.py", "queries/standing/runner.py", "queries/standing/shared_steps.py",
    }  # fmt: skip


def test_each_function_that_is_listed_exists() -> None:
    functions = {function.key for function in list_functions() if function.kind != "empty"}
    assert [key for key in read_reasons() if key not in functions] == []


def test_the_suite_exists() -> None:
    assert [pattern for pattern in SUITE if not list(ROOT.glob(pattern))] == []
    assert [file for file in (*SERVERS, *LEFT_OUT) if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[group]]\nreason = " "\nfunctions = ["a.py: f"]\n', "the group of a.py: f has no reason"),
        ('[[group]]\nreason = "x"\nfunctions = ["a.py: f", "a.py: f"]\n', "a.py: f is listed twice"),
    ],
)
def test_a_list_without_reasons_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "list.toml").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_reasons(tmp_path / "list.toml")
