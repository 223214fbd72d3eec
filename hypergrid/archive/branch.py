"""Branches beside main: many processes write flags, and one commit publishes them.

A branch begins at a snapshot of main, its base. Processes write chunks through forks of one session; one process
commits the result with notes on the finished parts, so that a run that was killed can resume. Publishing applies the
flags to main in one commit on top of everything committed there since the base, so nothing on main is lost. Flags are
copied where main is unchanged; readings near changes are judged again.

No snapshot expires while a branch exists (`disk.retention`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import icechunk
import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.archive import LOCK, Archive
from hypergrid.archive.arrays.cells import CHUNK_SLICES, RUN_CHUNKS, Slices, split_consecutive
from hypergrid.archive.arrays.records import Json
from hypergrid.archive.arrays.root import Root
from hypergrid.archive.arrays.variable_group import VariableGroup
from hypergrid.archive.diff import diff_from_log
from hypergrid.archive.disk.concurrent_io import open_root
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.disk.snapshot_checksums import commit_session
from hypergrid.archive.disk.storage import BRANCH
from hypergrid.archive.writer import Writer
from hypergrid.core.errors import NotFound
from hypergrid.core.readings import Readings
from hypergrid.core.times import Window

NAME: Final = "branch"
_NOTES: Final = "notes"
"""Metadata keys of a branch's commits."""


@dataclass(frozen=True, eq=False)
class Fork:
    """A picklable handle to write flags, for any process that sees the archive's folder."""

    session: icechunk.session.ForkSession
    slices: Slices

    def flags(self, judged: Readings) -> "ForkResult":
        """Set new flags on readings of a variable; forks must write disjoint chunks."""
        writer = Writer(open_root(self.session), slices=self.slices, batch="")
        changed, beside = writer.flags_in_cells(judged)
        return ForkResult(self, changed, beside)


@dataclass(frozen=True, eq=False)
class ForkResult:
    """Result of a fork, to be returned to the committing process."""

    fork: Fork
    changed: int
    """Number of readings in cells whose flags changed."""
    beside: Readings
    """Readings that are in no cell: the committing process flags them in the side table."""


@dataclass(frozen=True)
class BranchResult:
    """Description of a branch's result, to be published to main."""

    batch: str
    message: str
    parameters: Mapping[str, object]
    """Parameters of the tests, which override those stored on main."""
    parts: Sequence[tuple[str, Window]]
    """Variables and windows judged on the branch."""
    reads: Mapping[str, Sequence[str]]
    """Variables that the flags of each judged variable depend on, including itself; it may be new to main."""


Rejudge = Callable[[Writer, Archive, str, Window], None]
"""Judges the readings that depend on a window of a variable again, with main's data, and writes the flags."""


