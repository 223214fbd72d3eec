"""What can go wrong, in one tree.

::

    HyperGridError
    ├── NotFound            (LookupError)     a name that does not exist: what was given, what exists
    ├── InvalidQuery        (ValueError)      a question that cannot be answered, refused before it runs
    │   └── InvalidFunction                   a function that a user added cannot be used, or failed in a cell
    ├── InvalidUnit         (ValueError)      a unit that is unknown or does not convert
    ├── InvalidTime         (ValueError)      an instant or a duration that cannot be read
    ├── InvalidDeployment   (ValueError)      a deployment file that cannot be used
    ├── InvalidLayer        (ValueError)      a raster or an array that cannot be a layer
    ├── NotAnArchive        (ValueError)      a folder that is no archive (left untouched)
    │   ├── DamagedArchive                    bytes of an archive that are not what was written
    │   └── UnknownLayout                     an archive that another version of the program reads
    ├── OldLayout           (ValueError)      an archive that this program reads, and writes once it was upgraded
    ├── CannotBackUp        (ValueError)      a backup that cannot be made or restored: what is in the way
    ├── ArchiveConflict     (FileExistsError) an archive is in the way, is another network's, or is held
    ├── StoreUnavailable    (ConnectionError) the S3-compatible store of an archive does not answer, or refuses
    ├── TooLarge            (MemoryError)     a plan above its limit: both numbers
    ├── SingularSystem      (ArithmeticError) stations that a kriging system cannot tell apart
    ├── Rejected            (ValueError)      strict ingest met rows that it could not read
    └── Cancelled           (RuntimeError)    somebody asked a run to stop

Every message says who needed what, what came, and what to do. One file of the web folder maps this tree to HTTP.
"""

import difflib
from collections.abc import Iterable


class HyperGridError(Exception):
    """Base of everything that HyperGrid raises on purpose."""


class NotFound(HyperGridError, LookupError):
    """A name that does not exist."""

    @classmethod
    def among(cls, kind: str, given: object, existing: Iterable[object]) -> "NotFound":
        """Build the message "unknown KIND 'given'; did you mean …? There are: …"."""
        names = sorted(map(str, existing))
        close = difflib.get_close_matches(str(given), names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        listing = ", ".join(names[:40]) + (", …" if len(names) > 40 else "") if names else "none"
        return cls(f"unknown {kind} {str(given)!r}{hint} There are: {listing}")


class InvalidQuery(HyperGridError, ValueError):
    """A query that cannot be answered; found before anything is computed."""


class InvalidFunction(InvalidQuery):
    """A function that a user added: it cannot be added, or it raised or gave no proper values; the cell is named."""


class InvalidUnit(HyperGridError, ValueError):
    """A unit that is unknown, or does not convert to the one that is needed."""


class InvalidTime(HyperGridError, ValueError):
    """An instant, a duration or a zone that cannot be read."""


class InvalidDeployment(HyperGridError, ValueError):
    """A deployment file that cannot be used; the message names the key."""


class InvalidLayer(HyperGridError, ValueError):
    """A raster or an array that cannot be a layer; the message says what it lacks."""


class NotAnArchive(HyperGridError, ValueError):
    """A folder that is no archive. Nothing in it was touched."""


class DamagedArchive(NotAnArchive):
    """Bytes of an archive are not what was written; the message names the file, or the readings that it held."""


class UnknownLayout(NotAnArchive):
    """An archive of a layout that this program does not read; the message names the program that does."""


class OldLayout(HyperGridError, ValueError):
    """An archive of an older layout: this program reads it, and writes to it once it was upgraded."""


class CannotBackUp(HyperGridError, ValueError):
    """A backup cannot be made, or restored; the message says what is in the way, and what to do."""


class ArchiveConflict(HyperGridError, FileExistsError):
    """Something is where an archive should be made, it was made for another network, or another process is at it."""


class StoreUnavailable(HyperGridError, ConnectionError):
    """The S3-compatible store of an archive's values does not answer, or refuses; once it does, ask again."""


class TooLarge(HyperGridError, MemoryError):
    """A plan whose projected size is above its limit; refused before it starts.

    Parameters
    ----------
    who, what
        The step or the plan, and the quantity with its unit.
    projected, allowed
        Both numbers, in that unit.
    remedy
        What the caller can do.
    """

    def __init__(self, label: str, what: str, projected: float, allowed: float, remedy: str) -> None:
        super().__init__(f"{label} projects {projected:,.0f} {what}, above the {allowed:,.0f} allowed; {remedy}")
        self.projected = projected
        self.allowed = allowed


class CannotListen(HyperGridError, OSError):
    """A server cannot listen where it was told to; the message says why and what to do."""


class SingularSystem(HyperGridError, ArithmeticError):
    """A kriging system without a unique solution; the message names the stations."""


class Rejected(HyperGridError, ValueError):
    """Strict ingest met rows that it could not read; nothing was committed."""


class Cancelled(HyperGridError, RuntimeError):
    """A run was asked to stop, and stopped between two blocks."""
