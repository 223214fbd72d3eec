"""Surfaces of an archive as relations: the standing queries that are kept beside it, by name."""

import json
import logging
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.disk.row_checksums import open_for_reading
from hypergrid.continuous.expressions import GREATEST_INTEGER, Attribute, Attributes
from hypergrid.core.errors import HyperGridError, InvalidQuery, TooLarge
from hypergrid.core.result_names import by_role
from hypergrid.core.times import Window, format_duration
from hypergrid.core.units import DIMENSIONLESS_TEXT
from hypergrid.execution import Plan, free_bytes, make_plan, run
from hypergrid.execution.planning.dependencies import (
    Changes,
    affected_time_cells,
    list_contents,
    list_fitted_steps,
    needs_all_slices,
)
from hypergrid.perspective import Base, Perspective, QuerySpec, Recur, Surface
from hypergrid.perspective.build.data_sources import PlanMemo
from hypergrid.perspective.build.restrict import restrict
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.perspective.spec.document_time import clip_in_time
from hypergrid.query import OpenArchive, Query
from hypergrid.rewrite.rules import push_clip
from hypergrid.topology import Bins, Grid, Instants, Periodic, Regular, SeriesAxis

PREFIX: Final = "surface_"
"""Begin of the name of each relation of a surface."""
FILE: Final = "standing/standing.sqlite"
"""Catalogue of an archive's standing queries, in its folder; it is written by the server and `hypergrid standing`."""
LARGEST_CELLS: Final = 5_000_000
"""Cells of a surface times its slices within a stretch, at most: some half a gigabyte of changes."""

SLICE_S: Final = 0.01
"""What a slice that is computed by itself takes beside its cells [s of a core]."""
_SLICE_BYTES: Final = 256 << 20
"""Memory for which a slice by itself is planned, whatever is free [bytes]."""
_SLICES_AHEAD: Final = 64
"""Slices whose readings are read at once."""
_KEPT_SLICES: Final = 4
"""Slices that were computed by themselves last, which are not computed again."""

