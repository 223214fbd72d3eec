"""Exception hierarchy of HyperGrid.

::

    HyperGridError
    ├── NotFound            (LookupError)     an unknown name: the message lists the existing ones
    ├── InvalidQuery        (ValueError)      a query that cannot be answered, refused before it runs
    │   └── InvalidFunction                   a user function that cannot be registered, or failed in a cell
    ├── InvalidUnit         (ValueError)      a unit that is unknown or does not convert
    ├── InvalidTime         (ValueError)      an instant or a duration that cannot be parsed
    ├── InvalidDeployment   (ValueError)      a deployment file that cannot be used
    ├── InvalidLayer        (ValueError)      a raster or an array that cannot be used as a layer
    ├── NotAnArchive        (ValueError)      a folder that is not an archive (left untouched)
    │   ├── DamagedArchive                    archive bytes that differ from what was written
    │   └── UnknownLayout                     an archive that needs another version of the program
    ├── OldLayout           (ValueError)      an archive that can be read, but must be upgraded before writing
    ├── CannotBackUp        (ValueError)      a backup that cannot be made or restored, with the obstacle
    ├── ArchiveConflict     (FileExistsError) the path is taken, of another network, or locked by another process
    ├── StoreUnavailable    (ConnectionError) the S3-compatible store of an archive does not respond, or refuses
    ├── TooLarge            (MemoryError)     a plan above its limit, with both numbers
    ├── CannotListen        (OSError)         a server that cannot listen on its address
    ├── SingularSystem      (ArithmeticError) stations that a kriging system cannot distinguish
    ├── Rejected            (ValueError)      rows that strict ingest could not parse
    └── Cancelled           (RuntimeError)    a run that was stopped on request

Every message names the component, what it needed, what it got, and what to do. One file of the web package maps this
tree to HTTP.
"""

import difflib
from collections.abc import Collection, Iterable
from typing import Self


class HyperGridError(Exception):
    """Base of all errors that HyperGrid raises on purpose."""

    def locate(self, where: str) -> Self:
        """Return an error of the same class, by which callers distinguish errors, with `where` before its message."""
        return type(self)(f"{where}: {self}")


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

    @classmethod
    def refuse_unknown(cls, kind: str, given: Iterable[object], existing: Collection[object]) -> None:
        """Raise the error of `among` for the first name that does not exist."""
        for name in given:
            if name not in existing:
                raise cls.among(kind, name, existing)


class InvalidQuery(HyperGridError, ValueError):
    """A query that cannot be answered; raised before anything is computed."""


class InvalidFunction(InvalidQuery):
    """A user function that cannot be registered, raised, or returned invalid values; names the cell."""


class InvalidUnit(HyperGridError, ValueError):
    """A unit that is unknown, or does not convert to the required one."""


class InvalidTime(HyperGridError, ValueError):
    """An instant, a duration or a time zone that cannot be parsed."""


class InvalidDeployment(HyperGridError, ValueError):
    """A deployment file that cannot be used; the message names the key."""

    key: str = ""
    """Path of the key, as in "feed[0].timezone"; empty if the error has none."""


class InvalidLayer(HyperGridError, ValueError):
    """A raster or array that cannot be used as a layer, with the defect."""


class NotAnArchive(HyperGridError, ValueError):
    """A folder that is not an archive. It was left untouched."""


class DamagedArchive(NotAnArchive):
    """Archive bytes that differ from what was written; names the file or lost readings."""


class UnknownLayout(NotAnArchive):
    """An archive layout that this program cannot read; the message names the version that can."""


class OldLayout(HyperGridError, ValueError):
    """An archive of an older layout: readable, but it must be upgraded before writing."""


class CannotBackUp(HyperGridError, ValueError):
    """A backup that cannot be made or restored; names the obstacle and the remedy."""


class ArchiveConflict(HyperGridError, FileExistsError):
    """An archive path that is taken, of another network, or locked by another process."""


class StoreUnavailable(HyperGridError, ConnectionError):
    """The S3-compatible store of an archive does not respond, or refuses; can be retried."""


class TooLarge(HyperGridError, MemoryError):
    """A plan whose projected size exceeds its limit; raised before it starts.

    Parameters
    ----------
    label, what
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
        self._words = label, what, remedy

    def locate(self, where: str) -> Self:
        label, what, remedy = self._words
        return type(self)(f"{where}: {label}", what, self.projected, self.allowed, remedy)


class CannotListen(HyperGridError, OSError):
    """A server cannot listen on its address; the message gives the reason and the remedy."""


class SingularSystem(HyperGridError, ArithmeticError):
    """A kriging system without a unique solution; the message names the stations."""


class Rejected(HyperGridError, ValueError):
    """Rows that strict ingest could not parse; nothing was committed."""


class Cancelled(HyperGridError, RuntimeError):
    """A run that was stopped on request, between two blocks."""
