"""Imports of an archive, each in a folder below it; what takes long runs in processes of their own."""

import os
import shutil
import signal
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final
from uuid import uuid4

from hypergrid.archive import Archive
from hypergrid.archive.disk.lock import lock_for_child
from hypergrid.core.errors import ArchiveConflict, InvalidDeployment, NotFound
from hypergrid.core.files import replace_atomically
from hypergrid.core.importing import ImportBusy, ImportLimits, ImportTooLarge, ImportUnreadable
from ingest.batch.archive_session import check_same, check_units
from ingest.deployment.deployment_file import FILE_NAME, Deployment, from_mapping
from ingest.deployment.toml_text import write_toml
from ingest.importing.folder import FOLDER, ImportFolder, file_name
from ingest.importing.job import command

IMPORTS_MOST: Final = 100
"""Maximum number of imports that are kept."""
TABLE_BYTES_MOST: Final = 8 << 20
"""Maximum size of a table that a deployment names: it is read whenever the deployment is [bytes]."""
_REFUSED: Final = ("mqtt", "stream", "archive")
"""Tables of a deployment that concern the machine rather than files."""
_STOPPED_S: Final = 10.0
"""Longest time that a killed process takes to end [s]."""


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
        self._lock = threading.Lock()
        self._proposing = threading.Lock()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        for folder in self._folders():
            folder.sweep()
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
        folders = sorted(self._folders(), key=lambda folder: folder.created_ns, reverse=True)
        return [folder.to_json() for folder in folders]

    def show(self, name: str) -> dict[str, Any]:
        """Return the state of an import: its files, progress, and the report of its last run."""
        self._reap()
        return ImportFolder.find(self._archive, name).to_json()

    @contextmanager
    def receive(self, name: str, file: str) -> Iterator[FileUpload]:
        """Receive a file, which gets its name when the context ends without an error, and is removed otherwise."""
        folder, kept_name = self._changeable(name), file_name(file)
        path, part = folder.files_folder / kept_name, folder.part_of(kept_name)
        if not path.exists() and len(folder.files()) >= self.limits.files:
            raise ImportTooLarge(
                f"an import may have {self.limits.files:,} files, the setting 'import_files'; pack them (.zip)"
            )
        try:
            stream = part.open("xb")
        except FileExistsError as error:
            raise ImportBusy(f"{kept_name} is being received already; send it once") from error
        try:
            with stream:
                yield FileUpload(kept_name, self, stream)
            if kept_name == FILE_NAME:
                self._check_received(folder, part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
            with self._lock:
                self._used_bytes = self._measure()

    def take_room(self, size_bytes: int) -> None:
        """Count bytes that are about to be written; raises `ImportTooLarge` above the total of all imports."""
        with self._lock:
            self._used_bytes += size_bytes
            if self._used_bytes > self.limits.total_bytes:
                raise ImportTooLarge(
                    f"the files of all imports may have {self.limits.total_bytes:,} bytes together, the setting "
                    "'import_bytes'; remove imports that are done: their readings stay"
                )

    def remove_file(self, name: str, file: str) -> None:
        """Remove a file."""
        self._changeable(name).file(file).unlink()
        with self._lock:
            self._used_bytes = self._measure()

    def propose(self, name: str) -> dict[str, Any]:
        """Return how the files would be read and why, as a deployment document with questions."""
        folder = self._changeable(name)
        # One at a time, as each takes a processor.
        with self._proposing:
            kept = folder.read("proposal")
            if kept.get("key") != folder.content_token():
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
        described = _parse(text, folder)
        archive = Archive.open(self._archive)
        check_same(archive, described)
        check_units(archive, described)
        with replace_atomically(folder.deployment, durable=True) as scratch:
            scratch.write_text(text, "utf-8")
        return text

    def description(self, name: str) -> str:
        """Return the deployment that is kept, as TOML; raises `NotFound` without one."""
        path = ImportFolder.find(self._archive, name).deployment
        if not path.is_file():
            raise NotFound(f"the import {name} has no deployment yet; PUT one")
        return path.read_text("utf-8")

    def run(self, name: str) -> dict[str, Any]:
        """Start to ingest the files in a process of its own; return the state of the import."""
        folder = self._changeable(name)
        self.description(name)
        with self._lock:
            self._reap()
            running = next((other.name for other in self._folders() if other.state() == "running"), None)
            if running is not None:
                raise ImportBusy(f"the import {running} is running, and one runs at a time; run this one after it")
            try:
                with lock_for_child(folder.lock) as descriptor:
                    folder.forget("outcome")
                    folder.forget("progress")
                    words = command(self._archive, name, "ingest", self.limits.seconds)
                    # In a session of its own, so that its whole group can be killed, and Ctrl-C is the server's.
                    child = subprocess.Popen(
                        words, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=(descriptor,)
                    )
                    self._children[name] = child
                    folder.write("process", {"pid": child.pid})
            except ArchiveConflict as error:
                raise ImportBusy(f"the import {name} is running; wait for its end") from error
        return folder.to_json()

    def stop(self, name: str) -> None:
        """Kill the process of an import; what is not committed is as if it had not been started."""
        folder = ImportFolder.find(self._archive, name)
        folder.kill()
        ends_s = time.monotonic() + _STOPPED_S
        while folder.state() == "running" and time.monotonic() < ends_s:
            time.sleep(0.02)
        self._reap()

    def remove(self, name: str) -> None:
        """Remove an import and its files; committed readings stay."""
        folder = ImportFolder.find(self._archive, name)
        self.stop(name)
        shutil.rmtree(folder.path)
        with self._lock:
            self._used_bytes = self._measure()

    def close(self) -> None:
        """Stop the runs that this server started."""
        for name, child in self._children.items():
            if child.poll() is None:
                self.stop(name)

    def _check_received(self, folder: ImportFolder, part: Path) -> None:
        """Refuse an uploaded deployment file that cannot be used; the proposal fits it to the archive."""
        if part.stat().st_size > TABLE_BYTES_MOST:
            raise ImportTooLarge(f"a {FILE_NAME} may have {TABLE_BYTES_MOST:,} bytes; this one has more")
        try:
            _parse(part.read_text("utf-8-sig"), folder)
        except UnicodeDecodeError as error:
            raise InvalidDeployment(f"{FILE_NAME}: no TOML: {error}") from error

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

    def _look(self, folder: ImportFolder) -> None:
        words = command(self._archive, folder.name, "propose", self.limits.seconds)
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True) as child:
            # It gives up by itself, unless a library holds it.
            with suppress(subprocess.TimeoutExpired):
                child.wait(self.limits.seconds + _STOPPED_S)
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)


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
