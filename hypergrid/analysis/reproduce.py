"""Recompute a result from its own metadata and compare: `hg.again`, `hg.second_opinion`, `hypergrid query --again`.

The recomputation reads the snapshot that the result cites. If that has expired, it reads the newest snapshot as of the
commit time of the expired one, using arrival times and superseded readings. The report states which was read.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, NotFound, TooLarge
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.result_names import by_role, drop_file_variables
from hypergrid.core.times import format_instant, parse_instant
from hypergrid.execution import INCOMPLETE
from hypergrid.execution.results.second_opinion import SecondOpinion, ask_second_opinion
from hypergrid.perspective.build.data_sources import ARRAY
from hypergrid.query import OpenArchive, Query, as_path

ROUNDING: Final = 1e-9
"""Differences up to this share of the largest value are due to the order of sums, which depends on blocks."""
# A result in a store can exceed the memory.
SLAB_BYTES: Final = 32 * 2**20
"""Size of the slabs that are compared at a time [bytes]."""
ATTRIBUTE_WORDS: Final[Mapping[str, str]] = {
    "hypergrid_version": "version of HyperGrid",
    "hypergrid_libraries": "libraries",
    "hypergrid_functions": "functions",
    "hypergrid_token": "token",
    "hypergrid_snapshot": "snapshot",
}
"""Attributes that are compared, with their names in reports."""
_SNAPSHOT_ATTRIBUTES: Final = frozenset({"hypergrid_token", "hypergrid_snapshot"})
"""Attributes that always differ if another snapshot is read."""
_TODAY_NOTE: Final = (
    "flags, positions of stations and layers are those of today, and a reading that was committed later counts as "
    "known where it had arrived by then"
)
"""Limits of the exactness of an as-of answer."""


@dataclass(frozen=True)
class Difference:
    """Difference of one variable between two results."""

    variable: str
    greatest: float
    """Largest absolute difference of two values, 0 if only missing values or texts differ."""
    cells: int
    """Number of cells that differ, including those missing in only one of the two."""
    is_rounding: bool
    """Whether the order of sums explains the difference."""
    what: str
    """Description of the difference."""


@dataclass(frozen=True, eq=False)
class VerificationReport:
    """Comparison of a result with its recomputation."""

    differences: tuple[Difference, ...]
    """By variable and coordinate; empty if everything is bit-identical."""
    changes: tuple[str, ...]
    """Descriptions of what changed since: version, libraries, functions, token, flags and layers."""
    read: Literal["snapshot", "as_of"]
    """Whether the cited snapshot was read, or, since it expired, the newest one as of its commit."""
    snapshot: str
    """Snapshots that the result cites."""
    as_of: str | None
    """As-of instants that replaced expired snapshots."""
    newest: str
    """Snapshot that was read as of these instants."""

    @property
    def identical(self) -> bool:
        """Whether all values, counts, variances and coordinates are bit-identical."""
        return not self.differences

    @property
    def confirmed(self) -> bool:
        """Whether no difference exceeds rounding."""
        return all(difference.is_rounding for difference in self.differences)

    def describe(self) -> str:
        """Return the report as lines of text."""
        if self.identical:
            first = "identical"
        else:
            first = "identical but for rounding" if self.confirmed else "different"
        lines = [f"{difference.variable}: {difference.what}" for difference in self.differences]
        return "\n".join([first, *lines, *self.changes, self._describe_source()])

    def _describe_source(self) -> str:
        if self.read == "snapshot":
            return f"read: snapshot {self.snapshot}"
        return (
            f"read: snapshot {self.snapshot} expired; computed from snapshot {self.newest} as of {self.as_of}, from "
            f"arrival times and superseded readings; {_TODAY_NOTE}"
        )

    def to_json(self) -> dict[str, Any]:
        listed = {
            difference.variable: {"greatest": difference.greatest, "cells": difference.cells}
            for difference in self.differences
        }
        return {
            "identical": self.identical, "confirmed": self.confirmed, "differences": listed,
            "changes": list(self.changes), "read": self.read, "snapshot": self.snapshot, "as_of": self.as_of,
            "newest": self.newest, "described": self._describe_source(),
        }  # fmt: skip


def again(
    result: str | Path | xr.Dataset,
    archive: OpenArchive,
    *,
    allowed_bytes: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> VerificationReport:
    """Recompute a result at its snapshot, and compare values, counts, variances and coordinates.

    If the snapshot has expired, the result is recomputed as of its commit time (`VerificationReport.read`): exact for
    readings and those they superseded, but with today's flags, station positions and layers.

    Parameters
    ----------
    result
        A result of HyperGrid: a file (.nc), a store (.zarr), or a dataset.
    archive
        The archive that it was computed from.
    allowed_bytes
        Memory that the run may take [bytes]; a result that does not fit is computed into a temporary store.
    progress
        Called with the fraction computed after every block.

    Raises
    ------
    NotFound
        The file does not exist, the archive no longer has a variable or function, or the snapshot has expired and the
        result does not state its commit time.
    InvalidQuery
        Not a result of HyperGrid, an incomplete one, or one of an array in memory or another archive.
    """
    with open_result(result) as (name, old):
        cited = find_cited_query(name, old, archive)
        instants = cited.as_of_ns
        with (
            tempfile.TemporaryDirectory() as folder,
            _compute_again(cited.query, Path(folder), allowed_bytes, progress) as new,
        ):
            changes = [*_list_changes(old.attrs, new.attrs, but=_SNAPSHOT_ATTRIBUTES if instants else frozenset())]
            if instants:
                changes += _list_changes_since(cited.archive, min(instants))
            snapshots = ", ".join(sorted({*_list_snapshots(cited.query.to_json())}))
            return VerificationReport(
                tuple(_find_differences(by_role(drop_file_variables(old)), by_role(new))),
                tuple(changes),
                read="as_of" if instants else "snapshot",
                snapshot=str(old.attrs.get("hypergrid_snapshot", snapshots)),
                as_of=", ".join(map(format_instant, instants)) or None,
                newest=cited.archive.snapshot,
            )


def second_opinion(
    result: str | Path | xr.Dataset, archive: OpenArchive, *, cells: int = 50, seed: int = 0
) -> SecondOpinion:
    """Recompute random cells of a stored result by PyKrige, and compare the values that it holds.

    The archive is read as `again` reads it. Nothing else of the result is computed.

    Parameters
    ----------
    result, archive
        As for `again`.
    cells
        Number of cells, in space and time; all if the result has fewer.
    seed
        Seed of their choice.

    Raises
    ------
    NotFound, InvalidQuery
        As for `again`; also if the result has other cells than its query.
    """
    with open_result(result) as (name, old):
        query = find_cited_query(name, old, archive).query
        return ask_second_opinion(query.surface(), old, cells=cells, seed=seed)


@dataclass(frozen=True, eq=False)
class CitedQuery:
    """Query of a result, and the archive that answers it."""

    query: Query
    archive: OpenArchive
    as_of_ns: tuple[int, ...]
    """Instants that replace expired snapshots, ascending."""


def find_cited_query(name: str, old: xr.Dataset, archive: OpenArchive) -> CitedQuery:
    """Return the query of a result, at the snapshot that it cites, or as of its commit if that has expired.

    Raises
    ------
    NotFound, InvalidQuery
        As for `again`.
    """
    given: object = archive
    if not isinstance(given, OpenArchive):
        raise InvalidQuery(
            f"{name} needs the archive that it was computed from, hg.open(folder), to be read again; got {archive!r}"
        )
    document = _read_document(name, old, archive)
    expired, instants = _find_expired(document, archive), set[int]()
    if expired:
        archive = archive.latest()
        document, instants = _rewrite_as_of(name, old, document, expired, archive)
    return CitedQuery(_make_query(name, document, archive), archive, tuple(sorted(instants)))


@contextmanager
def open_result(result: str | Path | xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield the name of a result, and the result, opened lazily."""
    if isinstance(result, xr.Dataset):
        yield "the dataset", result
        return
    path = as_path(result, label="hg.again", what="a result, or the file or store of one")
    if not path.exists():
        raise NotFound(f"the result {path} does not exist; give a file or a store that 'hypergrid query' wrote")
    if path.suffix not in (".nc", ".zarr"):
        raise InvalidQuery(f"the result {path} cannot be computed again: only .nc and .zarr say how they were computed")
    try:
        dataset = (
            xr.open_zarr(path, consolidated=False, chunks=None)
            if path.suffix == ".zarr"
            else xr.open_dataset(path, engine="h5netcdf")
        )
    except (OSError, ValueError, KeyError) as error:
        raise InvalidQuery(f"the result {path} cannot be read: {error}") from error
    with dataset:
        yield path.name, dataset


