"""Imports of an archive, each in a folder below it; what takes long runs in processes of their own."""

import errno
import os
import shutil
import signal
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final
from uuid import uuid4

from hypergrid.archive import Archive
from hypergrid.archive.disk.lock import lock_for_child, try_lock
from hypergrid.core.errors import ArchiveConflict, InvalidDeployment, NotFound
from hypergrid.core.files import replace_atomically, sync_folder
from hypergrid.core.importing import ImportBusy, ImportLimits, ImportTooLarge, ImportUnreadable
from hypergrid.core.times import SECOND_NS
from ingest.batch.archive_session import check_same, check_units
from ingest.deployment.deployment_file import FILE_NAME, Deployment, from_mapping
from ingest.deployment.toml_text import write_toml
from ingest.importing.folder import FOLDER, ImportFolder, file_name
from ingest.importing.job import UNPACKED_RATIO, JobLimits, Task, command

IMPORTS_MOST: Final = 100
"""Maximum number of imports that are kept."""
TABLE_BYTES_MOST: Final = 8 << 20
"""Maximum size of a table that a deployment names: it is read whenever the deployment is [bytes]."""
DEPLOYMENT_BYTES_MOST: Final = 1 << 20
"""Maximum size of a deployment [bytes]."""
PROPOSAL_S: Final = 60
"""Maximum duration of a proposal, for which a request waits [s]."""
RESERVED_BYTES: Final = 256 << 20
"""Size of the disk that imports leave free [bytes]."""
_REFUSED: Final = ("mqtt", "stream", "archive")
"""Tables of a deployment that concern the machine rather than files."""
_STOPPED_S: Final = 10.0
"""Longest time that a killed process takes to end [s]."""
_LOCK_TRIES: Final = 20
"""Attempts to take the lock of an import, as a reader of its state holds it for a moment."""
_LOCK_RETRY_S: Final = 0.01
"""Time between two attempts [s]."""


@dataclass
class FileUpload:
    """A file that is being received."""

    name: str
    _importer: "FolderImporter"
    _file: IO[bytes]
    _size_bytes: int = 0

    def write(self, block: bytes) -> None:
        """Append bytes; raises `ImportTooLarge` above a limit."""
        self._size_bytes += len(block)
        if self._size_bytes > self._importer.limits.file_bytes:
            raise ImportTooLarge(
                f"a file may have {self._importer.limits.file_bytes:,} bytes, the setting 'import_file_bytes'; "
                f"{self.name} has more; pack it (.gz), or split it"
            )
        self._importer.take_room(len(block))
        self._file.write(block)


