"""Follow the tap of a stream with the live queries over it."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.continuous.tap_status import EVERY_S, FOLDER, LOCK, TapStatus, write_status
from hypergrid.core.errors import ArchiveConflict
from hypergrid.core.times import SECOND_NS
from hypergrid.query import OpenArchive
from ingest.streaming.tap import Tap

if TYPE_CHECKING:
    from hypergrid.continuous.live import LiveStore, TapQuery

POLL_S: Final = 0.1
"""Interval at which the spool is looked at [s]."""
REREAD_S: Final = 2.0
"""Interval at which the queries are read again for changes of other programs [s]."""
LIGHT_S: Final = 0.2
"""A query whose step takes longer [s] rests afterwards, so that the others are in time,"""
REST_SHARE: Final = 3.0
"""this many times as long as its step took,"""
LIVE_S: Final = 60.0
"""as long as anything arrived within this time [s]: what is older has no alert to be in time for."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 300.0
"""First and longest pause of a query that fails [s]."""


@dataclass(eq=False)
class _Followed:
    query: "TapQuery"
    identity: str
    position: int
    kept_up_s: float
    """When it last had all that had arrived, by the monotonic clock [s]; when it was taken up before that."""
    rests_until_s: float = 0.0
    failures: int = 0
    error: str = ""


class TapService:
    """Evaluates the live queries over the tap of an archive, each step in one transaction; one program at a time.

    Parameters
    ----------
    archive
        The archive, whose stream another program receives.
    notify
        Receives messages for the user, of one sentence each.
    clock
        Returns the time [ns since 1970 UTC].
    monotonic
        Monotonic clock [s].

    Raises
    ------
    NotFound
        The archive has no stream.
    """

    def __init__(
        self,
        archive: OpenArchive,
        *,
        notify: Callable[[str], None],
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        from hypergrid.continuous.live import open_store  # noqa: PLC0415 - loads numba

        self._archive, self._notify, self._clock, self._monotonic = archive, notify, clock, monotonic
        self._tap = Tap(archive.store)
        self._store: LiveStore = open_store(archive.path)
        self._followed: dict[str, _Followed] = {}
        self._broken: dict[str, str] = {}
        self._read_at_s = self._wrote_at_s = float("-inf")
        self._ignored = 0
        # When the newest record that a query took arrived.
        self._arrived_ns = 0

    def run(self, stopping: threading.Event) -> None:
        """Follow until stopped.

        Raises
        ------
        ArchiveConflict
            Another program does.
        """
        with ExitStack() as stack:
            stack.callback(self._store.close)
            stack.enter_context(wait_for_lock(self._archive.path / FOLDER / LOCK, on_wait=self._refuse))
            while not stopping.is_set():
                if not self.work():
                    stopping.wait(POLL_S)

    def _refuse(self) -> None:
        raise ArchiveConflict(
            f"another program evaluates the queries over the tap of {self._archive.path}; end it first"
        )

    def work(self) -> bool:
        """Let each query that is due take what arrived; return whether any took something."""
        now_s = self._monotonic()
        if now_s - self._read_at_s >= REREAD_S:
            self._read_at_s = now_s
            self._read_queries()
        newest = self._tap.newest
        due = [each for each in self._followed.values() if each.position < newest and each.rests_until_s <= now_s]
        for name, followed in list(self._followed.items()):
            if followed in due:
                self._step(name, followed, newest)
            if followed.position >= newest:
                followed.kept_up_s = now_s
            self._write_in_time(newest)
        self._write_in_time(newest)
        return bool(due)

    def _read_queries(self) -> None:
        """Take up queries that were added, and leave those that were removed."""
        from hypergrid.continuous.live import TapQuery  # noqa: PLC0415 - loads numba

        entries = {entry.name: entry for entry in self._store.list_entries() if entry.options.source == "tap"}
        for name in set(self._followed) - set(entries):
            del self._followed[name]
        self._broken = {name: error for name, error in self._broken.items() if name in entries}
        for name, entry in entries.items():
            known = self._followed.get(name)
            if known is not None and known.identity == entry.identity:
                continue
            try:
                query = TapQuery(self._archive.latest(), self._store, name)
            except Exception as error:  # noqa: BLE001 - one query that fails must not stop the others
                if self._broken.get(name) != str(error):
                    self._notify(f"query {name!r} is not evaluated: {error}")
                self._broken[name] = str(error)
                continue
            self._broken.pop(name, None)
            self._followed[name] = _Followed(query, entry.identity, query.position, self._monotonic())

    def _step(self, name: str, followed: _Followed, newest: int) -> None:
        try:
            self._restore(followed)
            begun_s = self._monotonic()
            self._advance(followed, newest)
        except Exception as error:  # noqa: BLE001 - as above; tried again, from what was kept
            followed.failures += 1
            if str(error) != followed.error:
                self._notify(f"query {name!r} is not evaluated, which is tried again: {error}")
            followed.error = str(error) or type(error).__name__
            pause_s = min(FIRST_PAUSE_S * 2.0 ** min(followed.failures - 1, 20), LONGEST_PAUSE_S)
            followed.rests_until_s = self._monotonic() + pause_s
            return
        followed.failures, followed.error = 0, ""
        took_s = self._monotonic() - begun_s
        # One that a whole batch did not bring up to date goes on at once: it would never be.
        is_behind = followed.position < newest
        is_live = self._clock() - self._arrived_ns < LIVE_S * SECOND_NS
        if took_s > LIGHT_S and len(self._followed) > 1 and is_live and not is_behind:
            followed.rests_until_s = self._monotonic() + REST_SHARE * took_s

    def _restore(self, followed: _Followed) -> None:
        """Read again what a query needs of records that it took before."""
        from hypergrid.continuous.live import TapBatch  # noqa: PLC0415 - loads numba

        missing = followed.query.missing_records()
        if missing is None:
            return
        parts = []
        after, upto = missing
        while after < upto:
            part = self._tap.read(after, upto)
            parts.append(TapBatch(*part[:4]))
            after = part.upto
            self._write_in_time(self._tap.newest)
        followed.query.restore(parts)

    def _advance(self, followed: _Followed, newest: int) -> None:
        from hypergrid.continuous.live import TapBatch  # noqa: PLC0415 - loads numba

        followed.position = followed.query.position
        if followed.position < newest:
            part = self._tap.read(followed.position, newest)
            step = followed.query.step(TapBatch(*part[:4]))
            self._ignored += step.ignored
            self._arrived_ns = max(self._arrived_ns, part.clock_ns)
            followed.position = part.upto

    def _write_in_time(self, newest: int) -> None:
        if self._monotonic() - self._wrote_at_s >= EVERY_S:
            self._write_status(newest)

    def _write_status(self, newest: int) -> None:
        self._wrote_at_s = self._monotonic()
        positions = [each.position for each in self._followed.values()]
        errors = {name: each.error for name, each in self._followed.items() if each.error}
        record = min(positions, default=newest)
        kept_up_s, slowest = min(((each.kept_up_s, name) for name, each in self._followed.items()), default=(None, ""))
        status = TapStatus(
            self._clock(), record, newest - record, len(positions) + len(self._broken), self._ignored,
            {**self._broken, **errors}, slowest, 0.0 if kept_up_s is None else self._wrote_at_s - kept_up_s,
        )  # fmt: skip
        # On a full disk the status grows old, which says so.
        with suppress(OSError):
            write_status(self._archive.path, status)
