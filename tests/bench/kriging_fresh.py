"""First calls: what a newcomer waits for, and what memory a run takes, each in a process of its own.

`python -m tests.bench.kriging_fresh CASE WORK` prints JSON. Imports are not in the first call's time; numba's, which
only large jobs make, are. What numba compiled is kept on disk between processes; `compiling=True` begins without.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.kriging_cases import CASES, Case, network
from tests.bench.kriging_ours import Floats, all_slices, time_mean
from tests.bench.resident import peak_above, reset_peak

ROOT = Path(__file__).resolve().parents[2]

WORKS: dict[str, Callable[[Case], Callable[[], Floats]]] = {
    "all_slices": lambda case: _bound(all_slices, case),
    "nearest": lambda case: _bound(all_slices, case, neighbours=case.neighbours),
    "time_mean": lambda case: _bound(time_mean, case),
}
"""What can be run in a fresh process."""


@dataclass(frozen=True)
class Fresh:
    """A run's first two calls."""

    first_s: float
    """With whatever is loaded, compiled and made for the first time [s]."""
    second_s: float
    """With all that kept [s]."""
    peak_bytes: int | None
    """Most that the first call added to the process's resident memory [bytes]; None where the system does not say."""


def fresh(case: Case, work: str, *, compiling: bool = False) -> Fresh:
    """Run a work twice in a new process.

    Parameters
    ----------
    case
        The case, which the new process is given as it is.
    work
        Name of one of `WORKS`.
    compiling
        Whether to begin without what numba compiled before.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **({"NUMBA_CACHE_DIR": folder} if compiling else {})}
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.kriging_fresh", json.dumps(asdict(case)), work],
            cwd=ROOT, env=environment, check=True, capture_output=True, text=True,
        )  # fmt: skip
    return Fresh(**json.loads(done.stdout))


def _run(case: Case, work: str) -> Fresh:
    call = WORKS[work](case)
    before = reset_peak()
    first = _seconds(call)
    peak = peak_above(before)
    return Fresh(first, _seconds(call), peak)


def _bound(work: Callable[..., Floats], case: Case, **options: int | None) -> Callable[[], Floats]:
    readings = network(case)
    return lambda: work(case, readings, **options)


def _seconds(call: Callable[[], Floats]) -> float:
    # The result is held until the clock is read, and counts in the peak as it does for a user.
    begun = time.perf_counter()
    held = call()
    seconds = time.perf_counter() - begun
    del held
    return seconds


if __name__ == "__main__":
    chosen, name = sys.argv[1:]
    print(json.dumps(asdict(_run(CASES[chosen] if chosen in CASES else Case(**json.loads(chosen)), name))))