def _read_document(name: str, old: xr.Dataset, archive: OpenArchive) -> dict[str, Any]:
    """Return the query of a result, after checking that this archive can answer it."""
    if INCOMPLETE in old.attrs:
        raise InvalidQuery(
            f"{name} is an incomplete result: its run did not end; compute it anew with 'hypergrid query'"
        )
    try:
        document = json.loads(old.attrs["hypergrid_query"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidQuery(
            f"{name} is no result of HyperGrid: it has no attribute 'hypergrid_query' that can be read"
        ) from error
    if any(snapshot.startswith(ARRAY) for snapshot in _list_snapshots(document)):
        raise InvalidQuery(
            f"{name} is a result of an array in memory, which cannot be found again; give the array to hg.base once "
            "more, and compute the query that the attribute 'hypergrid_query' holds"
        )
    source = old.attrs.get("hypergrid_archive", archive.name)
    if source != archive.name:
        raise InvalidQuery(
            f"{name} was computed from the archive {source!r}; got the archive {archive.name!r}; give the other"
        )
    if not isinstance(document, dict):
        raise InvalidQuery(f"{name} is no result of HyperGrid: its attribute 'hypergrid_query' is no query")
    return document


def _find_expired(document: Mapping[str, Any], archive: OpenArchive) -> frozenset[str]:
    gone = set()
    for snapshot in {*_list_snapshots(document)}:
        try:
            Archive.open(archive.path, snapshot=snapshot)
        except NotFound:
            gone.add(snapshot)
    return frozenset(gone)


def _rewrite_as_of(
    name: str, old: xr.Dataset, document: dict[str, Any], expired: frozenset[str], archive: OpenArchive
) -> tuple[dict[str, Any], set[int]]:
    """Rewrite a query to the newest snapshot as of the commits of expired ones.

    Also returns these instants [ns].

    A query with an earlier as-of instant keeps it.
    """
    cited = str(old.attrs.get("hypergrid_snapshot", "")).split(", ")
    committed = str(old.attrs.get("hypergrid_snapshot_time", "")).split(", ")
    try:
        known = {snapshot: parse_instant(text) for snapshot, text in zip(cited, committed, strict=True)}
    except (InvalidTime, ValueError):
        known = {}
    if unknown := sorted(expired - known.keys()):
        raise NotFound(
            f"{name} cannot be computed again from the archive {archive.name!r}: unknown snapshot "
            f"{', '.join(map(repr, unknown))}, which expired unless it was never there (only cited ones stay), and the "
            "result does not say when it was committed (attribute hypergrid_snapshot_time), so that it cannot be "
            "computed as of then either; compute its query anew"
        )
    instants: set[int] = set()
    return _rewrite_document(
        document, {snapshot: known[snapshot] for snapshot in expired}, archive.snapshot, instants
    ), instants


def _rewrite_document(
    document: Mapping[str, Any], committed: Mapping[str, int], newest: str, instants: set[int]
) -> dict[str, Any]:
    """Replace expired snapshots by as-of instants in a query and those merged into it."""
    changed = dict(document)
    then = committed.get(str(document.get("snapshot")))
    if then is not None:
        asked = document.get("as_of")
        instant = then if asked is None else min(then, parse_instant(asked))
        instants.add(instant)
        changed |= {"snapshot": newest, "as_of": format_instant(instant)}
    steps = document.get("steps")
    changed["steps"] = [
        {**step, "with": [_rewrite_document(other, committed, newest, instants) for other in step["with"]]}
        if isinstance(step, Mapping) and "with" in step
        else step
        for step in (steps if isinstance(steps, list) else ())
    ]
    return changed


def _list_changes_since(archive: OpenArchive, instant_ns: int) -> Iterator[str]:
    """Yield changes without an arrival time that later commits made, if their snapshots still exist."""
    since = [snapshot for snapshot in archive.snapshots if snapshot.time_ns > instant_ns]
    if flags := sum(int(snapshot.metadata.get("flags", 0)) for snapshot in since):
        yield f"flags: {flags:,} stored readings were given other flags since"
    if layers := sorted({name for snapshot in since for name in snapshot.metadata.get("layers", ())}):
        yield f"layers: {', '.join(layers)} changed since"


def _make_query(name: str, document: Mapping[str, Any], archive: OpenArchive) -> Query:
    try:
        query = archive.query(document)
        query.surface()
    except HyperGridError as error:
        # The error keeps its kind, so that its remedy still applies.
        kind = NotFound if isinstance(error, NotFound) else InvalidQuery
        raise kind(f"{name} cannot be computed again from the archive {archive.name!r}: {error}") from error
    return query


def _list_snapshots(document: object) -> Iterator[str]:
    """Yield the snapshots named by a query and those merged into it."""
    if not isinstance(document, Mapping):
        return
    if isinstance(document.get("snapshot"), str):
        yield document["snapshot"]
    steps = document.get("steps")
    for step in steps if isinstance(steps, list) else ():
        for other in step.get("with", ()) if isinstance(step, Mapping) else ():
            yield from _list_snapshots(other)


@contextmanager
def _compute_again(
    query: Query, folder: Path, allowed_bytes: int | None, progress: Callable[[float], None] | None
) -> Iterator[xr.Dataset]:
    try:
        query.plan().check(allowed_bytes)
    except TooLarge:
        # A result above the memory budget is streamed into a temporary store.
        query.to_zarr(folder / "again.zarr", allowed_bytes=allowed_bytes, progress=progress)
        with xr.open_zarr(folder / "again.zarr", consolidated=False, chunks=None) as dataset:
            yield dataset
    else:
        yield query.compute(allowed_bytes=allowed_bytes, progress=progress)


def _list_changes(old: Mapping[str, Any], new: Mapping[str, Any], *, but: frozenset[str]) -> Iterator[str]:
    for attribute, words in ATTRIBUTE_WORDS.items():
        if attribute in but:
            continue
        was, now = old.get(attribute), new.get(attribute)
        if was != now:
            yield f"{words}: {'not told' if was is None else was} then, {'not told' if now is None else now} now"


def _find_differences(old: xr.Dataset, new: xr.Dataset) -> Iterator[Difference]:
    for name in sorted({*map(str, old.variables), *map(str, new.variables)}):
        if name not in old.variables or name not in new.variables:
            where = "the result" if name in old.variables else "what was computed again"
            yield Difference(name, 0.0, 0, is_rounding=False, what=f"only in {where}")
        elif old[name].dims != new[name].dims or old[name].shape != new[name].shape:
            what = f"{dict(old[name].sizes)} then, {dict(new[name].sizes)} now"
            yield Difference(name, 0.0, 0, is_rounding=False, what=what)
        elif (difference := _compare_arrays(name, old[name], new[name])) is not None:
            yield difference


def _compare_arrays(name: str, old: xr.DataArray, new: xr.DataArray) -> Difference | None:
    """Compare two arrays of one shape slab by slab; None if they are equal."""
    cells, lost, greatest, scale = 0, 0, 0.0, 0.0
    for slab in _split_slabs(old):
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


def _split_slabs(array: xr.DataArray) -> Iterator[tuple[slice, ...]]:
    if not array.ndim:
        yield ()
        return
    step = max(1, SLAB_BYTES // (8 * max(1, array[:1].size)))
    for start in range(0, array.shape[0], step):
        yield (slice(start, start + step),)