Numbers = NDArray[np.float64]
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class NamedSurface:
    """Surface of a standing query, which changes at the end of each of its slices."""

    name: str
    """Name of the relation."""
    title: str
    """Name of the standing query."""
    document: Mapping[str, Any]
    archive: OpenArchive
    known: PlanMemo | None = None

    def at(self, archive: OpenArchive) -> "NamedSurface":
        """Return it at another snapshot of its archive."""
        return self if archive is self.archive else replace(self, archive=archive, known=PlanMemo())

    @cached_property
    def query(self) -> Query:
        return self.archive.query(self.document, known=self.known)

    @cached_property
    def surface(self) -> Surface:
        return self.query.surface()

    @cached_property
    def clipped(self) -> Perspective:
        """The steps, of the cells within the clip of the query."""
        return push_clip(self.surface)[0].perspective

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Instant from which on each slice holds, which is its end [ns since 1970 UTC], shape (slices,)."""
        time = self.clipped.topology.time
        if isinstance(time, Periodic):
            raise InvalidQuery(f"slices that repeat have no instants; got {time}")
        corners = np.asarray(time.corners, np.int64)
        if isinstance(time, Instants):
            return corners
        return corners + (time.lengths if isinstance(time, Bins) else time.length)

    @cached_property
    def attributes(self) -> Attributes:
        """Station, if it has one a cell, place in degrees or metres, value with its unit, and variance."""
        space, unit = self.surface.perspective.topology.space, self.surface.perspective.unit
        system = space.system if isinstance(space, SeriesAxis | Grid) else "lonlat"
        of_place = "degree" if system == "lonlat" else "m"
        station = (Attribute("station", "text"),) if isinstance(space, SeriesAxis) else ()
        return (
            *station,
            Attribute("x", "number", of_place),
            Attribute("y", "number", of_place),
            Attribute("value", "number", None if unit in DIMENSIONLESS_TEXT else unit),
            Attribute("variance", "number"),
        )

    @property
    def cells(self) -> int:
        """Cells of a slice."""
        return self.clipped.topology.space.count

    @cached_property
    def bond(self) -> str:
        """Why slices depend on each other, with what to do; empty if each can be computed by itself."""
        if self.query.question.is_automatic:
            return "its method is chosen by all readings; give the standing query a method"
        if list_fitted_steps(self.clipped):
            return (
                "its variogram is fitted to all slices, or its trend chosen by them; give the standing query both, "
                "variogram={…} and trend"
            )
        if any(isinstance(item.operator, Recur) for item in self.clipped.list_chain()):
            return "it compares with normals, for which each slice would need all of their readings"
        if needs_all_slices(self.clipped):
            return "its variance depends on all slices; give the standing query a correlation_time"
        if _has_whole_cells(self.query.question):
            return "a slice is of all readings; give the standing query slices of a length"
        return ""

    @cached_property
    def variables(self) -> frozenset[str]:
        """Variables whose readings it is of."""
        return frozenset(base.source.variable.name for base in self.surface.perspective.bases)

    @property
    def origin(self) -> str:
        """Where it comes from, as a sentence."""
        time = self.surface.perspective.topology.time
        step = f" each {format_duration(time.step)}" if isinstance(time, Regular) and time.count > 1 else ""
        variance = "" if self.query.question.variance else "; it asks for no variance, which is NULL"
        return (
            f"{self.name}: standing query {self.title!r} of the archive ({self.query.question.summary}), "
            f"{self.cells:,} cells, a slice{step} that holds from its end to that of the next{variance}"
        )

    @cached_property
    def problem(self) -> str | None:
        """Why it is no relation: it cannot be built, its cells are not those of a map or stations, or slices repeat."""
        try:
            topology = self.surface.perspective.topology
        except HyperGridError as error:
            return f"it cannot be built: {error}"
        is_flat = isinstance(topology.space, Grid) and len(topology.space.shape) == 2  # noqa: PLR2004 - rows and columns
        if not (is_flat or isinstance(topology.space, SeriesAxis)):
            return "a relation needs the cells of a map, or stations; this surface has others"
        if isinstance(topology.time, Periodic):
            return "a relation needs slices that follow each other; those of this surface repeat"
        return None

    def select(self, window: Window) -> range:
        """Return the numbers of the slices that begin to hold in a window, and of the one that holds before it.

        Raises
        ------
        TooLarge
            There are too many cells and slices; nothing was computed.
        """
        first = max(int(self.ends.searchsorted(window.start_ns)) - 1, 0)
        chosen = range(first, int(self.ends.searchsorted(window.stop_ns)))
        if len(chosen) * self.cells > LARGEST_CELLS:
            label = f"{self.name} over the stretch, {len(chosen):,} slices of {self.cells:,} cells,"
            fitting = max(LARGEST_CELLS // self.cells, 1)
            remedy = f"ask for a stretch of at most {fitting:,} slices, or keep a coarser standing query"
            raise TooLarge(label, "cells", len(chosen) * self.cells, LARGEST_CELLS, remedy)
        return chosen

    def compute(self, chosen: range) -> tuple[Numbers, Numbers]:
        """Return values and variances of some slices, at least one, shape (slices, cells); NaN where a cell has none.

        Where slices do not depend on each other, each is computed by itself: those beside it change no bit of it.

        Raises
        ------
        HyperGridError
            They cannot be computed, or take too much memory.
        """
        if self.bond:
            return self._compute_together(chosen)
        known = self._slices
        slices: list[tuple[Numbers, Numbers]] = []
        for first in range(chosen.start, chosen.stop, _SLICES_AHEAD):
            numbers = range(first, min(first + _SLICES_AHEAD, chosen.stop))
            plans = {number: self._plan_slice(number) for number in numbers if number not in known}
            _read_ahead([base for plan in plans.values() for base in plan.surface.bases])
            made = known | {number: _run_slice(plan) for number, plan in plans.items()}
            slices += [made[number] for number in numbers]
            known.clear()
            known.update((number, made[number]) for number in numbers[-_KEPT_SLICES:])
        values, variances = zip(*slices, strict=True)
        return np.stack(values), np.stack(variances)

    def _plan_slice(self, number: int) -> Plan:
        # Blocks follow from what is allowed, and kriged values by blocks differ in the last bits.
        plan = make_plan(Surface(restrict(self.clipped, slice(number, number + 1))), allowed_bytes=_SLICE_BYTES)
        plan.check(free_bytes() // 2)
        return plan

    @cached_property
    def _slices(self) -> dict[int, tuple[Numbers, Numbers]]:
        return {}

    def restrict(self, chosen: range) -> Query:
        """Return the query of some slices, of which there is at least one."""
        corners = np.asarray(self.clipped.topology.time.corners, np.int64)
        if len(corners) == 1:
            # Its slice may be of all readings, which a clip would leave out.
            return self.query
        # A clip takes the slices that start in it. It ends with the next, as the first may start before any reading.
        after = int(corners[chosen.stop]) if chosen.stop < len(corners) else int(corners[chosen.stop - 1]) + 1
        return self.archive.query(clip_in_time(self.document, Window(int(corners[chosen.start]), after)))

    def _compute_together(self, chosen: range) -> tuple[Numbers, Numbers]:
        result = by_role(self.restrict(chosen).compute())
        value = result["value"].to_numpy().reshape(len(chosen), -1)
        if "variance" not in result:
            return value, np.full_like(value, np.nan)
        return value, result["variance"].to_numpy().reshape(value.shape)

    def list_changed(self, earlier: "NamedSurface", changes: Changes) -> list[Window] | None:
        """Return windows of the instants at which slices hold that changed readings can affect; None: all of them.

        Parameters
        ----------
        earlier
            The surface at an earlier snapshot.
        changes
            Windows that were written since, by variable.
        """
        if list_contents(earlier.clipped) != list_contents(self.clipped):
            return None
        windows = []
        for part in (earlier, self):
            until = np.append(part.ends[1:], GREATEST_INTEGER)
            affected = affected_time_cells(part.clipped, changes)
            edges = zip(part.ends[affected].tolist(), until[affected].tolist(), strict=True)
            windows += [Window(*each) for each in edges]
        # Slices without readings come into being, too, where readings before or after them do.
        count = min(len(earlier.ends), len(self.ends))
        differing = np.flatnonzero(earlier.ends[:count] != self.ends[:count])
        first = int(differing[0]) if len(differing) else count
        others = [int(part.ends[first]) for part in (earlier, self) if first < len(part.ends)]
        return windows + ([Window(min(others), GREATEST_INTEGER)] if others else [])


def _read_ahead(bases: Sequence[Base]) -> None:
    """Read what several slices need in one go."""
    windows: dict[tuple[ArchiveSource, tuple[int, ...]], list[Window]] = {}
    for base in bases:
        if isinstance(base.source, ArchiveSource):
            windows.setdefault((base.source, base.unread), []).append(base.window)
    for (source, unread), each in windows.items():
        source.read_ahead(each, unread)


def _run_slice(plan: Plan) -> tuple[Numbers, Numbers]:
    *_, last = run(plan, watched=False, is_part=True)
    value, variance = last.outcome.value[0], last.outcome.variance
    return value, np.full_like(value, np.nan) if variance is None else variance[0]


def _has_whole_cells(question: QuerySpec) -> bool:
    """Return whether a slice of a query, or of one merged into it, is an aggregate of all times."""
    return any(
        dict(step.cells).get("time") == "all" or any(map(_has_whole_cells, step.others)) for step in question.steps
    )


def list_surfaces(archive: OpenArchive, kept: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, NamedSurface]:
    """Return the surfaces of an archive by the name of their relation, those with a problem, too.

    Parameters
    ----------
    kept
        Titles and documents of surfaces that stand for those of now, by the name of the relation (`describe_surface`).
    """
    known = PlanMemo()
    named = {
        name: NamedSurface(name, each["title"], each["query"], archive, known) for name, each in (kept or {}).items()
    }
    documents = _read_documents(archive.path / FILE)
    labels = {title: re.sub(r"\W", "_", title) for title in documents}
    # Of two with one name that whose title it is comes first.
    for title in sorted(labels, key=lambda title: (labels[title] != title, title)):
        name, document = PREFIX + labels[title], documents[title]
        named.setdefault(name, NamedSurface(name, title, document, archive, known))
    return named


def describe_surface(surface: NamedSurface) -> dict[str, Any]:
    """Return what `list_surfaces` takes of a surface that is kept as it is now."""
    return {"title": surface.title, "query": dict(surface.document)}


def _read_documents(path: Path) -> dict[str, Mapping[str, Any]]:
    """Return the query documents of a catalogue of standing queries; none if it cannot be read now."""
    if not path.exists():
        return {}
    try:
        with closing(open_for_reading(path)) as db:
            rows = db.execute("SELECT name, document FROM valid_queries ORDER BY name").fetchall()
    except (sqlite3.Error, OSError) as error:
        _LOG.warning("surfaces of standing queries are not offered: %s cannot be read: %s", path, error)
        return {}
    documents = {name: json.loads(text)["query"] for name, text in rows}
    # Those that follow a continuous query have no steps of their own.
    return {name: document for name, document in documents.items() if "variable" in document}
