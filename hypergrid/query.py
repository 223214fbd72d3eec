"""What a user holds: an opened archive, and a fluent, immutable query around a frozen question."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Self

import xarray as xr

from hypergrid.archive import Archive, Layers, Snapshot
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Station
from hypergrid.core.times import format_instant, parse_instant
from hypergrid.core.tokens import token
from hypergrid.core.units import Variable
from hypergrid.execution import (
    Plan,
    StrategyOption,
    WalkSettings,
    check_store,
    explain,
    free_bytes,
    make_plan,
    make_streamed_plan,
    refine,
    run,
    start_store,
    to_dataset,
)
from hypergrid.execution.running.result_cache import RESULT_CACHE
from hypergrid.perspective import Base, QuerySpec, Surface, build, question_from_json
from hypergrid.perspective.build.data_sources import ARRAY, SourceLookup, pin_snapshot
from hypergrid.perspective.build.plan_memo import PlanMemo
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.perspective.sources.array_source import array_source
from hypergrid.perspective.spec.fluent import Fluent
from hypergrid.refinement import Refinement
from hypergrid.topology.zones import inline_zone_files


@dataclass(frozen=True, eq=False)
class Query(Fluent):
    """A question with the data that it is about. Every method returns a new query.

    Examples
    --------
    >>> import hypergrid as hg, numpy as np, pandas as pd, xarray as xr
    >>> times = pd.date_range("2007-10-01", periods=3, freq="10min")
    >>> coords = {"time": times, "x": ("station", [0.0, 90.0]), "y": ("station", [0.0, 0.0])}
    >>> readings = xr.DataArray(np.arange(6.0).reshape(3, 2), dims=("time", "station"), coords=coords)
    >>> hg.base(readings).aggregate("mean", time="all").compute()["value"].values
    array([[2., 3.]])
    """

    question: QuerySpec
    lookup: SourceLookup

    def __repr__(self) -> str:
        """Return the variable and the steps in a line; `explain()` says more."""
        return f"Query({self.question.summary})"

    def surface(self) -> Surface:
        """Return the chain of perspectives; raises what is known to be wrong before anything is computed."""
        return build(self.question, self.lookup, self.lookup.known)

    @property
    def token(self) -> str:
        """Content token: equal questions about equal data have equal tokens."""
        return self.surface().token

    def archives(self) -> tuple[Archive, ...]:
        """Return the archives that are read, one for each snapshot."""
        sources = [
            item.operator.source for item in self.surface().perspective.list_bases() if isinstance(item.operator, Base)
        ]
        read = {source.archive.snapshot: source.archive for source in sources if isinstance(source, ArchiveSource)}
        return tuple(read.values())

    def plan(self, *, refining: bool = False) -> Plan:
        """Return what a run would compute, with its projected bytes."""
        return make_plan(self.surface(), refining=refining)

    def explain(
        self, *, strategy: StrategyOption = "auto", allowed_bytes: int | None = None, measured: bool = False
    ) -> str:
        """Return the chain, the rewriting and the plan in words.

        Parameters
        ----------
        strategy, allowed_bytes
            As `compute` takes them; where the memory is absent, blocks are what is best where it does not matter.
        measured
            Whether unit costs and densities are those that were measured where this process has computed a step before;
            tabled costs, and a value in every cell, where absent.

        Raises
        ------
        HyperGridError
            The query cannot be answered, or there is no such strategy.
        """
        return explain(make_plan(self.surface(), strategy=strategy, allowed_bytes=allowed_bytes), measured=measured)

    def compute(
        self,
        *,
        strategy: StrategyOption = "auto",
        allowed_bytes: int | None = None,
        progress: Callable[[float], None] | None = None,
        reuse: bool = False,
    ) -> xr.Dataset:
        """Compute the whole surface.

        Parameters
        ----------
        strategy
            "top_down" (every step as a whole), "bottom_up" (every step box by box), the number of steps above the
            readings that are computed as a whole, or "auto"; the surface is the same.
        allowed_bytes
            Memory that the run may take; half of what is free where absent. Where it is short the surface is computed
            in smaller boxes.
        progress
            Called with the fraction computed after every block.
        reuse
            Whether a result may be one that this process has kept, and is kept for the next who asks the same. Its
            arrays are read-only: copy what is to be changed.

        Raises
        ------
        HyperGridError
            The query cannot be answered; nothing was computed.
        TooLarge
            It projects more memory than is allowed.
        """
        if not reuse:
            return self._compute_surface(strategy, allowed_bytes, progress)
        key = token(self.token, self.to_json())
        dataset = RESULT_CACHE.get(key)
        if dataset is None:
            return RESULT_CACHE.keep(key, self._compute_surface(strategy, allowed_bytes, progress))
        if progress is not None:
            progress(1.0)
        return dataset

    def _compute_surface(
        self, strategy: StrategyOption, allowed_bytes: int | None, progress: Callable[[float], None] | None
    ) -> xr.Dataset:
        allowed = free_bytes() // 2 if allowed_bytes is None else allowed_bytes
        plan = make_plan(self.surface(), strategy=strategy, allowed_bytes=allowed)
        plan.check(allowed)
        last = None
        for last in run(plan, watched=False):
            if progress is not None:
                progress(last.fraction)
        if last is None:
            message = "a surface has at least one cell"
            raise InvalidQuery(message)
        return to_dataset(self.question, plan.surface, last.outcome, token=plan.original.token)

    def to_zarr(
        self,
        path: str | Path,
        *,
        allowed_bytes: int | None = None,
        progress: Callable[[float], None] | None = None,
        history: str | None = None,
    ) -> int:
        """Compute the whole surface into a Zarr store, block by block; `xarray.open_zarr` gives what `compute` does.

        Parameters
        ----------
        path
            Folder of the store. An earlier result of HyperGrid there is replaced.
        allowed_bytes
            Memory that the run may take [bytes], whatever the surface's size; half of what is free where absent.
        progress
            Called with the fraction computed after every block.
        history
            What the attribute of this name says, by the CF conventions when and by what the store was made.

        Returns
        -------
        How many cells are missing. A run that is killed leaves a store whose attribute `hypergrid_incomplete` says so.

        Raises
        ------
        NotFound, InvalidQuery
            The path cannot be used: its folder does not exist, or something else is there, which stays.
        HyperGridError
            The query cannot be answered; nothing was written.
        TooLarge
            Not even the smallest block fits in the memory that is allowed.
        """
        target = as_path(path, label="to_zarr", what="the folder of the store")
        check_store(target)
        plan, chunks = make_streamed_plan(self.surface(), allowed_bytes)
        outcome = start_store(target, self.question, plan, chunks)
        for state in run(plan, watched=False, outcome=outcome):
            if progress is not None:
                progress(state.fraction)
        outcome.finish({} if history is None else {"history": history})
        return outcome.missing

    def refine(
        self,
        *,
        order: str = "coarse_to_fine",
        walkers: int | None = None,
        seed: int = 0,
        fraction: float = 0.15,
        allowed_bytes: int | None = None,
    ) -> Iterator[Refinement]:
        """Compute the surface block by block; each refinement can be looked at.

        Parameters
        ----------
        order
            "coarse_to_fine", "raster", or "walk": the directed random walk, which goes where values change. Cells are
            those of a map (all its time cells at once) or, for one station's regular time cells, of days.
        walkers, seed, fraction
            Of a walk: how many walk at once (by the number of cells where absent), what chance begins with, and the
            share of the cells that is walked, at most 0.5; the rest follows coarse to fine.
        allowed_bytes
            As for `compute`.

        Returns
        -------
        An iterator; closing it stops the run within one block. No cell is computed twice.

        Raises
        ------
        HyperGridError
            What is wrong, the order and its parameters included; before any block.
        """
        walking = WalkSettings(fraction, walkers, seed)
        allowed = free_bytes() // 2 if allowed_bytes is None else allowed_bytes
        plan = make_plan(self.surface(), refining=True, allowed_bytes=allowed)
        plan.check(allowed)
        pictures = refine(plan, order=order, walking=walking)
        return (Refinement(self.question, picture) for picture in pictures)

    def _join_queries(self, query: Self, others: tuple[Self, ...]) -> Self:
        return replace(query, lookup=reduce(SourceLookup.join, (other.lookup for other in others), self.lookup))

    def _replace_question(self, question: QuerySpec) -> Self:
        return replace(self, question=question)


def base(array: object, *, layers: Mapping[str, object] | None = None) -> Query:
    """Return a query about an array in memory.

    Parameters
    ----------
    array
        Dimensions (time, station) or (time, series); coordinates lon and lat [degree], or x and y [m], and perhaps
        elevation [m], of the stations, in other units where their attrs["units"] say so; NaN is missing;
        `attrs["units"]`, its name is the variable. Times are UTC, or have a zone.
    layers
        Fields that do not change with time, by name, for methods that use them: each a DataArray of the dimensions
        (lat, lon), or (y, x), as the stations' coordinates, evenly spaced, NaN where unknown, with `attrs["units"]`;
        or a `Layer`. "elevation" is in metres where no unit is given.

    Raises
    ------
    InvalidQuery
        Dimensions or coordinates are missing, times are missing or not increasing, there is no station or one twice,
        or a layer has other coordinates.
    InvalidLayer
        A layer's cells are not even, or hold no value.
    """
    if not isinstance(array, xr.DataArray):
        message = f"hg.base needs an xarray.DataArray with dimensions (time, station); got {type(array).__name__}"
        raise InvalidQuery(message)
    source = array_source(array, layers=layers)
    snapshot = ARRAY + source.token
    return Query(QuerySpec(source.variable.name, snapshot=snapshot), SourceLookup(arrays={snapshot: source}))


class OpenArchive:
    """An archive at one snapshot, ready to be asked."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def __repr__(self) -> str:
        """Return the network's name, how much there is of it, and the snapshot."""
        held = f"{len(self.stations)} stations, {len(self.variables)} variables ({', '.join(self.variables)})"
        as_of = "" if self.as_of is None else f" as of {self.as_of}"
        return f"OpenArchive({self.name}: {held}, snapshot {self.snapshot}{as_of})"

    @property
    def path(self) -> Path:
        """Folder of the archive."""
        return self._archive.path

    @property
    def name(self) -> str:
        """Name of the network."""
        return self._archive.name

    @property
    def snapshot(self) -> str:
        """Id of the snapshot that queries read."""
        return self._archive.snapshot

    @property
    def variables(self) -> Mapping[str, Variable]:
        """Variables by name."""
        return self._archive.variables

    @property
    def stations(self) -> Mapping[str, Station]:
        """Stations by id."""
        return self._archive.stations

    @property
    def layers(self) -> Layers:
        """Layers (fields that do not change with time, such as elevation) by name."""
        return self._archive.layers

    @property
    def snapshots(self) -> Sequence[Snapshot]:
        """Snapshots, newest first."""
        return self._archive.snapshots

    @property
    def store(self) -> Archive:
        """The archive itself, for those who read readings or tables."""
        return self._archive

    @property
    def as_of(self) -> str | None:
        """Instant by which readings must have arrived to be known; None: all are."""
        return None if self._archive.as_of_ns is None else format_instant(self._archive.as_of_ns)

    def cite(self) -> None:
        """Let the snapshot that queries read stay until it is released (`hypergrid snapshots --release`).

        Others expire an hour after another became the newest; `hg.again` then answers as of their commit.

        Raises
        ------
        NotFound
            It expired.
        OSError
            The archive cannot be written.
        """
        self._archive.cite()

    def latest(self) -> "OpenArchive":
        """Return the archive at its newest snapshot; itself where nothing was committed since."""
        newest = self._archive.latest()
        return self if newest is self._archive else OpenArchive(newest)

    def __getitem__(self, variable: str) -> Query:
        """Return a query about a variable.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        self._archive.variable(variable)
        return Query(QuerySpec(variable, snapshot=self.snapshot, as_of=self.as_of), SourceLookup(self._archive))

    def __contains__(self, variable: object) -> bool:
        return variable in self.variables

    def query(self, document: Mapping[str, Any], *, known: PlanMemo | None = None) -> Query:
        """Return the query that a JSON form says, of the snapshot and the instant that it names, or of this one's.

        Parameters
        ----------
        document
            The JSON form.
        known
            What it shares with others that are built in the same thread.

        Raises
        ------
        HyperGridError
            A key, operator, function, method, variable or snapshot that does not exist.
        """
        question = question_from_json(document)
        self._archive.variable(question.variable)
        sources = SourceLookup(self._archive, known=None if known is None else known.use_snapshot(self.snapshot))
        return Query(pin_snapshot(question, self.snapshot, self.as_of), sources)


def open_archive(path: str | Path, *, snapshot: str | None = None, as_of: object = None) -> OpenArchive:
    """Open an archive to ask it.

    Parameters
    ----------
    path
        Folder of the archive.
    snapshot
        Id of the snapshot to read; the newest where absent.
    as_of
        Instant, "2007-10-01T06:00Z" or a `datetime`: answers are as if only what had arrived by then were known, from
        arrival times and readings that others replaced later. Flags that tests gave later, stations and layers are
        those of the snapshot.

    Raises
    ------
    InvalidQuery
        `path` is no path.
    NotAnArchive
        The folder is none; it was not touched.
    NotFound
        There is no such snapshot.
    InvalidTime
        `as_of` is no instant.
    """
    folder = as_path(path, label="hg.open", what="the folder of an archive")
    return OpenArchive(
        Archive.open(folder, snapshot=snapshot, as_of_ns=None if as_of is None else parse_instant(as_of))
    )


def as_path(path: object, *, label: str, what: str) -> Path:
    """Return a path.

    Raises
    ------
    InvalidQuery
        It is none.
    """
    if not isinstance(path, str | Path):
        message = f"{label} needs {what}, a text or a pathlib.Path; got {path!r}"
        raise InvalidQuery(message)
    return Path(path)


def read_document(file: Path) -> object:
    """Return a query's JSON form from a file, with the zone files that it names, which lie beside it, read into it.

    Raises
    ------
    NotFound
        The file cannot be read.
    InvalidQuery
        It is no JSON, or what it names is no file of zones.
    """
    try:
        document = json.loads(file.read_text())
    except OSError as error:
        message = f"the query file {file} cannot be read: {error.strerror}"
        raise NotFound(message) from error
    except (ValueError, RecursionError) as error:
        message = f"the query file {file} is no JSON that can be read: {error}"
        raise InvalidQuery(message) from error
    return inline_zone_files(document, file.parent)
