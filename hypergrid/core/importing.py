"""Imports of station files on a server: the protocol of what runs them, and their limits.

An import is a folder of uploaded files with their deployment file, and what became of them. `ingest` implements the
protocol, the web API calls it, and the command line passes the one to the other.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from hypergrid.core.errors import HyperGridError

ImportState = Literal["open", "running", "done", "failed", "interrupted"]
"""Open until it runs for the first time; interrupted if its process died before the end."""


class ImportBusy(HyperGridError, RuntimeError):
    """An import is running, so that this one cannot run, or cannot be changed."""


class ImportUnreadable(HyperGridError, ValueError):
    """The files of an import cannot be looked at; the message says why."""


class ImportTooLarge(HyperGridError, ValueError):
    """A file, or the files of all imports together, exceed a limit; the message has the limit."""


@dataclass(frozen=True)
class ImportLimits:
    """Limits of the imports of a server."""

    file_bytes: int
    """Size of a file [bytes]."""
    files: int
    """Number of files of an import."""
    total_bytes: int
    """Size of the files of all imports together [bytes]."""
    seconds: int
    """Duration of a run [s]."""


class IncomingFile(Protocol):
    """A file that is being received."""

    name: str
    """Name under which it is kept."""

    def write(self, block: bytes) -> None:
        """Append bytes; raises `ImportTooLarge` above a limit."""


class Importer(Protocol):
    """Imports of an archive.

    An unknown import or file raises `NotFound`, a change of a running one `ImportBusy`.
    """

    limits: ImportLimits

    def create(self, owner: str) -> dict[str, Any]:
        """Create an import without files; return its state."""

    def listing(self) -> list[dict[str, Any]]:
        """Return the states of all imports, newest first."""

    def show(self, name: str) -> dict[str, Any]:
        """Return the state of an import: its files, progress, and the report of its last run."""

    def receive(self, name: str, file: str) -> AbstractContextManager[IncomingFile]:
        """Receive a file, which gets its name when the context ends without an error, and is removed otherwise."""

    def remove_file(self, name: str, file: str) -> None:
        """Remove a file."""

    def propose(self, name: str) -> dict[str, Any]:
        """Return how the files would be read and why, as a deployment document with questions.

        Raises `ImportUnreadable` if the kept deployment cannot be used, or the files take too long; one is made at a
        time, and callers wait for their turn.
        """

    def describe(self, name: str, document: Mapping[str, Any] | str) -> str:
        """Keep a deployment, as a document or as TOML; return it as TOML.

        Raises
        ------
        InvalidDeployment
            It cannot be used; `key` is the path of the key.
        ArchiveConflict
            It does not fit the archive.
        """

    def description(self, name: str) -> str:
        """Return the deployment that is kept, as TOML; raises `NotFound` without one."""

    def run(self, name: str) -> dict[str, Any]:
        """Start to ingest the files in a process of its own; return the state of the import.

        Readings of a former run are replaced by those that the current deployment gives.
        """

    def stop(self, name: str) -> None:
        """Kill the process of an import; what is not committed is as if it had not been started."""

    def remove(self, name: str) -> None:
        """Remove an import and its files; committed readings stay."""