class FolderImporter:
    """Implements `hypergrid.core.importing.Importer` for the archive in a folder."""

    def __init__(self, archive: Path, limits: ImportLimits) -> None:
        self.limits = limits
        self._archive = archive.resolve()
        # Held for moments, while a state is checked and changed: no file changes while a run starts.
        self._lock = threading.Lock()
        self._proposing = threading.Lock()
        self._proposal: tuple[str, subprocess.Popen[bytes]] | None = None
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._watchdog: threading.Timer | None = None
        self._is_closed = False
        self._held = ExitStack()
        (self._archive / FOLDER).mkdir(exist_ok=True)
        # Another server, beside which this one will be refused, may be receiving files.
        with suppress(ArchiveConflict):
            self._held.enter_context(try_lock(self._archive / FOLDER / "lock", f"process {os.getpid()}"))
            for folder in self._folders():
                folder.sweep()
                if folder.state() == "running":
                    self._watch(folder)
        self._used_bytes = self._measure()

    def create(self, owner: str) -> dict[str, Any]:
        """Create an import without files; return its state."""
        if len(self._folders()) >= IMPORTS_MOST:
            raise ImportTooLarge(f"{IMPORTS_MOST} imports are kept at most; remove those that are done")
        folder = ImportFolder(self._archive / FOLDER / uuid4().hex[:12])
        folder.files_folder.mkdir(parents=True)
        folder.write("import", {"owner": owner, "created_ns": time.time_ns()})
        return folder.to_json()

    def listing(self) -> list[dict[str, Any]]:
        """Return the states of all imports, newest first."""
        self._reap()
        # None of them is removed meanwhile.
        with self._lock:
            folders = sorted(self._folders(), key=lambda folder: folder.created_ns, reverse=True)
            return [folder.to_json() for folder in folders]

    def show(self, name: str) -> dict[str, Any]:
        """Return the state of an import: its files, progress, and the report of its last run."""
        self._reap()
        with self._lock:
            return ImportFolder.find(self._archive, name).to_json()

    @contextmanager
    def receive(self, name: str, file: str) -> Iterator[FileUpload]:
        """Receive a file, which gets its name when the context ends without an error, and is removed otherwise."""
        kept_name = file_name(file)
        with self._lock:
            folder = self._changeable(name)
            path, part = folder.files_folder / kept_name, folder.part_of(kept_name)
            self._check_count(folder, path)
            try:
                stream = part.open("xb")
            except FileExistsError as error:
                raise ImportBusy(f"{kept_name} is being received already; send it once") from error
        try:
            with stream:
                yield FileUpload(kept_name, self, stream)
                stream.flush()
                os.fsync(stream.fileno())
            if kept_name == FILE_NAME:
                self._check_received(folder, part)
            with self._lock:
                # A run may have started, or the import been removed, while it was received.
                self._changeable(name)
                self._check_count(folder, path)
                part.replace(path)
            sync_folder(folder.files_folder)
        finally:
            part.unlink(missing_ok=True)
            with self._lock:
                self._used_bytes = self._measure()

    def take_room(self, size_bytes: int) -> None:
        """Count bytes that are about to be written.

        Raises
        ------
        ImportTooLarge
            They exceed the total of all imports.
        OSError
            The disk would be nearly full (`ENOSPC`).
        """
        self._check_disk(size_bytes)
        with self._lock:
            self._used_bytes += size_bytes
            if self._used_bytes > self.limits.total_bytes:
                raise ImportTooLarge(
                    f"the files of all imports may have {self.limits.total_bytes:,} bytes together, the setting "
                    "'import_bytes'; remove imports that are done: their readings stay"
                )

    def remove_file(self, name: str, file: str) -> None:
        """Remove a file."""
        with self._lock:
            self._changeable(name).file(file).unlink()
            self._used_bytes = self._measure()

    def propose(self, name: str) -> dict[str, Any]:
        """Return how the files would be read and why, as a deployment document with questions."""
        # One at a time, as each takes a processor.
        with self._proposing:
            with self._lock:
                folder = self._changeable(name)
                key = folder.content_token()
            kept = folder.read("proposal")
            if kept.get("key") != key:
                folder.forget("proposal")
                self._look(folder)
                kept = folder.read("proposal")
        if "proposal" not in kept:
            error = kept.get("error") or "the process that looked at the files ended; the server's log has more"
            folder.forget("proposal")
            raise ImportUnreadable(error)
        proposal: dict[str, Any] = kept["proposal"]
        return proposal

    def describe(self, name: str, document: Mapping[str, Any] | str) -> str:
        """Keep a deployment, as a document or as TOML; return it as TOML."""
        folder = self._changeable(name)
        text = document if isinstance(document, str) else write_toml(document)
        self._check_fits(folder, text)
        with self._lock:
            self._changeable(name)
            with replace_atomically(folder.deployment, durable=True) as scratch:
                scratch.write_text(text, "utf-8")
        sync_folder(folder.files_folder)
        return text

    def description(self, name: str) -> str:
        """Return the deployment that is kept, as TOML; raises `NotFound` without one."""
        path = ImportFolder.find(self._archive, name).deployment
        if not path.is_file():
            raise NotFound(f"the import {name} has no deployment yet; PUT one")
        return path.read_text("utf-8")

    def run(self, name: str) -> dict[str, Any]:
        """Start to ingest the files in a process of its own; return the state of the import."""
        # As the command line does; the archive may have changed since, or the file been uploaded as it is.
        self._check_fits(self._changeable(name), self.description(name))
        self._check_disk(0)
        with self._lock:
            folder = self._changeable(name)
            self._reap()
            running = next((other.name for other in self._folders() if other.state() == "running"), None)
            if running is not None:
                raise ImportBusy(f"the import {running} is running, and one runs at a time; run this one after it")
            # First, so that nothing kills a process that has the number of a former run.
            folder.forget("process")
            with _hold_for_child(folder) as descriptor:
                folder.forget("outcome")
                folder.forget("progress")
                child = self._start(folder, "ingest", pass_fds=(descriptor,))
                self._children[name] = child
                folder.write("process", {"pid": child.pid, "started_ns": time.time_ns()})
            self._watch(folder)
        return folder.to_json()

    def stop(self, name: str) -> None:
        """Kill the process of an import; what is not committed is as if it had not been started."""
        folder = ImportFolder.find(self._archive, name)
        with self._lock:
            folder.kill()
        self._wait_for_end(folder)

    def remove(self, name: str) -> None:
        """Remove an import and its files; committed readings stay."""
        self.stop(name)
        with self._lock:
            folder = self._changeable(name)
            self._end_proposal(name)
            shutil.rmtree(folder.path)
            self._used_bytes = self._measure()

    def close(self) -> None:
        """Stop the processes that this server started."""
        with self._lock:
            self._is_closed = True
            if self._proposal is not None:
                self._end_proposal(self._proposal[0])
        for name, child in list(self._children.items()):
            if child.poll() is None:
                self.stop(name)
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._held.close()

    def _check_received(self, folder: ImportFolder, part: Path) -> None:
        """Refuse an uploaded deployment file that cannot be used; the proposal fits it to the archive."""
        _check_size(part.stat().st_size)
        try:
            _parse(part.read_text("utf-8-sig"), folder)
        except UnicodeDecodeError as error:
            raise InvalidDeployment(f"{FILE_NAME}: no TOML: {error}") from error

    def _check_fits(self, folder: ImportFolder, text: str) -> None:
        """Refuse a deployment that cannot be used, or does not fit the archive; errors as in `describe`."""
        _check_size(len(text))
        described = _parse(text, folder)
        archive = Archive.open(self._archive)
        check_same(archive, described)
        check_units(archive, described)

    def _check_count(self, folder: ImportFolder, path: Path) -> None:
        if not path.exists() and len(folder.files()) >= self.limits.files:
            raise ImportTooLarge(
                f"an import may have {self.limits.files:,} files, the setting 'import_files'; pack them (.zip)"
            )

    def _check_disk(self, size_bytes: int) -> None:
        """Raise `OSError` (`ENOSPC`) if too little of the disk stays free."""
        if shutil.disk_usage(self._archive).free - size_bytes < RESERVED_BYTES:
            raise OSError(errno.ENOSPC, f"imports leave {RESERVED_BYTES:,} bytes of the disk free")

    def _folders(self) -> list[ImportFolder]:
        below = self._archive / FOLDER
        paths = sorted(below.iterdir()) if below.is_dir() else []
        return [ImportFolder(path) for path in paths if (path / "files").is_dir()]

    def _measure(self) -> int:
        return sum(folder.size_bytes() for folder in self._folders())

    def _changeable(self, name: str) -> ImportFolder:
        folder = ImportFolder.find(self._archive, name)
        if folder.state() == "running":
            raise ImportBusy(f"the import {name} is running, and stays as it is until its end; stop it, or wait")
        return folder

    def _reap(self) -> None:
        """Take the exit status of processes that ended, which the system keeps until then."""
        for child in list(self._children.values()):
            child.poll()

    def _start(self, folder: ImportFolder, task: Task, *, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        seconds = self.limits.seconds if task == "ingest" else min(PROPOSAL_S, self.limits.seconds)
        limits = JobLimits(seconds, UNPACKED_RATIO * self.limits.total_bytes, RESERVED_BYTES)
        words = command(self._archive, folder.name, task, limits)
        # In a session of its own, so that its whole group can be killed, and Ctrl-C is the server's.
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=pass_fds)

    def _look(self, folder: ImportFolder) -> None:
        """Make a proposal in a process, and wait for its end."""
        self._check_disk(0)
        with self._lock:
            if self._is_closed:
                raise ImportBusy("the server is ending, and looks at no more files; ask again once it is up")
            self._changeable(folder.name)
            child = self._start(folder, "propose")
            self._proposal = folder.name, child
        # It gives up by itself, unless a library holds it.
        with suppress(subprocess.TimeoutExpired):
            child.wait(PROPOSAL_S + _STOPPED_S)
        with self._lock:
            self._end_proposal(folder.name)
            self._proposal = None
        # It may have been removed.
        ImportFolder.find(self._archive, folder.name)

    def _end_proposal(self, name: str) -> None:
        """Kill the process that makes the proposal of an import, if there is one; the lock is held."""
        if self._proposal is None or self._proposal[0] != name:
            return
        child = self._proposal[1]
        if child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _watch(self, folder: ImportFolder) -> None:
        """Kill the process of a run that outlives its time, which it observes itself unless a library holds it."""
        process = folder.read("process")
        age_s = (time.time_ns() - process.get("started_ns", 0)) / SECOND_NS
        if self._watchdog is not None:
            self._watchdog.cancel()
        longest_s = self.limits.seconds + _STOPPED_S
        self._watchdog = threading.Timer(max(longest_s - age_s, 0.0), self._end_overdue, (folder, process))
        self._watchdog.daemon = True
        self._watchdog.start()

    def _end_overdue(self, folder: ImportFolder, process: Mapping[str, Any]) -> None:
        with self._lock:
            if folder.read("process") != process or folder.state() != "running":
                return
            folder.kill()
        self._wait_for_end(folder)
        # The folder may have been removed.
        with self._lock, suppress(FileNotFoundError):
            if folder.read("process") == process and not folder.read("outcome"):
                error = f"it took longer than {self.limits.seconds} s, the setting 'import_seconds', and was killed"
                folder.write("outcome", {"report": None, "error": error})

    def _wait_for_end(self, folder: ImportFolder) -> None:
        """Wait until a killed process has ended."""
        ends_s = time.monotonic() + _STOPPED_S
        while folder.state() == "running" and time.monotonic() < ends_s:
            time.sleep(0.02)
        self._reap()


