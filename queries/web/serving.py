"""A server for one archive: its assembly from settings, its checks, and the memory that it gives back."""

import gc
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from fastapi import FastAPI
from starlette.types import ASGIApp

from hypergrid.archive.disk.row_checksums import DamagedState, find_damage
from hypergrid.continuous.records import LIVE_FILE
from hypergrid.core.blas import count_cores
from hypergrid.core.errors import HyperGridError
from hypergrid.core.freed_memory import give_back, limit_heaps
from hypergrid.core.importing import Importer
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.settings import Settings
from hypergrid.execution.planning.costs import operations_a_second, touching_s_a_byte
from hypergrid.query import open_archive
from queries.boards.repository import FILE as BOARDS
from queries.boards.repository import BoardReader, BoardsDamaged, BoardStore, BoardsUnavailable, UnreadableBoards
from queries.jobs.job_history import FILE as JOURNAL
from queries.jobs.job_history import Journal, JournalDamaged
from queries.jobs.records import RunnerLimits
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries, standing_folder
from queries.web.app import Services, create_app
from queries.web.auth.access import Access
from queries.web.commands import access_of, audit_of, state_folder, written_folders
from queries.web.middleware.request_limits import RequestLog
from queries.web.routes.health import LEAST_FREE_BYTES, Monitoring, free_bytes
from queries.web.server import is_loopback, listen, serve

WARMED_S: Final = 5.0
"""Longest warm-up, after which a server counts as ready [s].

Loading compiled code from disk takes a second, compiling it up to a minute.
"""
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Pages:
    """The pages of a server."""

    application: ASGIApp
    """Answers at "/"."""
    load: Callable[[], None] = lambda: None
    """Loads what the pages need, while the server answers already."""


