"""The folder of one import: uploaded files with their deployment file, and the state of its runs."""

import json
import os
import re
import shutil
import signal
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hypergrid.archive.disk.lock import is_free
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.files import replace_atomically
from hypergrid.core.importing import ImportState
from hypergrid.core.times import SECOND_NS, format_timestamp
from hypergrid.core.tokens import token
from ingest.deployment.deployment_file import FILE_NAME

FOLDER: Final = "imports"
"""Folder of the imports in an archive's folder."""
NAME_MOST: Final = 120
"""Maximum length of a file's name [bytes]."""
_NAME: Final = re.compile(r"[0-9a-f]{12}")
_PART: Final = ".part"
"""Suffix of a file that is being received; hidden, so that no ingest reads it."""


def file_name(given: str) -> str:
    """Return the name under which an uploaded file is kept: no path, nothing hidden, and only printable characters.

    Raises
    ------
    InvalidQuery
        Nothing is left of the name, or it is too long.

    Examples
    --------
    >>> file_name("../../etc/Wetter 2024.csv"), file_name("a:b.csv")
    ('Wetter 2024.csv', 'a_3ab.csv')
    """
    base = unicodedata.normalize("NFC", re.split(r"[/\\]", given)[-1]).strip().lstrip(".")
    # The code stays in the name, so that two names do not become one.
    name = re.sub(r"[^\w.\-()\[\] ]", lambda letter: f"_{ord(letter[0]):x}", base)
    if not name or len(name.encode()) > NAME_MOST:
        raise InvalidQuery(
            f"a file needs a name of 1 to {NAME_MOST} bytes, not only points; got {given[:80]!r}; rename it"
        )
    return name


def _size_bytes(path: Path) -> int:
    # Another request may have removed or renamed it since it was listed.
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def size_below(folder: Path) -> int:
    """Return the size of all files below a folder [bytes]; 0 if it is missing."""
    return sum(_size_bytes(Path(parent) / name) for parent, _, names in os.walk(folder) for name in names)


@dataclass(frozen=True)
class ImportFolder:
    """Folder of one import; its state is in files, so that it outlives the server."""

    path: Path

    @classmethod
    def find(cls, archive: Path, name: str) -> "ImportFolder":
        """Return the folder of an import; raises `NotFound`."""
        folder = cls(archive / FOLDER / name)
        if not _NAME.fullmatch(name) or not folder.files_folder.is_dir():
            raise NotFound(f"there is no import {name[:40]!r}; it may have been removed")
        return folder

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def created_ns(self) -> int:
        """Instant at which the import was created [ns since 1970 UTC]."""
        return int(self.read("import").get("created_ns", 0))

    @property
    def files_folder(self) -> Path:
        """Folder of the uploaded files, which `hypergrid ingest` takes as it is."""
        return self.path / "files"

    @property
    def deployment(self) -> Path:
        return self.files_folder / FILE_NAME

    @property
    def lock(self) -> Path:
        """Lock that the process of a run holds."""
        return self.path / "lock"

    def files(self) -> list[Path]:
        """Return the uploaded files, in order of their names."""
        return sorted(
            path for path in self.files_folder.iterdir() if path.name != FILE_NAME and not path.name.startswith(".")
        )

    def file(self, name: str) -> Path:
        """Return an uploaded file; raises `NotFound`."""
        path = self.files_folder / file_name(name)
        if not path.is_file():
            raise NotFound.among("file", name[:NAME_MOST], [file.name for file in self.files()])
        return path

    def part_of(self, name: str) -> Path:
        """Return where a file lies while it is received."""
        return self.files_folder / f".{name}{_PART}"

    def sweep(self) -> None:
        """Remove what a dead server left: uploads that it was receiving, and unpacked files of processes."""
        for path in self.files_folder.glob(f".*{_PART}"):
            path.unlink(missing_ok=True)
        if self.state() != "running":
            shutil.rmtree(self.path / "scratch", ignore_errors=True)

    def clear_scratch(self, task: str) -> Path:
        """Return an empty folder for what a process unpacks."""
        scratch = self.path / "scratch" / task
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        return scratch

    def size_bytes(self) -> int:
        """Return the size of all files, those that are being received included [bytes]."""
        return sum(_size_bytes(path) for path in self.files_folder.iterdir())

    def content_token(self) -> str:
        """Return a digest of names, sizes and times of the files and the deployment file."""
        paths: Iterable[Path] = (*self.files(), *([self.deployment] if self.deployment.is_file() else []))
        return token([(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths])

    def read(self, kind: str) -> dict[str, Any]:
        """Return a document of the state; empty if absent."""
        try:
            content: dict[str, Any] = json.loads((self.path / f"{kind}.json").read_text("utf-8"))
        except FileNotFoundError:
            return {}
        return content

    def write(self, kind: str, document: dict[str, Any], *, durable: bool = True) -> None:
        """Replace a document of the state."""
        with replace_atomically(self.path / f"{kind}.json", durable=durable) as scratch:
            scratch.write_text(json.dumps(document, ensure_ascii=False, allow_nan=False), "utf-8")

    def forget(self, kind: str) -> None:
        (self.path / f"{kind}.json").unlink(missing_ok=True)

    def state(self) -> ImportState:
        # The process of a run holds the lock until it ends in whatever way, also if the server was restarted.
        if not is_free(self.lock):
            return "running"
        outcome = self.read("outcome")
        if outcome:
            return "failed" if outcome["error"] else "done"
        return "interrupted" if self.read("process") else "open"

    def to_json(self) -> dict[str, Any]:
        """Return the state for users."""
        state, outcome, runs = self.state(), self.read("outcome"), self.read("runs")
        return {
            "id": self.name,
            "owner": self.read("import").get("owner", ""),
            "created": format_timestamp(self.created_ns // SECOND_NS * SECOND_NS),
            "state": state,
            "files": [{"name": path.name, "size_bytes": _size_bytes(path)} for path in self.files()],
            "described": self.deployment.is_file(),
            "runs": len(runs.get("instants_ns", ())),
            "progress": self.read("progress") if state == "running" else {},
            "report": outcome.get("report") or None,
            "error": outcome.get("error") or None,
        }

    def kill(self) -> None:
        """Kill the process group of the run, if it is alive."""
        pid = self.read("process").get("pid")
        # While the lock is held its process is alive, so that the number cannot be another's.
        if pid is not None and not is_free(self.lock):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
