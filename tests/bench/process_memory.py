"""How much memory a process and all below it hold at most, as the system counts it."""

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

EVERY_S: Final = 0.2
"""Time between two looks [s]; the peak of each process is the system's own, and misses nothing before its last look."""


class Watch:
    """Looks at a process and those below it while the block goes."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory watch", daemon=True)
        self._peaks: dict[int, tuple[bool, int]] = {}
        self._python_bytes = self._sum_bytes = 0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def peaks(self) -> dict[str, Any]:
        """Return the peaks [bytes]: of each Python process, of the JVM, and what all of Python, and all, share out."""
        python = sorted((peak for is_java, peak in self._peaks.values() if not is_java), reverse=True)
        java = [peak for is_java, peak in self._peaks.values() if is_java]
        return {
            "python_each_bytes": python, "python_sum_bytes": self._python_bytes, "jvm_bytes": max(java, default=0),
            "sum_bytes": self._sum_bytes,
        }  # fmt: skip

    def _watch(self) -> None:
        while not self._done.wait(EVERY_S):
            total = python = 0
            for process in (self._process, *_below(self._process)):
                try:
                    name = Path(f"/proc/{process}/comm").read_text().strip()
                    peak = _bytes(Path(f"/proc/{process}/status"), "VmHWM")
                    share = _bytes(Path(f"/proc/{process}/smaps_rollup"), "Pss")
                except (OSError, StopIteration):
                    # It ended between two looks.
                    continue
                self._peaks[process] = name == "java", peak
                total += share
                python += share if name != "java" else 0
            self._sum_bytes, self._python_bytes = max(self._sum_bytes, total), max(self._python_bytes, python)


def run_watched(words: Sequence[str], folder: Path) -> tuple[bytes, dict[str, Any]]:
    """Run a command in a folder; return what it printed, and the peaks of its memory.

    Raises
    ------
    RuntimeError
        It failed.
    """
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE) as child, Watch(child.pid) as watch:
        assert child.stdout is not None
        printed = child.stdout.read()
    if child.returncode:
        message = f"{' '.join(words)} ended with {child.returncode}"
        raise RuntimeError(message)
    return printed, watch.peaks()


def _bytes(path: Path, field: str) -> int:
    lines = path.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _below(process: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            children = [int(text) for text in (task / "children").read_text().split()]
            found += [number for child in children for number in (child, *_below(child))]
    except OSError:
        pass
    return found
