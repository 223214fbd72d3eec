"""A result computed again from what it says of itself, and compared: `hg.again`, `hypergrid query --again`.

It is computed from the snapshot that it cites. Where that one expired it is computed from the newest snapshot, as of
the instant when the expired one was committed: from arrival times and superseded readings. The outcome says which.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import xarray as xr

from hypergrid.archive import Archive
from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, NotFound, TooLarge
from hypergrid.core.times import format_instant, parse_instant
from hypergrid.execution import INCOMPLETE
from hypergrid.perspective.build.data_sources import ARRAY
from hypergrid.query import OpenArchive, Query, as_path

ROUNDING: Final = 1e-9
"""Differences up to this share of the greatest value come from the order of sums, which blocks change."""
SLAB_BYTES: Final = 32 * 2**20
"""What is compared at once [bytes]: a result in a store may be larger than the memory."""
TOLD: Final[Mapping[str, str]] = {
    "hypergrid_version": "version of HyperGrid",
    "hypergrid_libraries": "libraries",
    "hypergrid_functions": "functions",
    "hypergrid_token": "token",
    "hypergrid_snapshot": "snapshot",
}
"""Attributes in which a result and the one computed again are compared, in words."""
_OF_SNAPSHOT: Final = frozenset({"hypergrid_token", "hypergrid_snapshot"})
"""Those that differ wherever another snapshot is read."""
_TODAY: Final = (
    "flags, positions of stations and layers are those of today, and a reading that was committed later counts as "
    "known where it had arrived by then"
)
"""What an answer as of an instant is not exact in."""


@dataclass(frozen=True)
class Difference:
    """How a variable differs."""

    variable: str
    greatest: float
    """Greatest absolute difference of two values, 0 where only missing ones or texts differ."""
    cells: int
    """Cells that differ, those included that are missing in one of the two."""
    is_rounding: bool
    """Whether it is no more than another order of sums makes."""
    what: str
    """In words."""


@dataclass(frozen=True, eq=False)
class Recomputed:
    """A result beside the one that was computed again."""

    differences: tuple[Difference, ...]
    """By variable and coordinate; none where all are identical to the last bit."""
    changes: tuple[str, ...]
    """What is not as it was: version, libraries, functions, token; flags and layers given since; in words."""
    read: Literal["snapshot", "as_of"]
    """Whether it was computed from the snapshot that the result cites, or, as that expired, as of its commit."""
    snapshot: str
    """The snapshots that the result cites."""
    as_of: str | None
    """As of which instants it was computed where a snapshot expired."""
    newest: str
    """The snapshot that was read as of these instants."""

    @property
    def identical(self) -> bool:
        """Whether all values, counts, variances and coordinates are the same to the last bit."""
        return not self.differences

    @property
    def confirmed(self) -> bool:
        """Whether nothing differs by more than rounding."""
        return all(difference.is_rounding for difference in self.differences)

    def describe(self) -> str:
        """Return the outcome in lines."""
        if self.identical:
            first = "identical"
        else:
            first = "identical but for rounding" if self.confirmed else "different"
        lines = [f"{difference.variable}: {difference.what}" for difference in self.differences]
        return "\n".join([first, *lines, *self.changes, self._read_as()])

    def _read_as(self) -> str:
        if self.read == "snapshot":
            return f"read: snapshot {self.snapshot}"
        return (
            f"read: snapshot {self.snapshot} expired; computed from snapshot {self.newest} as of {self.as_of}, from "
            f"arrival times and superseded readings; {_TODAY}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON."""
        listed = {one.variable: {"greatest": one.greatest, "cells": one.cells} for one in self.differences}
        return {
            "identical": self.identical, "confirmed": self.confirmed, "differences": listed,
            "changes": list(self.changes), "read": self.read, "snapshot": self.snapshot, "as_of": self.as_of,
            "newest": self.newest, "described": self._read_as(),
        }  # fmt: skip


