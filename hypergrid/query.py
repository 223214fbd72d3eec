"""Public API: open an archive, and build immutable queries with a fluent interface."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from hypergrid import plots
from hypergrid.archive import Archive, Layers, Snapshot
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.lazy_libraries import pd, xr
from hypergrid.core.times import Window, format_instant, parse_instant
from hypergrid.core.tokens import token
from hypergrid.core.units import Variable
from hypergrid.execution import (
    Plan,
    StrategyOption,
    WalkSettings,
    Watching,
    check_store,
    explain,
    free_bytes,
    make_plan,
    make_streamed_plan,
    refine,
    resolve_automatic,
    run,
    start_store,
    to_dataset,
)
from hypergrid.execution.results.second_opinion import ask_second_opinion, check_cells
from hypergrid.execution.results.tables import tabulate_readings, tabulate_result
from hypergrid.execution.running.result_cache import RESULT_CACHE
from hypergrid.overview import StationTable, format_archive
from hypergrid.perspective import Base, QuerySpec, Surface, build, question_from_json
from hypergrid.perspective.build.data_sources import ARRAY, PlanMemo, SourceLookup, pin_snapshot
from hypergrid.perspective.sources.archive_source import ArchiveSource, is_withdrawn
from hypergrid.perspective.sources.array_source import array_source
from hypergrid.perspective.sources.frame_source import describe_values, make_array
from hypergrid.perspective.spec.fluent import Fluent
from hypergrid.perspective.spec.names import RefinementOrder
from hypergrid.refinement import Refinement
from hypergrid.topology.zones import inline_zone_files

ARCHIVE_FOLDER: Final = "hypergrid_archive_folder"
"""Key of a computed dataset's `encoding` that holds the folder of its archive."""