def serve_archive(
    archive: Path,
    settings: Settings,
    *,
    pages: Pages,
    saved: Path | None = None,
    importer: Importer | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve an archive's API and pages and run its standing queries, until Ctrl-C (or SIGTERM).

    Parameters
    ----------
    archive
        Its folder.
    settings
        Address, access rules and limits.
    pages
        The pages, and what they load.
    saved
        Folder of saved queries.
    importer
        Imports files that callers send; None: none are taken.
    on_ready
        Called with the address of the page once it can be opened.

    Raises
    ------
    CannotListen
        The host is not loopback and there are no keys, or the port is in use.
    HyperGridError
        The archive, settings or keys cannot be read, or the server's state cannot be written.
    """
    share_heaps()
    # Measuring the machine's speed, for the first kriging plan, takes half a second, and is cached for ten minutes.
    warm_up = WarmUp(_load_kernels, operations_a_second, touching_s_a_byte, pages.load, exclude_permanent_objects)
    with application(archive, settings, saved=saved, is_warm=warm_up.is_over, importer=importer) as web:
        web.mount("/", pages.application)
        with return_freed_memory():
            serve(web, settings.host, settings.port, on_ready=partial(warm_up.start, on_ready))


def _load_kernels() -> None:
    # The compiler takes a second to import, and so do the libraries of results, which any of their names loads.
    from hypergrid.interpolation.warm import warm  # noqa: PLC0415

    xr.set_options()
    warm()


class WarmUp:
    """Load compiled code and libraries in a thread once the server listens; until then it is live but not ready.

    Parameters
    ----------
    steps
        What to load, in this order. A step that fails is logged: whatever needs it tries again by itself.
    """

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = steps
        self._thread = threading.Thread(target=self._run, name="warm", daemon=True)
        self._ends_s = math.inf

    def start(self, on_ready: Callable[[str], None] | None, address: str) -> None:
        """Start loading, and pass the server's address on."""
        self._ends_s = time.monotonic() + WARMED_S
        self._thread.start()
        if on_ready is not None:
            on_ready(address)

    def is_over(self) -> bool:
        """Return whether everything is loaded, or `WARMED_S` has passed."""
        has_ended = self._thread.ident is not None and not self._thread.is_alive()
        return has_ended or time.monotonic() >= self._ends_s

    def _run(self) -> None:
        for step in self._steps:
            try:
                step()
            except Exception:
                _LOG.exception("the server goes on without having loaded all that it computes with")


@contextmanager
def application(
    archive: Path,
    settings: Settings,
    *,
    saved: Path | None = None,
    is_warm: Callable[[], bool] = lambda: True,
    importer: Importer | None = None,
) -> Iterator[FastAPI]:
    """Run an archive's standing queries and yield its web API; arguments as in `serve_archive`."""
    opened = open_archive(archive)
    access = access_of(opened.path, settings, settings.host, required=not is_loopback(settings.host))
    folder, folders = state_folder(opened.path, settings), written_folders(opened.path, settings)
    standing, boards, journal, damage = None, None, None, dict[str, str]()
    with ExitStack() as held:
        if not settings.read_only:
            keep_access_closed(access)
            # First, as it refuses a second server of the archive, which must not mark the first one's jobs as failed in
            # the journal.
            standing = held.enter_context(StandingQueries(opened, settings, clock=time.time_ns))
            standing.start()
            journal, damage = open_journal(folder / JOURNAL, now_ns=time.time_ns())
        if not settings.read_only or (folder / BOARDS).exists():
            boards, problem = open_boards(folder / BOARDS, read_only=settings.read_only)
            damage |= problem
            held.callback(boards.close)
        rows = damaged_rows(access, standing, journal, boards)
        for name, what in rows.items():
            _LOG.error("%s: %s", name, what)
        damage |= rows
        limits = RunnerLimits(
            workers=settings.workers or count_cores(), capacity=settings.queue, allowed_bytes=settings.allowed_bytes,
            allowed_s=settings.seconds, result_bytes=settings.kept_bytes,
        )  # fmt: skip
        listeners = [RequestLog(settings.requests_log).write_entry] if settings.requests_log else ()
        yield create_app(
            Runner(opened, limits, journal=journal), Catalogue(opened, saved=saved),
            services=Services(standing, boards, importer), access=access,
            audit=None if settings.read_only else audit_of(opened.path, settings),
            monitoring=Monitoring(folders, damage, is_warm, listeners),
        )  # fmt: skip


def keep_access_closed(access: Access) -> None:
    """Write the marker of an installation with keys, even if their file is damaged.

    Raises
    ------
    KeysDamaged
        They cannot be read, so no caller could be authenticated.
    """
    store = access.store
    if store is None:
        return
    needed = True
    try:
        needed = store.exist
    finally:
        if needed:
            try:
                store.require()
            except OSError as error:
                _LOG.warning("access control stays on only as long as %s is there: %s", store.path, error)


def open_journal(path: Path, *, now_ns: int) -> tuple[Journal | None, dict[str, str]]:
    """Open the job journal, or return None and the problem: queries are answered without it."""
    try:
        return Journal(path, now_ns=now_ns), {}
    except JournalDamaged as error:
        _LOG.error("what becomes of queries is not kept: %s", error)
        return None, {path.name: f"what becomes of queries is not kept: {str(error).replace(str(path), path.name)}"}


def open_boards(path: Path, *, read_only: bool = False) -> tuple[BoardStore, dict[str, str]]:
    """Open the boards and links; if that fails, return a store that says why, and the problem."""
    try:
        return (BoardReader if read_only else BoardStore)(path), {}
    except (BoardsDamaged, BoardsUnavailable) as error:
        _LOG.error("boards and links are not served: %s", error)
        what = f"boards and links are not served: {str(error).replace(str(path), path.name)}"
        return UnreadableBoards(path, error), {path.name: what}


def damaged_rows(
    access: Access, standing: StandingQueries | None, journal: Journal | None, boards: BoardStore | None = None
) -> dict[str, str]:
    """List the damaged rows of the server's state, by file."""
    files = [
        (store.path.name, rows)
        for store in (access.store, None if standing is None else standing.store, journal, boards)
        if store is not None and (rows := store.list_damaged())
    ]
    return {name: f"damaged, and left out: {', '.join(rows[:10])}; see 'hypergrid check'" for name, rows in files}


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    what: str
    is_fine: bool
    message: str


def check(archive: Path, settings: Settings, saved: Path | None, *, now_ns: int) -> list[Finding]:
    """Run the checks of a server without starting it or changing anything."""

    def network() -> str:
        opened = open_archive(archive)
        return f"{opened.name}: {len(opened.stations)} stations, {len(opened.variables)} variables, {opened.snapshot}"

    def keys() -> str:
        access = access_of(archive, settings, settings.host, required=not is_loopback(settings.host))
        held = [] if access.store is None else access.store.keys()
        valid = sum(key.state(now_ns) == "valid" for key in held)
        if not access.is_on:
            return "access control is off: everybody on this machine may do everything"
        suffix = ", and anybody may read" if settings.anonymous_read else ""
        return f"access control is on: {valid} of {len(held)} keys open something{suffix}"

    def address() -> str:
        access = access_of(archive, settings, settings.host, required=not is_loopback(settings.host))
        with closing(listen(settings.host, settings.port, access)) as listening:
            host, port = listening.getsockname()[:2]
        names = ", ".join(access.rules.names)
        return f"{host} port {port}{access.rules.root_path} can be listened on; it answers to {names}"

    def disk() -> str:
        folders = {folder: free_bytes(folder) for folder in written_folders(archive, settings).values()}
        if not folders:
            return "nothing is written"
        for folder, free in folders.items():
            if free < LEAST_FREE_BYTES:
                raise OSError(f"{folder} has {free:,} bytes free, and needs {LEAST_FREE_BYTES:,}; make room")
        return ", ".join(f"{folder} has {free / 2**30:.1f} GiB free" for folder, free in folders.items())

    def state() -> str:
        live = (archive / LIVE_FILE).parent
        folders = (state_folder(archive, settings), standing_folder(archive, settings), live)
        files = [path for folder in folders for path in sorted(folder.glob("*.*")) if path.is_file()]
        damage = [f"{path}: {where or what}" for path in files for where, what in find_damage(path)]
        if damage:
            raise DamagedState(f"{'; '.join(damage[:10])}; 'hypergrid check' says what to do")
        return "keys, jobs, audit log, boards, standing and continuous queries are whole"

    def queries() -> str:
        catalogue = Catalogue(open_archive(archive), saved=saved)
        for problem in catalogue.list_unreadable():
            raise problem
        return f"{len(catalogue.saved_queries())} saved queries"

    looks: dict[str, Callable[[], str]] = {
        "archive": network, "keys": keys, "address": address, "disk": disk, "saved": queries,
        "state": state,
    }  # fmt: skip
    return [_run_check(what, look) for what, look in looks.items()]


def _run_check(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, is_fine=True, message=look())
    except (HyperGridError, OSError) as error:
        return Finding(what, is_fine=False, message=str(error))


EVERY_S: Final = 5.0
"""Interval at which the process's activity is checked [s]."""
WORKED_S: Final = 0.2
"""Processor time within that interval above which the process is active [s]; `give_back` takes 10 to 40 ms."""


def share_heaps() -> None:
    """Make Arrow allocate from the C library, and limit the number of thread heaps."""
    # Arrow's own allocator retained 140 MB of unused memory. Each of 16 heaps, glibc's limit for two processors,
    # retains the gaps between live allocations.
    pa.set_memory_pool(pa.system_memory_pool())
    limit_heaps(2 * count_cores())


def exclude_permanent_objects() -> None:
    """Exclude all present objects from later collections of cycles.

    With 700,000 objects of libraries a collection takes 5 ms instead of 300, in which no other thread runs. It is done
    before the server is ready, so that few objects of requests are among them.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def return_freed_memory(*, every_s: float = EVERY_S) -> Iterator[None]:
    """Return freed memory periodically in a background thread while the context is open."""
    ended = threading.Event()

    def look() -> None:
        # Resident memory cannot decide this: memory in use a moment ago may be free now.
        before_s, has_worked = time.process_time(), False
        while not ended.wait(every_s):
            works = time.process_time() - before_s > WORKED_S
            # Once more after the last activity, for what was still in use at the previous call.
            if works or has_worked:
                give_back()
            before_s, has_worked = time.process_time(), works

    thread = threading.Thread(target=look, name="freed memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        gc.unfreeze()
