"""Surfaces of an archive as relations: the standing queries that are kept beside it, by name."""

import json
import logging
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.disk.row_checksums import open_for_reading
from hypergrid.continuous.expressions import Attribute, Attributes
from hypergrid.core.errors import HyperGridError, InvalidQuery, TooLarge
from hypergrid.core.times import Window, format_duration
from hypergrid.core.units import DIMENSIONLESS_TEXT
from hypergrid.perspective import Surface
from hypergrid.perspective.build.build import select_ranges
from hypergrid.perspective.build.data_sources import PlanMemo
from hypergrid.perspective.spec.document_time import clip_in_time
from hypergrid.query import OpenArchive, Query
from hypergrid.topology import Bins, Grid, Instants, Periodic, Regular, SeriesAxis

PREFIX: Final = "surface_"
"""Begin of the name of each relation of a surface."""
FILE: Final = "standing/standing.sqlite"
"""Catalogue of an archive's standing queries, in its folder; it is written by the server and `hypergrid standing`."""
LARGEST_CELLS: Final = 5_000_000
"""Cells of a surface times its slices within a stretch, at most: some half a gigabyte of changes."""

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

    @cached_property
    def query(self) -> Query:
        return self.archive.query(self.document, known=self.known)

    @cached_property
    def surface(self) -> Surface:
        return self.query.surface()

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
        _, ranges = select_ranges(self.surface.perspective.topology, self.surface.clip)
        space = self.surface.perspective.topology.space
        return int(np.prod([each.stop - each.start for each in ranges])) if ranges else space.count

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

    def restrict(self, window: Window) -> Query | None:
        """Return the query of the slices that hold at some instant of a window; None if there are none.

        Raises
        ------
        TooLarge
            There are too many cells and slices; nothing was computed.
        """
        corners, ends = _list_slices(self.surface)
        first = max(int(np.searchsorted(ends, window.start_ns, side="right")) - 1, 0)
        stop = int(np.searchsorted(ends, window.stop_ns))
        if stop <= first:
            return None
        if (stop - first) * self.cells > LARGEST_CELLS:
            label = f"{self.name} over the stretch, {stop - first:,} slices of {self.cells:,} cells,"
            fitting = max(LARGEST_CELLS // self.cells, 1)
            remedy = f"ask for a stretch of at most {fitting:,} slices, or keep a coarser standing query"
            raise TooLarge(label, "cells", (stop - first) * self.cells, LARGEST_CELLS, remedy)
        if len(corners) == 1:
            # Its slice may be of all readings, which a clip would leave out.
            return self.archive.query(self.document)
        # A clip takes the slices that start in it. It ends with the next, as the first may start before any reading.
        after = int(corners[stop]) if stop < len(corners) else int(corners[stop - 1]) + 1
        clip = Window(int(corners[first]), after)
        return self.archive.query(clip_in_time(self.document, clip))


def _list_slices(surface: Surface) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return starts and ends of the slices of a surface [ns], within its clip."""
    time = surface.perspective.topology.time
    if isinstance(time, Periodic):
        raise InvalidQuery(f"slices that repeat have no instants; got {time}")
    chosen, _ = select_ranges(surface.perspective.topology, surface.clip)
    corners = np.asarray(time.corners[chosen], np.int64)
    if isinstance(time, Instants):
        return corners, corners
    if isinstance(time, Bins):
        return corners, corners + time.lengths[chosen]
    return corners, corners + time.length


def list_surfaces(archive: OpenArchive) -> dict[str, NamedSurface]:
    """Return the surfaces of an archive by the name of their relation, those with a problem, too."""
    named: dict[str, NamedSurface] = {}
    known = PlanMemo()
    documents = _read_documents(archive.path / FILE)
    labels = {title: re.sub(r"\W", "_", title) for title in documents}
    # Of two with one name that whose title it is comes first.
    for title in sorted(labels, key=lambda title: (labels[title] != title, title)):
        name, document = PREFIX + labels[title], documents[title]
        named.setdefault(name, NamedSurface(name, title, document, archive, known))
    return named


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