def again(
    result: str | Path | xr.Dataset,
    archive: OpenArchive,
    *,
    allowed_bytes: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Recomputed:
    """Compute a result again at its snapshot, and compare values, counts, variances and coordinates.

    Where the snapshot expired it is computed as of the instant when that was committed (`Recomputed.read`): exact for
    readings and what they replaced, while flags, positions of stations and layers are those of today.

    Parameters
    ----------
    result
        A result of HyperGrid: a file (.nc), a store (.zarr), or a dataset.
    archive
        The archive that it was computed from.
    allowed_bytes
        Memory that the run may take [bytes]; what does not fit is computed into a store for the time being.
    progress
        Called with the fraction computed after every block.

    Raises
    ------
    NotFound
        There is no such file, or the archive has no such variable or function any more; or its snapshot expired, and
        the result does not say when that was committed.
    InvalidQuery
        It is no result of HyperGrid, an incomplete one, one of an array in memory, or one of another archive.
    """
    given: object = archive
    if not isinstance(given, OpenArchive):
        message = f"hg.again needs the archive that the result was computed from, hg.open(folder); got {archive!r}"
        raise InvalidQuery(message)
    with _opened(result) as (name, old):
        document = _document_of(name, old, archive)
        expired = _expired(document, archive)
        as_of = None
        if expired:
            archive = archive.latest()
            document, instants = _as_of(name, old, document, expired, archive)
            as_of = ", ".join(format_instant(instant) for instant in sorted(instants))
        query = _query_of(name, document, archive)
        with tempfile.TemporaryDirectory() as folder, _computed(query, Path(folder), allowed_bytes, progress) as new:
            changes = [*_changes(old.attrs, new.attrs, but=_OF_SNAPSHOT if expired else frozenset())]
            if expired:
                changes += _judged_since(archive, min(instants))
            return Recomputed(
                tuple(_differences(old, new)),
                tuple(changes),
                read="as_of" if expired else "snapshot",
                snapshot=str(old.attrs.get("hypergrid_snapshot", ", ".join(sorted({*_snapshots(document)})))),
                as_of=as_of,
                newest=archive.snapshot,
            )


@contextmanager
def _opened(result: str | Path | xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield what a result is called, and the result, whose values need not be read."""
    if isinstance(result, xr.Dataset):
        yield "the dataset", result
        return
    path = as_path(result, who="hg.again", what="a result, or the file or store of one")
    if not path.exists():
        message = f"the result {path} does not exist; give a file or a store that 'hypergrid query' wrote"
        raise NotFound(message)
    if path.suffix not in (".nc", ".zarr"):
        message = f"the result {path} cannot be computed again: only .nc and .zarr say how they were computed"
        raise InvalidQuery(message)
    try:
        found = (
            xr.open_zarr(path, consolidated=False, chunks=None)
            if path.suffix == ".zarr"
            else xr.open_dataset(path, engine="h5netcdf")
        )
    except (OSError, ValueError, KeyError) as error:
        message = f"the result {path} cannot be read: {error}"
        raise InvalidQuery(message) from error
    with found:
        yield path.name, found


def _document_of(name: str, old: xr.Dataset, archive: OpenArchive) -> dict[str, Any]:
    """Return the query that a result says it answers, after looking whether the archive can be asked it."""
    if INCOMPLETE in old.attrs:
        message = f"{name} is an incomplete result: its run did not end; compute it anew with 'hypergrid query'"
        raise InvalidQuery(message)
    try:
        document = json.loads(old.attrs["hypergrid_query"])
    except (KeyError, TypeError, ValueError) as error:
        message = f"{name} is no result of HyperGrid: it has no attribute 'hypergrid_query' that can be read"
        raise InvalidQuery(message) from error
    if any(snapshot.startswith(ARRAY) for snapshot in _snapshots(document)):
        message = (
            f"{name} is a result of an array in memory, which cannot be found again; give the array to hg.base once "
            "more, and compute the query that the attribute 'hypergrid_query' holds"
        )
        raise InvalidQuery(message)
    source = old.attrs.get("hypergrid_archive", archive.name)
    if source != archive.name:
        message = f"{name} was computed from the archive {source!r}; got the archive {archive.name!r}; give the other"
        raise InvalidQuery(message)
    if not isinstance(document, dict):
        message = f"{name} is no result of HyperGrid: its attribute 'hypergrid_query' is no query"
        raise InvalidQuery(message)
    return document


def _expired(document: Mapping[str, Any], archive: OpenArchive) -> frozenset[str]:
    """Return the snapshots that a query names and that can no longer be read."""
    gone = set()
    for snapshot in {*_snapshots(document)}:
        try:
            Archive.open(archive.path, snapshot=snapshot)
        except NotFound:
            gone.add(snapshot)
    return frozenset(gone)


def _as_of(
    name: str, old: xr.Dataset, document: dict[str, Any], expired: frozenset[str], archive: OpenArchive
) -> tuple[dict[str, Any], set[int]]:
    """Return the query of the newest snapshot as of the commits of those that expired, and these instants [ns].

    A question that was as of an earlier instant stays so.
    """
    cited = str(old.attrs.get("hypergrid_snapshot", "")).split(", ")
    committed = str(old.attrs.get("hypergrid_snapshot_time", "")).split(", ")
    try:
        known = {one: parse_instant(text) for one, text in zip(cited, committed, strict=True)}
    except (InvalidTime, ValueError):
        known = {}
    if unknown := sorted(expired - known.keys()):
        message = (
            f"{name} cannot be computed again from the archive {archive.name!r}: unknown snapshot "
            f"{', '.join(map(repr, unknown))}, which expired unless it was never there (only cited ones stay), and the "
            "result does not say when it was committed (attribute hypergrid_snapshot_time), so that it cannot be "
            "computed as of then either; compute its query anew"
        )
        raise NotFound(message)
    instants: set[int] = set()
    return _rewritten(document, {one: known[one] for one in expired}, archive.snapshot, instants), instants


def _rewritten(
    document: Mapping[str, Any], committed: Mapping[str, int], newest: str, instants: set[int]
) -> dict[str, Any]:
    """Return a query, and those merged into it, as of the commit of each snapshot that expired."""
    changed = dict(document)
    then = committed.get(str(document.get("snapshot")))
    if then is not None:
        asked = document.get("as_of")
        instant = then if asked is None else min(then, parse_instant(asked))
        instants.add(instant)
        changed |= {"snapshot": newest, "as_of": format_instant(instant)}
    steps = document.get("steps")
    changed["steps"] = [
        {**step, "with": [_rewritten(other, committed, newest, instants) for other in step["with"]]}
        if isinstance(step, Mapping) and "with" in step
        else step
        for step in (steps if isinstance(steps, list) else ())
    ]
    return changed


def _judged_since(archive: OpenArchive, instant_ns: int) -> Iterator[str]:
    """Yield what commits after an instant changed that has no arrival, as far as their snapshots are still there."""
    since = [one for one in archive.snapshots if one.time_ns > instant_ns]
    if flags := sum(int(one.metadata.get("flags", 0)) for one in since):
        yield f"flags: {flags:,} stored readings were given other flags since"
    if layers := sorted({name for one in since for name in one.metadata.get("layers", ())}):
        yield f"layers: {', '.join(layers)} changed since"


def _query_of(name: str, document: Mapping[str, Any], archive: OpenArchive) -> Query:
    try:
        query = archive.query(document)
        query.surface()
    except HyperGridError as error:
        # Of the same kind, so that its remedy stays what it is.
        kind = NotFound if isinstance(error, NotFound) else InvalidQuery
        message = f"{name} cannot be computed again from the archive {archive.name!r}: {error}"
        raise kind(message) from error
    return query


def _snapshots(document: object) -> Iterator[str]:
    """Yield the snapshots that a query and those merged into it name."""
    if not isinstance(document, Mapping):
        return
    if isinstance(document.get("snapshot"), str):
        yield document["snapshot"]
    steps = document.get("steps")
    for step in steps if isinstance(steps, list) else ():
        for other in step.get("with", ()) if isinstance(step, Mapping) else ():
            yield from _snapshots(other)


@contextmanager
def _computed(
    query: Query, folder: Path, allowed_bytes: int | None, progress: Callable[[float], None] | None
) -> Iterator[xr.Dataset]:
    try:
        query.plan().check(allowed_bytes)
    except TooLarge:
        query.to_zarr(folder / "again.zarr", allowed_bytes=allowed_bytes, progress=progress)
        with xr.open_zarr(folder / "again.zarr", consolidated=False, chunks=None) as found:
            yield found
    else:
        yield query.compute(allowed_bytes=allowed_bytes, progress=progress)


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], *, but: frozenset[str]) -> Iterator[str]:
    for attribute, words in TOLD.items():
        if attribute in but:
            continue
        was, now = old.get(attribute), new.get(attribute)
        if was != now:
            yield f"{words}: {'not told' if was is None else was} then, {'not told' if now is None else now} now"


def _differences(old: xr.Dataset, new: xr.Dataset) -> Iterator[Difference]:
    for name in sorted({*map(str, old.variables), *map(str, new.variables)}):
        if name not in old.variables or name not in new.variables:
            where = "the result" if name in old.variables else "what was computed again"
            yield Difference(name, 0.0, 0, is_rounding=False, what=f"only in {where}")
        elif old[name].dims != new[name].dims or old[name].shape != new[name].shape:
            what = f"{dict(old[name].sizes)} then, {dict(new[name].sizes)} now"
            yield Difference(name, 0.0, 0, is_rounding=False, what=what)
        elif (found := _difference(name, old[name], new[name])) is not None:
            yield found


def _difference(name: str, old: xr.DataArray, new: xr.DataArray) -> Difference | None:
    """Return how two arrays of one shape differ, a slab after the other; None where they do not."""
    cells, lost, greatest, scale = 0, 0, 0.0, 0.0
    for slab in _slabs(old):
        was, now = np.atleast_1d(old[slab].to_numpy()), np.atleast_1d(new[slab].to_numpy())
        if was.dtype.kind not in "biuf" or now.dtype.kind not in "biuf":
            as_text = was.dtype.kind != "M" or now.dtype.kind != "M"
            cells += int(np.count_nonzero(was.astype(str) != now.astype(str) if as_text else was != now))
            continue
        was, now = was.astype(np.float64), now.astype(np.float64)
        same = (was == now) | (np.isnan(was) & np.isnan(now))
        cells += int(np.count_nonzero(~same))
        lost += int(np.count_nonzero(np.isnan(was) != np.isnan(now)))
        gap = np.abs(was - now)[~same]
        greatest = max(greatest, float(np.nanmax(gap, initial=0.0)))
        scale = max(scale, float(np.nanmax(np.abs(was), initial=0.0)))
    if not cells:
        return None
    what = f"{cells:,} of {old.size:,} differ, by at most {greatest:.3g}"
    if lost:
        what += f"; {lost:,} are missing in one of the two"
    is_rounding = not lost and 0.0 < greatest <= ROUNDING * scale
    return Difference(name, greatest, cells, is_rounding=is_rounding, what=what)


def _slabs(array: xr.DataArray) -> Iterator[tuple[slice, ...]]:
    if not array.ndim:
        yield ()
        return
    step = max(1, SLAB_BYTES // (8 * max(1, array[:1].size)))
    for start in range(0, array.shape[0], step):
        yield (slice(start, start + step),)