class Branch:
    """A branch of an archive, for use by one process at a time.

    Attributes
    ----------
    name
        Name of the branch.
    base
        The archive at the snapshot from which the branch began.
    notes
        Notes of its commits, oldest first.
    """

    def __init__(self, archive: Archive, name: str) -> None:
        self.name = name
        self._repository = archive.storage.open()
        self._lock = archive.path / LOCK
        self._sums = archive.sums
        self._slices = Slices(round(archive.slice_s * 1e9))
        self._session: icechunk.Session | None = None
        ours = []
        for info in self._repository.ancestry(branch=name):
            if info.metadata.get(NAME) != name:
                break
            ours.append(info)
        self.base = archive.at_snapshot(info.id)
        self.notes: list[Json] = [note for snapshot_info in reversed(ours) for note in snapshot_info.metadata[_NOTES]]

    @classmethod
    def begin(cls, archive: Archive, name: str) -> "Branch":
        """Open the branch of a name, creating it at the newest snapshot if missing.

        Raises
        ------
        OldLayout
            The archive must be upgraded first.
        """
        archive.require_newest()
        with wait_for_lock(archive.path / LOCK):
            repository = archive.storage.open()
            if name not in repository.list_branches():
                repository.create_branch(name, repository.lookup_branch(BRANCH))
        return cls(archive, name)

    @staticmethod
    def names(archive: Archive) -> tuple[str, ...]:
        """Return the names of all branches except main."""
        return tuple(sorted(archive.storage.open().list_branches() - {BRANCH}))

    @staticmethod
    def remove(archive: Archive, name: str) -> None:
        """Delete a branch and everything that exists only on it.

        Raises
        ------
        NotFound
            There is no such branch.
        """
        with wait_for_lock(archive.path / LOCK):
            repository = archive.storage.open()
            NotFound.refuse_unknown("branch", [name], repository.list_branches() - {BRANCH})
            repository.delete_branch(name)

    def prepare(self, variables: Sequence[str], *, now_ns: int) -> None:
        """Create the arrays for test bits; idempotent."""
        session = self._repository.writable_session(self.name)
        # Before any fork: forks cannot create arrays.
        groups = [VariableGroup.load(open_root(session), name) for name in variables]
        lacking = [group for group in groups if not group.tested]
        for group in lacking:
            group.keep_tests()
            group.save()
        if lacking:
            self._commit(session, "room for tests", [], now_ns)

    def fork(self) -> Fork:
        """Return a handle that processes write through until `commit`."""
        self._session = self._repository.writable_session(self.name)
        return Fork(self._session.fork(), self._slices)

    def commit(self, written: Sequence[ForkResult], notes: Sequence[Json], *, message: str, now_ns: int) -> list[int]:
        """Commit the writes through the last `fork`; return the number of changed flags per result.

        `notes` are stored with the commit, one per result in the same order, each extended by that number as "changed".
        """
        session = self._session
        if session is None:
            raise ValueError("a branch commits what was written through its fork; call fork() first")
        self._session = None
        session.merge(*(change.fork.session for change in written))
        writer = Writer(open_root(session), slices=self._slices, batch="")
        changed = [change.changed + writer.flags(change.beside) for change in written]
        counted = [{**note, "changed": count} for note, count in zip(notes, changed, strict=True)]
        self._commit(session, message, counted, now_ns)
        self.notes += counted
        return changed

    def _commit(self, session: icechunk.Session, message: str, notes: Sequence[Json], now_ns: int) -> None:
        content = {"time_ns": int(now_ns), "batch": "", "slices": {}, "counts": {}, NAME: self.name, _NOTES: notes}
        # Icechunk refuses empty commits, but a part without changed flags must be noted as done, too.
        open_root(session).attrs[_NOTES] = len(self.notes) + len(notes)
        # On a file system, concurrent Icechunk commits lose data.
        with wait_for_lock(self._lock):
            commit_session(self._sums, self._repository, session, self.name, message, content)

    def find_published(self, batch: str) -> str | None:
        """Return the snapshot of main that published a batch; None if not yet published."""
        later_snapshots = (
            snapshot for snapshot in self.base.latest().iterate_since(self.base.snapshot) if snapshot is not None
        )
        return next((snapshot.id for snapshot in later_snapshots if snapshot.metadata["batch"] == batch), None)

    def publish(self, result: BranchResult, rejudge: Rejudge, *, now_ns: int) -> str | None:
        """Apply the branch's flags to main in one commit; return the snapshot, None if unchanged.

        Whatever was committed to main since the branch began is kept; readings whose flags may depend on it are judged
        again. Idempotent per batch.
        """
        # A run that was killed may have published already.
        if (done := self.find_published(result.batch)) is not None:
            return done
        judged = Root(open_root(self._repository.readonly_session(branch=self.name)))
        with self.base.commit(batch=result.batch, message=result.message, now_ns=now_ns) as writer:
            newest = self.base.latest()
            changes = self._read_changes(newest)
            for name, reads in result.reads.items():
                on_branch = name in judged.variables
                if changes is None or not on_branch:
                    # Nothing can be copied if the changes on main are unknown, or if the branch lacks the variable.
                    touched = _find_chunks(list(newest.spans(name, RUN_CHUNKS)), self._slices)
                else:
                    touched = _find_chunks(
                        [window for variable in reads for window in changes.get(variable, ())], self._slices
                    )
                if on_branch:
                    group = VariableGroup.load(judged.group, name)
                    windows = [window for variable, window in result.parts if variable == name]
                    # Chunks that main has changed are judged again below instead.
                    for rows in _split_runs(np.setdiff1d(_find_chunks(windows, self._slices), touched)):
                        writer.carry_flags(group, rows)
                    writer.carry_side_flags(group)
                for rows in _split_runs(touched):
                    span = Window(self._slices.start_ns(rows.start), self._slices.start_ns(rows.stop))
                    rejudge(writer, newest, name, span)
            writer.quality({**newest.quality, **result.parameters})
        return writer.snapshot

    def _read_changes(self, newest: Archive) -> Mapping[str, list[Window]] | None:
        """Return the windows committed since the branch began, by variable; None if unknown."""
        before, after = self.base.stations, newest.stations
        if any(after.get(key) != station for key, station in before.items()):
            # A station that moved has other neighbours, so all flags may change.
            return None
        try:
            changes = diff_from_log(newest, self.base.snapshot)
        except NotFound:
            return None
        runs_by_variable: dict[str, list[Window]] = {}
        for change in changes:
            runs_by_variable.setdefault(change.variable, []).extend(change.runs)
        return runs_by_variable


def _find_chunks(windows: Sequence[Window], slices: Slices) -> NDArray[np.int64]:
    """Return the chunks along time that the windows overlap, ascending."""
    edges = [(slices.position(window.start_ns), slices.position(window.stop_ns - 1)) for window in windows]
    numbers = [np.arange(first // CHUNK_SLICES, last // CHUNK_SLICES + 1) for first, last in edges]
    return np.unique(np.concatenate([np.empty(0, np.int64), *numbers]))


def _split_runs(chunks: NDArray[np.int64]) -> list[slice]:
    """Return slices that cover the chunks, joining up to `RUN_CHUNKS` consecutive ones."""
    pieces = [
        run[first : first + RUN_CHUNKS] for run in split_consecutive(chunks) for first in range(0, len(run), RUN_CHUNKS)
    ]
    return [slice(int(run[0]) * CHUNK_SLICES, (int(run[-1]) + 1) * CHUNK_SLICES) for run in pieces]
