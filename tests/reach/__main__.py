"""Find the functions of the product that users cannot reach: `python -m tests.reach [TESTS …]`.

Tests of `suite.py` are run, and each function that a user could have called is counted (`hook/sitecustomize.py` says
when). Those that were not are reported, but for those of `unexercised.toml`, each of which has a reason; so
are reasons of functions that were.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.reach.doors import find_doors
from tests.reach.functions import ROOMS, ROOT, Function, add_compiled, list_functions
from tests.reach.reasons import read_reasons, read_varying
from tests.reach.suite import LEFT_OUT, SERVERS, SUITE

HERE: Final = Path(__file__).resolve().parent
STATE: Final = ROOT / "build" / "reach"


@dataclass(frozen=True)
class Reach:
    """Which functions were called as users call them."""

    functions: Sequence[Function]
    """All that do something."""
    reached: frozenset[str]
    reasons: dict[str, str]
    varying: frozenset[str] = frozenset()
    """Those with a reason that some runs reach and others do not."""

    @property
    def unreached(self) -> list[Function]:
        return [function for function in self.functions if function.key not in self.reached]

    @property
    def unexplained(self) -> list[Function]:
        return [function for function in self.unreached if function.key not in self.reasons]

    @property
    def outdated(self) -> list[str]:
        """Functions with a reason that were reached all the same."""
        return sorted(key for key in self.reasons if key in self.reached and key not in self.varying)

    def as_json(self) -> dict[str, Any]:
        return {
            "functions": len(self.functions),
            "reached": len(self.functions) - len(self.unreached),
            "unreached": [
                {
                    "file": function.file,
                    "name": function.name,
                    "line": function.line,
                    "reason": self.reasons.get(function.key),
                }
                for function in self.unreached
            ],
            "outdated": self.outdated,
        }

    def describe(self) -> str:
        """Return the count, the functions that were not reached and have no reason, by file, and outdated reasons."""
        reached, unreached = len(self.functions) - len(self.unreached), self.unreached
        explained = len(unreached) - len(self.unexplained)
        lines = [
            f"users reach {reached:,} of {len(self.functions):,} functions ({reached / len(self.functions):.1%}); "
            f"{explained} others have a reason in tests/reach/unexercised.toml, {len(self.unexplained)} have none"
        ]
        by_file: dict[str, list[Function]] = defaultdict(list)
        for function in self.unexplained:
            by_file[function.file].append(function)
        for file, functions in by_file.items():
            lines.append(file)
            lines += [f"  {function.line}: {function.name}" for function in functions]
        if self.outdated:
            lines.append("tests/reach/unexercised.toml has reasons of functions that were reached; remove them:")
            lines += [f"  {key}" for key in self.outdated]
        return "\n".join(lines)


def prepare(
    state: Path, functions: Iterable[Function], doors: Iterable[tuple[str, str]], root: Path = ROOT
) -> dict[str, str]:
    """Write what processes need to mark functions, and return their environment."""
    first: dict[str, int] = {}
    count = 0
    for count, function in enumerate(functions, 1):
        first.setdefault(function.file, count - 1)
    # Marks are numbers in the bytecode: it is kept for these sources only.
    digest = hashlib.blake2b(digest_size=8)
    for path in [*map(root.joinpath, first), HERE / "functions.py"]:
        digest.update(path.read_bytes())
    table = {
        "root": str(root),
        "rooms": ROOMS,
        "first": first,
        "doors": sorted(doors),
        "servers": SERVERS,
        "bytecode": str(state / f"bytecode-{digest.hexdigest()}"),
    }
    state.mkdir(parents=True, exist_ok=True)
    (state / "table.json").write_text(json.dumps(table), encoding="utf-8")
    (state / "marks").write_bytes(bytes(count))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join((str(HERE / "hook"), str(root), str(ROOT))),
        "HYPERGRID_REACH": str(state),
    }


def run(arguments: Sequence[str], state: Path, workers: int) -> None:
    """Run pytest with these arguments, and add what was reached to `reached.json`, also if it is interrupted."""
    functions = list_functions()
    environment = prepare(state, functions, find_doors())
    left_out = [f"--ignore={file}" for file in LEFT_OUT]
    # Some functions are called by long proofs alone.
    command = [sys.executable, "-m", "pytest", "-q", "--long", "-p", "no:cacheprovider", "-p", "tests.reach.each_test"]
    command += ["--dist", "loadfile", "-n", str(workers)]
    try:
        subprocess.run([*command, *left_out, *arguments], cwd=ROOT, env=environment, check=False)
    finally:
        marks = (state / "marks").read_bytes()
        keys = {function.key for function, mark in zip(functions, marks, strict=True) if mark}
        reached = sorted(keys | read_reached(state))
        (state / "reached.json").write_text(json.dumps(reached, indent=0), encoding="utf-8")


def read_reached(state: Path) -> set[str]:
    """Return the keys of what earlier runs reached."""
    path = state / "reached.json"
    return set(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else set()


def judge(state: Path) -> Reach:
    """Compare what was reached with the functions that there are now."""
    functions = list_functions()
    reached = add_compiled(functions, read_reached(state))
    counted = [function for function in functions if function.kind != "empty"]
    return Reach(counted, frozenset(reached), read_reasons(), read_varying())


def main() -> int:
    """Run what the command line names; the status is 1 if a function was neither reached nor has a reason, or both."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.reach",
        description=__doc__.partition("\n")[0],
        epilog="Other options, such as --quick, go to pytest.",
    )
    parser.add_argument("tests", nargs="*", help="files or folders instead of the whole suite; adds to earlier runs")
    parser.add_argument("--report", action="store_true", help="run nothing: report what earlier runs reached")
    parser.add_argument("--json", action="store_true", help="print JSON, with all functions that were not reached")
    parser.add_argument("--state", type=Path, default=STATE, help="folder of what was reached")
    parser.add_argument("-n", "--workers", type=int, default=2, help="processes that run tests")
    asked, of_pytest = parser.parse_known_args()
    if not asked.report:
        if not asked.tests:
            shutil.rmtree(asked.state, ignore_errors=True)
        suite = sorted({str(path) for pattern in SUITE for path in ROOT.glob(pattern)})
        run([*of_pytest, *(asked.tests or suite)], asked.state.resolve(), asked.workers)
    reach = judge(asked.state)
    print(json.dumps(reach.as_json(), indent=1) if asked.json else reach.describe())
    return int(bool(reach.unexplained or reach.outdated))


if __name__ == "__main__":
    sys.exit(main())