@contextmanager
def _hold_for_child(folder: ImportFolder) -> Iterator[int]:
    """Hold the lock of an import for its run; raises `ImportBusy` if another process holds it."""
    with ExitStack() as stack:
        for attempt in range(_LOCK_TRIES):
            try:
                descriptor = stack.enter_context(lock_for_child(folder.lock))
                break
            except ArchiveConflict as error:
                if attempt == _LOCK_TRIES - 1:
                    raise ImportBusy(f"the import {folder.name} is running; wait for its end") from error
                time.sleep(_LOCK_RETRY_S)
        yield descriptor


def _check_size(size_bytes: int) -> None:
    if size_bytes > DEPLOYMENT_BYTES_MOST:
        raise ImportTooLarge(
            f"a deployment may have {DEPLOYMENT_BYTES_MOST:,} bytes; this one has {size_bytes:,}; name a table of "
            "stations"
        )


def _parse(text: str, folder: ImportFolder) -> Deployment:
    """Return the deployment that a TOML text describes for the files of an import; raises `InvalidDeployment`."""
    try:
        text.encode()
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidDeployment(f"{FILE_NAME}: no TOML: {error}") from error
    _refuse_outside(content, folder)
    return from_mapping(content, path=folder.deployment)


def _refuse_outside(content: Mapping[str, Any], folder: ImportFolder) -> None:
    """Refuse keys that reach beyond the files of an import.

    Raises
    ------
    InvalidDeployment
        With the key.
    """
    for key in _REFUSED:
        if key in content:
            _refuse(key, "is not for an import, which reads files; leave it out")
    network = content.get("network", {})
    feeds = content.get("feed", ())
    named = [("network.stations", network.get("stations") if isinstance(network, Mapping) else None)]
    named += [
        (f"feed[{index}].arrivals", feed.get("arrivals"))
        for index, feed in enumerate(feeds if isinstance(feeds, list) else ())
        if isinstance(feed, Mapping)
    ]
    sizes = {path.name: path.stat().st_size for path in folder.files()}
    for key, table in named:
        if table is None:
            continue
        if not isinstance(table, str) or table not in sizes:
            _refuse(key, f"needs the name of an uploaded file; got {table!r}")
        if sizes[table] > TABLE_BYTES_MOST:
            _refuse(key, f"needs a table of at most {TABLE_BYTES_MOST:,} bytes; {table} has {sizes[table]:,}")


def _refuse(key: str, what: str) -> None:
    error = InvalidDeployment(f"{FILE_NAME}: {key} {what}")
    error.key = key
    raise error