@dataclass(frozen=True, eq=False)
class Query(Fluent):
    """A query specification with its data source. Every method returns a new query.

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
        return f"Query({self.question.summary})"

    def surface(self) -> Surface:
        """Build the chain of perspectives; raises every error that can be detected before computing."""
        return build(self.question, self.lookup, self.lookup.known)

    @property
    def token(self) -> str:
        """Content token: equal queries of equal data have equal tokens."""
        return self.surface().token

    def archives(self) -> tuple[Archive, ...]:
        """Return the archives that the query reads, one per snapshot."""
        sources = [base.source for base in self.surface().perspective.bases]
        read = {source.archive.snapshot: source.archive for source in sources if isinstance(source, ArchiveSource)}
        return tuple(read.values())

    def plan(self, *, refining: bool = False) -> Plan:
        return make_plan(self.surface(), watched=Watching() if refining else None)

    def resolve(self, *, is_followed: bool = False) -> Self:
        """Replace each `interpolate("auto")` by the method that the readings support, with the reason in `because`.

        `compute`, `refine`, `to_zarr` and `explain` do so themselves. A resolved query keeps its methods whatever is
        read later; one without readings, or with too few stations, stays automatic.

        Parameters
        ----------
        is_followed
            Whether it will be computed of later readings too: the order of its steps then stays as it is; otherwise a
            mean over all time comes before the map if the same stations report in every slice.

        Raises
        ------
        HyperGridError
            The query cannot be answered.
        """
        if not self.question.is_automatic:
            return self
        return self._replace_question(resolve_automatic(self.question, self.lookup, is_followed=is_followed))

    def _resolve_within(self, allowed: int) -> Self:
        """Resolve the query; refuse before anything is read if even the unresolved one takes too much memory."""
        if self.question.is_automatic:
            make_plan(self.surface(), allowed_bytes=allowed).check(allowed)
        return self.resolve()

    def explain(
        self,
        *,
        strategy: StrategyOption = "auto",
        order: RefinementOrder | str | None = None,
        allowed_bytes: int | None = None,
        measured: bool = False,
    ) -> str:
        """Describe the chain, the rewriting and the plan as text.

        Parameters
        ----------
        strategy, allowed_bytes
            As for `compute`; if the memory is absent, blocks are chosen as if it were unlimited.
        order
            As for `refine`, whose plan is described, with the predicted gain of a walk; None for that of `compute`.
        measured
            Whether to use measured unit costs and densities for steps that this process has computed before;
            otherwise tabled costs, and a value in every cell.

        Raises
        ------
        HyperGridError
            The query cannot be answered, or the strategy does not exist.
        """
        surface = self.resolve().surface()
        watched = None if order is None else Watching(order)
        plan = make_plan(surface, watched=watched, strategy=strategy, allowed_bytes=allowed_bytes)
        return explain(plan, measured=measured)

    def compute(
        self,
        *,
        strategy: StrategyOption = "auto",
        allowed_bytes: int | None = None,
        progress: Callable[[float], None] | None = None,
        reuse: bool = False,
        second_opinion: int | None = None,
    ) -> xr.Dataset:
        """Compute the whole surface.

        Parameters
        ----------
        strategy
            "top_down" (every step as a whole), "bottom_up" (every step box by box), the number of steps above the
            readings to compute as a whole, or "auto"; the result is the same.
        allowed_bytes
            Memory budget of the run [bytes]; half of the free memory if absent. A small budget makes smaller boxes.
        progress
            Called with the fraction computed after every block.
        reuse
            Whether to return a cached result of this process, and to cache a new one. Its arrays are read-only: copy
            what you want to change.
        second_opinion
            Number of random cells to recompute by PyKrige, from the same values at the stations and variogram. The
            greatest difference, or why there is none, is in the attributes `hypergrid_second_opinion` (JSON) and
            `comment`.

        Raises
        ------
        HyperGridError
            The query cannot be answered; nothing was computed.
        TooLarge
            The run projects more memory than allowed.
        """
        if second_opinion is not None:
            cells = check_cells(second_opinion)
            resolved = self.resolve()
            plain = resolved.compute(strategy=strategy, allowed_bytes=allowed_bytes, progress=progress, reuse=reuse)
            return ask_second_opinion(resolved.surface(), plain, cells=cells).note_in(plain)
        if not reuse:
            return self._compute_surface(strategy, allowed_bytes, progress)
        # Equal tokens are not enough: a result also contains the query as it was written.
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
        resolved = self._resolve_within(allowed)
        plan = make_plan(resolved.surface(), strategy=strategy, allowed_bytes=allowed)
        plan.check(allowed)
        last = None
        for last in run(plan, watched=False):
            if progress is not None:
                progress(last.fraction)
        if last is None:
            raise InvalidQuery("a surface has at least one cell")
        dataset = to_dataset(resolved.question, plan.surface, last.outcome, token=plan.original.token)
        if self.lookup.archive is not None:
            # In memory only: a file may be read on another machine.
            dataset.encoding[ARCHIVE_FOLDER] = str(self.lookup.archive.path)
        return dataset

    def to_xarray(self, **options: Any) -> xr.Dataset:  # noqa: ANN401 - those of `compute`
        """Compute the query; readings alone become an array of the archive's slices by series."""
        return self.compute(**options)

    def to_pandas(self, *, allowed_bytes: int | None = None) -> pd.DataFrame:
        """Return the readings as a table, or the result of the steps with a row per cell.

        Parameters
        ----------
        allowed_bytes
            Memory budget [bytes]; half of the free memory if absent.

        Returns
        -------
        Of readings the columns station, time (UTC), value, flag, lon, lat, elevation; the unit is in `attrs`.

        Raises
        ------
        HyperGridError
            The query cannot be answered.
        TooLarge
            The table does not fit into the budget; the message says how to get less, or a file.
        """
        allowed = free_bytes() // 2 if allowed_bytes is None else allowed_bytes
        if self.question.steps:
            return tabulate_result(self.compute(allowed_bytes=allowed), allowed_bytes=allowed)
        return self._tabulate_readings(allowed)

    def head(self, n: int = 5) -> pd.DataFrame:
        """Return the first rows of `to_pandas`; of readings, no more than the earliest are read."""
        if not isinstance(n, int) or n < 1:
            raise InvalidQuery(f"head needs a whole number of rows above zero; got {n!r}")
        if self.question.steps:
            return self.to_pandas().head(n)
        return self._tabulate_readings(free_bytes() // 2, first=n)

    def _tabulate_readings(self, allowed: int, first: int | None = None) -> pd.DataFrame:
        # Building it raises what is wrong with the query, a clip in space for instance.
        base_of_all = self.surface().perspective.list_bases()[0].operator
        assert isinstance(base_of_all, Base)
        bounds = dict(self.question.clip).get("time")
        window = None if bounds is None else Window.parse(*bounds)
        return tabulate_readings(base_of_all, window, allowed_bytes=allowed, first=first)

    def plot(self, *, allowed_bytes: int | None = None, **options: Any) -> Any:  # noqa: ANN401 - as `hypergrid.plot`
        """Compute the query and draw it as `hypergrid.plot` does, with its stations on a map."""
        stations = self.surface().perspective.list_bases()[0].topology.space
        return plots.plot(self.compute(allowed_bytes=allowed_bytes), **{"stations": stations, **options})

    def to_zarr(
        self,
        path: str | Path,
        *,
        allowed_bytes: int | None = None,
        progress: Callable[[float], None] | None = None,
        history: str | None = None,
        second_opinion: int | None = None,
    ) -> int:
        """Compute the whole surface into a Zarr store, block by block.

        `xarray.open_zarr` reads what `compute` returns.

        Parameters
        ----------
        path
            Folder of the store. An existing result of HyperGrid is replaced.
        allowed_bytes
            Memory budget of the run [bytes], independent of the surface's size; half of the free memory if absent.
        progress
            Called with the fraction computed after every block.
        history
            Text of the `history` attribute; by the CF conventions, when and by what the store was made.
        second_opinion
            As for `compute`.

        Returns
        -------
        The number of missing cells. A killed run leaves a store with the attribute `hypergrid_incomplete`.

        Raises
        ------
        NotFound, InvalidQuery
            The path cannot be used: its parent folder does not exist, or it holds something else, which is kept.
        HyperGridError
            The query cannot be answered; nothing was written.
        TooLarge
            Not even the smallest block fits into the memory budget.
        """
        target = as_path(path, label="to_zarr", what="the folder of the store")
        cells = None if second_opinion is None else check_cells(second_opinion)
        # Before planning, so that an unusable path fails at once.
        check_store(target)
        resolved = self.resolve()
        plan, chunks = make_streamed_plan(resolved.surface(), allowed_bytes)
        outcome = start_store(target, resolved.question, plan, chunks)
        for state in run(plan, watched=False, outcome=outcome):
            if progress is not None:
                progress(state.fraction)
        outcome.finish({} if history is None else {"history": history})
        if cells is not None:
            with xr.open_zarr(target, consolidated=False, chunks=None) as stored:
                opinion = ask_second_opinion(resolved.surface(), stored, cells=cells)
                outcome.add_attributes(opinion.note_in(stored).attrs)
        return outcome.missing

    def refine(
        self,
        *,
        order: RefinementOrder | str = "coarse_to_fine",
        walkers: int | None = None,
        seed: int = 0,
        fraction: float = 0.15,
        min_gain: float = 2.0,
        allowed_bytes: int | None = None,
    ) -> Iterator[Refinement]:
        """Compute the surface block by block, and yield a refinement after each.

        Parameters
        ----------
        order
            "coarse_to_fine", "raster", "by_time" (whole maps, the earliest first), "walk": the directed random walk,
            which moves to where values change, or "algorithm_9", that walk as the thesis prints it. Cells are those of
            a map (all its time cells at once, but "by_time") or, for one station's regular time cells, of days.
        walkers, seed, fraction
            Parameters of a walk: number of walkers (by the number of cells if absent), random seed, and the share of
            the cells that is walked, at most 0.5; the rest follows coarse to fine.
        min_gain
            Predicted time of all cells over that of the walked share, below which there is no walk but coarse to fine,
            as `Refinement.order_note` says; 0 walks always.
        allowed_bytes
            As for `compute`.

        Returns
        -------
        An iterator; closing it stops the run within one block. No cell is computed twice.

        Raises
        ------
        HyperGridError
            Any error of the query, the order or its parameters; before the first block.
        """
        watched = Watching(order, WalkSettings(fraction, walkers, seed, min_gain))
        allowed = free_bytes() // 2 if allowed_bytes is None else allowed_bytes
        resolved = self._resolve_within(allowed)
        plan = make_plan(resolved.surface(), watched=watched, allowed_bytes=allowed)
        plan.check(allowed)
        pictures = refine(plan)
        return (Refinement(resolved.question, picture) for picture in pictures)

    def _join_queries(self, query: Self, others: tuple[Self, ...]) -> Self:
        return replace(query, lookup=reduce(SourceLookup.join, (other.lookup for other in others), self.lookup))

    def _replace_question(self, question: QuerySpec) -> Self:
        return replace(self, question=question)


def base(
    readings: object,
    *,
    layers: Mapping[str, object] | None = None,
    variable: str | None = None,
    unit: str | None = None,
) -> Query:
    """Build a query of readings in memory.

    Parameters
    ----------
    readings
        An `xarray.DataArray` with dimensions (time, station) or (time, series) and coordinates lon and lat [degree], or
        x and y [m], and optionally elevation [m], of the stations, in other units if their attrs["units"] say so;
        `attrs["units"]`, its name is the variable. Or a `pandas.DataFrame` with a row per reading and the columns
        station, time, value, lon and lat [degree], or x and y [m], and optionally elevation [m]. NaN is missing. Times
        are UTC, or have a zone.
    layers
        Fields that do not change with time, by name, for methods that use them: each a DataArray with the dimensions
        (lat, lon), or (y, x), as the stations' coordinates, evenly spaced, NaN if unknown, with `attrs["units"]`;
        or a `Layer`. The default unit of "elevation" is m.
    variable
        Name of the variable; that of the array if absent.
    unit
        Unit of the values, such as "degC"; that of the array's attributes, or of a known variable, if absent.

    Raises
    ------
    InvalidQuery
        Missing dimensions, columns or coordinates, missing or unordered times, no station, a duplicate station, a
        station with two values at one time, or a layer with other coordinates.
    InvalidUnit
        The unit does not exist, or is not that of the array's attributes.
    InvalidLayer
        A layer's cells are not evenly spaced, or it has no value.
    """
    source = array_source(describe_values(make_array(readings), variable, unit), layers=layers)
    snapshot = ARRAY + source.token
    return Query(QuerySpec(source.variable.name, snapshot=snapshot), SourceLookup(arrays={snapshot: source}))


class OpenArchive(Mapping[str, Query]):
    """An archive at one snapshot, ready for queries: a mapping of its variables."""

    def __init__(self, archive: Archive, _newest: list[OpenArchive] | None = None) -> None:
        self._archive = archive
        # Shared by all that `latest` returned: one entry, so that those in between are not kept.
        self._newest = [] if _newest is None else _newest

    def __repr__(self) -> str:
        held = f"{len(self.stations)} stations, {len(self.variables)} variables ({', '.join(self.variables)})"
        as_of = "" if self.as_of is None else f" as of {self.as_of}"
        return f"OpenArchive({self.name}: {held}, snapshot {self.snapshot}{as_of})"

    def _repr_html_(self) -> str:
        return format_archive(self._archive, self.stations)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    # As objects: two that are equal as mappings may read different snapshots.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def path(self) -> Path:
        return self._archive.path

    @property
    def name(self) -> str:
        return self._archive.name

    @property
    def snapshot(self) -> str:
        """Id of the snapshot that queries read."""
        return self._archive.snapshot

    @cached_property
    def variables(self) -> Mapping[str, Variable]:
        """Variables by name, without those all of whose series a remapping withdrew."""
        store = self._archive
        return MappingProxyType({key: item for key, item in store.variables.items() if not is_withdrawn(store, key)})

    @cached_property
    def stations(self) -> StationTable:
        """Stations by id; `stations.to_pandas()` is a table of them."""
        return StationTable(self._archive.stations)

    @property
    def layers(self) -> Layers:
        """Layers (fields that do not change with time, such as elevation) by name."""
        return self._archive.layers

    @property
    def snapshots(self) -> Sequence[Snapshot]:
        """Snapshots, newest first, without those that expired by now."""
        # Another object, because an archive reads the list once.
        return self._archive.at_snapshot(self.snapshot).snapshots

    @property
    def store(self) -> Archive:
        """The underlying archive, for direct access to readings and tables."""
        return self._archive

    @property
    def as_of(self) -> str | None:
        """Instant by which readings must have arrived to be visible; None: all are."""
        return None if self._archive.as_of_ns is None else format_instant(self._archive.as_of_ns)

    def cite(self) -> None:
        """Keep the snapshot that queries read until it is released (`hypergrid snapshots --release`).

        Uncited snapshots expire an hour after they are superseded; `hg.again` then answers as of their commit.

        Raises
        ------
        NotFound
            The snapshot has expired.
        OSError
            The archive is not writable.
        """
        self._archive.cite()

    def latest(self) -> OpenArchive:
        """Return the archive at its newest snapshot; itself if nothing was committed since.

        The same object until the next commit, with what was read of that snapshot.
        """
        known = self._newest[0] if self._newest else self
        newest = known.store.latest()
        if newest is known.store:
            return known
        # Another thread may open it as well, which costs time but is correct.
        opened = OpenArchive(newest, self._newest)
        self._newest[:] = [opened]
        return opened

    def __getitem__(self, variable: str) -> Query:
        """Build a query of a variable.

        Raises
        ------
        NotFound
            The variable does not exist.
        """
        self._archive.variable(variable)
        return Query(QuerySpec(variable, snapshot=self.snapshot, as_of=self.as_of), SourceLookup(self._archive))

    def __contains__(self, variable: object) -> bool:
        return variable in self.variables

    def get(self, variable: str, default: Any = None) -> Any:  # noqa: ANN401 - as of any mapping
        return self[variable] if variable in self else default

    def query(self, document: Mapping[str, Any], *, known: PlanMemo | None = None) -> Query:
        """Parse the JSON form of a query.

        The default snapshot and as-of instant are those of this archive.

        Parameters
        ----------
        document
            The JSON form.
        known
            Plan memo, shared with other queries that are built in the same thread.

        Raises
        ------
        HyperGridError
            A key, operator, function, method, variable or snapshot does not exist.
        """
        question = question_from_json(document)
        self._archive.variable(question.variable)
        sources = SourceLookup(self._archive, known=None if known is None else known.use_snapshot(self.snapshot))
        return Query(pin_snapshot(question, self.snapshot, self.as_of), sources)


def open_archive(path: str | Path, *, snapshot: str | None = None, as_of: object = None) -> OpenArchive:
    """Open an archive for queries.

    Parameters
    ----------
    path
        Folder of the archive.
    snapshot
        Id of the snapshot to read; the newest if absent.
    as_of
        Instant, "2007-10-01T06:00Z" or a `datetime`: answers use only what had arrived by then, from arrival times and
        superseded readings. Flags that tests set later, stations and layers are those of the snapshot.

    Raises
    ------
    InvalidQuery
        `path` is not a path.
    NotAnArchive
        The folder is not an archive; it was left untouched.
    NotFound
        The snapshot does not exist.
    InvalidTime
        `as_of` is not an instant.
    """
    folder = as_path(path, label="hg.open", what="the folder of an archive")
    return OpenArchive(
        Archive.open(folder, snapshot=snapshot, as_of_ns=None if as_of is None else parse_instant(as_of))
    )


def as_path(path: object, *, label: str, what: str) -> Path:
    """Convert text or a path to a path.

    Raises
    ------
    InvalidQuery
        It is neither.
    """
    if not isinstance(path, str | Path):
        raise InvalidQuery(f"{label} needs {what}, a text or a pathlib.Path; got {path!r}")
    return Path(path)


def read_document(file: Path) -> object:
    """Read a query's JSON form from a file, and inline the zone files it names.

    Paths of zone files are relative to the file's folder.

    Raises
    ------
    NotFound
        The file cannot be read.
    InvalidQuery
        The file is not JSON, or a zone file is invalid.
    """
    try:
        document = json.loads(file.read_text())
    except OSError as error:
        raise NotFound(f"the query file {file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidQuery(f"the query file {file} is no JSON that can be read: {error}") from error
    return inline_zone_files(document, file.parent)
