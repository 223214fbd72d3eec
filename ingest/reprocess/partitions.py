"""Reflag a whole archive in parallel: `run_quality` in partitions that survive a kill.

Partitions are the readings of a variable in some chunks of time, with all stations, so that no two write the same
chunk. Each is flagged with its surroundings in the snapshot at which the run began, wherever and whenever that happens;
the flags therefore equal those of an uninterrupted run. They are committed in waves to a branch
(`hypergrid.archive.branch`).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from hypergrid.archive import Archive, Branch, BranchResult, Fork, ForkResult, Writer
from hypergrid.archive.arrays.cells import CHUNK_SLICES
from hypergrid.core.flags import MEANINGS
from hypergrid.core.readings import Readings
from hypergrid.core.times import Window, format_instant
from hypergrid.core.tokens import token
from hypergrid.core.units import Variable
from ingest.deployment.quality_overrides import QualityOverrides
from ingest.deployment.quality_settings import VariableTests
from ingest.quality.block_tests import affected
from ingest.quality.blocks import BLOCK_NS
from ingest.quality.flagging import places_of, reach_ns, reflag_part, skipped_series, widen_window

READINGS_OF_A_PART: Final = 2_000_000
"""Approximate size of a partition: a process needs less than a gigabyte, and a kill loses seconds."""
PARTS_OF_A_CORE: Final = 2
"""Partitions per core between two commits of the branch."""

Task = TypeVar("Task")
Done = TypeVar("Done")


class Workers(Protocol):
    """Processes that run tasks."""

    @property
    def count(self) -> int:
        """Number of concurrent tasks."""

    def map(self, work: Callable[[Task], Done], tasks: Sequence[Task]) -> list[Done]:
        """Run `work` on each task; return the results in order."""


class SerialWorkers:
    """Runs tasks one by one in this process."""

    count = 1

    def map(self, work: Callable[[Task], Done], tasks: Sequence[Task]) -> list[Done]:
        return [work(task) for task in tasks]


@dataclass(frozen=True, eq=False)
class Partition:
    """Readings of a variable that are flagged together."""

    archive: str
    snapshot: str
    variable: Variable
    tests: VariableTests
    window: Window
    fork: Fork | None = None
    """Fork of the branch that flags are written to."""

    @property
    def key(self) -> tuple[str, int, int]:
        """Identifies the partition within a run."""
        return self.variable.name, self.window.start_ns, self.window.stop_ns

    def describe(self) -> str:
        return f"{self.variable.name} {format_instant(self.window.start_ns)} to {format_instant(self.window.stop_ns)}"


def reflag_partition(part: Partition) -> tuple[ForkResult, dict[str, Any]]:
    """Flag a partition and write the flags to its fork; return the result and a note."""
    archive = Archive.open(part.archive, snapshot=part.snapshot)
    context, judged, inside = reflag_part(partial(_read, archive), archive, part.variable, part.tests, part.window)
    old, new = context.take_rows(inside), judged.take_rows(inside)
    other = (old.flag != new.flag) | (old.tests_or_none_set() != new.tests_or_none_set())
    if part.fork is None:
        raise ValueError("a part needs a fork of the branch that it is written to")
    written = part.fork.flags(new.take_rows(other))
    variable, start_ns, stop_ns = part.key
    note = {"variable": variable, "start_ns": start_ns, "stop_ns": stop_ns, "readings": len(new)}
    return written, {**note, "before": _counts(old), "after": _counts(new)}


def _read(archive: Archive, name: str, *, window: Window) -> Readings:
    if name not in archive.variables:
        return Readings.empty()
    return archive.read(name, window=window, tests=True)


def _counts(readings: Readings) -> dict[str, int]:
    counts = np.bincount(readings.flag, minlength=16)
    return {word: int(counts[flag]) for flag, word in MEANINGS.items() if counts[flag]}


@dataclass(frozen=True)
class ReflagJob:
    """Selection and parameters of a reflagging."""

    quality: QualityOverrides
    names: tuple[str, ...]
    """Variables; empty: all."""
    window: Window | None
    """Time range of the readings; None: all."""

    def token(self) -> str:
        """Return a digest of parameters, variables and window."""
        window = None if self.window is None else (self.window.start_ns, self.window.stop_ns)
        return token("quality", self.quality, self.names, window)

    def select_variables(self, archive: Archive) -> dict[str, Variable]:
        """Return the selected variables of an archive."""
        return {name: variable for name, variable in archive.variables.items() if not self.names or name in self.names}

    def partitions(self, archive: Archive) -> list[Partition]:
        """Return the partitions of an archive, in order."""
        partitions = []
        for name, variable in self.select_variables(archive).items():
            # Assumes a reading of every series in every slice.
            chunks = max(1, READINGS_OF_A_PART // (CHUNK_SLICES * max(1, len(archive.series(name)))))
            for span in archive.spans(name, chunks):
                window = span if self.window is None else span.intersect(self.window)
                if window is not None:
                    partitions.append(
                        Partition(str(archive.path), archive.snapshot, variable, self.quality.tests(variable), window)
                    )
        return partitions


@dataclass(frozen=True)
class ReflagResult:
    """Result of reflagging an archive."""

    snapshot: str | None
    """Snapshot committed to main; None if neither a flag nor a parameter changed."""
    readings: int
    changed: int
    """Readings whose flag, or the tests that set it, changed."""
    parts: int
    resumed: int
    """Partitions that an earlier start of the same run had completed."""
    before: Mapping[str, Mapping[str, int]]
    """Number of readings per flag, by variable."""
    after: Mapping[str, Mapping[str, int]]
    skipped: Mapping[str, Mapping[str, int]]
    """Number of stations that cannot be tested against neighbours, by variable and reason."""


def reflag_all(
    branch: Branch,
    judging: ReflagJob,
    workers: Workers,
    *,
    now_ns: int,
    progress: Callable[[str, float], None],
) -> ReflagResult:
    """Flag the partitions left by an earlier start, and publish the flags to main."""
    base = branch.base
    parts = judging.partitions(base)
    done = {(note["variable"], note["start_ns"], note["stop_ns"]) for note in branch.notes}
    left = [part for part in parts if part.key not in done]
    branch.prepare(list(judging.select_variables(base)), now_ns=now_ns)
    at_once = max(1, workers.count * PARTS_OF_A_CORE)
    progress("judge", len(done) / max(1, len(parts)))
    for first in range(0, len(left), at_once):
        wave = left[first : first + at_once]
        fork = branch.fork()
        written, notes = zip(*workers.map(reflag_partition, [replace(part, fork=fork) for part in wave]), strict=True)
        message = f"parts of {len(parts)}: {', '.join(part.describe() for part in wave)}"
        branch.commit(written, notes, message=message, now_ns=now_ns)
        progress("judge", len(branch.notes) / len(parts))
    progress("judge", 1.0)
    progress("publish", 0.0)
    snapshot = branch.publish(_result(branch, judging, parts), partial(_reflag_window, judging), now_ns=now_ns)
    progress("publish", 1.0)
    return ReflagResult(
        snapshot,
        sum(note["readings"] for note in branch.notes),
        sum(note["changed"] for note in branch.notes),
        len(parts),
        len(done),
        _sum_counts(branch.notes, "before"),
        _sum_counts(branch.notes, "after"),
        _skipped(base, judging),
    )


def _skipped(archive: Archive, judging: ReflagJob) -> dict[str, dict[str, int]]:
    """Count the stations that cannot be tested against neighbours, which depends only on positions."""
    result = {}
    for name, variable in judging.select_variables(archive).items():
        series = archive.series(name)
        reasons = skipped_series(judging.quality.tests(variable), places_of(series, archive.stations))
        counts = {
            reason: len({series[i].station for i in np.flatnonzero(rows).tolist()}) for reason, rows in reasons.items()
        }
        if any(counts.values()):
            result[name] = {reason: count for reason, count in counts.items() if count}
    return result


def _result(branch: Branch, judging: ReflagJob, parts: Sequence[Partition]) -> BranchResult:
    chosen = judging.select_variables(branch.base.latest())
    parameters = judging.quality.to_json(chosen)
    batch = f"reprocess {judging.token()} after {branch.base.snapshot}"
    within = "" if judging.window is None else f" from {format_instant(judging.window.start_ns)}"
    within += "" if judging.window is None else f" to {format_instant(judging.window.stop_ns)}"
    return BranchResult(
        batch,
        f"quality of {', '.join(chosen)}{within} by parameters {token(parameters)[:12]}",
        # Parameters used for a part of the time are not those of the archive.
        parameters if judging.window is None else {},
        [(part.variable.name, part.window) for part in parts],
        {name: (name, *judging.quality.tests(variable).companions) for name, variable in chosen.items()},
    )


def _reflag_window(judging: ReflagJob, writer: Writer, archive: Archive, name: str, window: Window) -> None:
    """Reflag the readings that depend on a window, with the current readings of the archive."""
    variable = archive.variable(name)
    tests = judging.quality.tests(variable)
    readings = writer.read(name, window=window)
    around = widen_window(window, reach_ns(tests, readings, archive.slice_s))
    if tests.memory_days:
        # New readings may make other blocks suspect, as far as a memory reaches.
        first, stop = affected(tests, window.start_ns // BLOCK_NS, -(-window.stop_ns // BLOCK_NS))
        extent = archive.extent(name)
        last_ns = around.stop_ns if extent is None else max(around.stop_ns, min(stop * BLOCK_NS, extent.stop_ns))
        around = Window(min(around.start_ns, first * BLOCK_NS), last_ns)
    limited = around if judging.window is None else around.intersect(judging.window)
    if limited is None:
        return
    share = (limited.stop_ns - limited.start_ns) / max(1, window.stop_ns - window.start_ns)
    pieces = max(1, round(share * len(readings)) // READINGS_OF_A_PART)
    edges = np.linspace(limited.start_ns, limited.stop_ns, pieces + 1).astype(np.int64).tolist()
    # Rounding must not cut off the end.
    edges[-1] = limited.stop_ns
    for start, stop in zip(edges[:-1], edges[1:], strict=True):
        context, judged, inside = reflag_part(writer.read, archive, variable, tests, Window(start, stop))
        old, new = context.take_rows(inside), judged.take_rows(inside)
        other = (old.flag != new.flag) | (old.tests_or_none_set() != new.tests_or_none_set())
        writer.flags(new.take_rows(other))


def _sum_counts(notes: Sequence[Mapping[str, Any]], key: str) -> dict[str, dict[str, int]]:
    variable_counts: dict[str, Counter[str]] = {}
    for note in notes:
        variable_counts.setdefault(note["variable"], Counter()).update(note[key])
    return {name: dict(counts) for name, counts in variable_counts.items()}
