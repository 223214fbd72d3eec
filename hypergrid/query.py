"""What a user holds: an opened archive, and a fluent, immutable query around a frozen question."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import xarray as xr

from hypergrid.errors import InvalidQuery, NotFound
from hypergrid.execution import (
    Plan,
    Walking,
    Wanted,
    check_store,
    explain,
    free_bytes,
    make_plan,
    refine,
    run,
    start_store,
    streamed_plan,
    to_dataset,
)
from hypergrid.execution.kept import KEPT
from hypergrid.perspective import Question, Step, Surface, build, question_from_json
from hypergrid.perspective.array_source import array_source
from hypergrid.perspective.known import Known
from hypergrid.perspective.sources import ARRAY, Sources, pinned
from hypergrid.perspective.steps import items, where_to_interpolate
from hypergrid.refinement import Refinement
from hypergrid.store import Archive, Layers, Snapshot
from hypergrid.streams.elements import Station
from hypergrid.times import format_instant, parse_instant
from hypergrid.tokens import token
from hypergrid.topology import Grid, levels_json
from hypergrid.topology import zones as read_zones
from hypergrid.topology.zones import read_into
from hypergrid.units import Variable


@dataclass(frozen=True, eq=False)
class Query:
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

    question: Question
    lookup: Sources

    def __repr__(self) -> str:
        """Return the variable and the steps in a line; `explain()` says more."""
        return f"Query({self.question.in_words})"

    def convert(self, function: str, **params: object) -> "Query":
        """Apply an element-wise function (`valid_range`, `scale`, …) to the values."""
        return self._then(Step("convert", function, items(params)))

    def aggregate(
        self,
        function: str,
        *,
        time: object = None,
        lon: object = None,
        lat: object = None,
        x: object = None,
        y: object = None,
        z: object = None,
        zones: object = None,
        **params: object,
    ) -> "Query":
        """Take one value (`mean`, `max`, `sum`, …) for the cells that each new cell covers.

        Parameters
        ----------
        function
            Name of an aggregate.
        time
            "10min", {"length": "15min", "step": "5min"}, or "all"; "month", "season", "year", "hydrological_year" (from
            October on, {"hydrological_year": 9} from September on), {"edges": [instants…]}; a duration or a name with
            an offset or a zone, {"step": "1day", "offset": "6h"}, {"step": "month", "zone": "Europe/Zurich"}. Cells
            that come again: "hour_of_day", "day_of_week" (Monday is 1), "day_of_year" (29 February is 60, 1 March 61 in
            every year), "month_of_year", "season_of_year" (DJF is 1); {"periodic": "hour_of_day", "zone": …} or
            {…, "solar": True} (mean solar time of the stations' mean longitude); {"periodic": "6h", "within": "1day",
            "phase": "3h"}. The dimension of the result has their name, and no aggregate over time can follow.
        lon, lat, x, y
            New cells along an axis of a grid: a length, or "all".
        z
            The same along the levels of a grid; of stations, or a grid on the ground with a layer "elevation", bands of
            elevation, each of what lies in it: 500 (metres, from whole multiples of it), {"edges": [0, 800, 1500]}, or
            {"start": 400, "stop": 2400, "step": 500}.
        zones
            Polygons as new cells of a grid, in place of these: `hg.zones(…)`, or what it takes.
        params
            The function's own (`hypergrid functions` lists them), and `min_coverage`: share of the possible readings
            below which a cell is missing. Where absent 1 for sum and degree_days, 0 (any reading is enough) for min,
            max, count, first, last and sample, 0.8 for all others.
        """
        polygons = None if zones is None else read_zones(zones).to_json()
        cells = {"time": time, "lon": lon, "lat": lat, "x": x, "y": y, "z": z, "zones": polygons}
        return self._then(Step("aggregate", function, items(params), items(_given(cells))))

    def interpolate(
        self,
        method: str,
        *others: "Query",
        grid: Grid | Mapping[str, Any] | None = None,
        time: object = None,
        **params: object,
    ) -> "Query":
        """Estimate values between the stations, or between the readings of each station.

        Parameters
        ----------
        method
            Name of a method: over space with a grid, over time ("nearest", "linear", "spline") with `time`. "recipe"
            stands for what is best for the variable (`perspective/recipes.py`); `explain()` shows it.
        others
            For a recipe of two variables the query of the other one, aligned alike; the archive's where absent.
        grid
            Cells of a grid, `hg.grid(…)`.
        time
            Step between instants, such as "10min"; they are whole multiples of it since midnight UTC.
        params
            The method's. Over time `max_gap`: the longest time between two readings that is filled ("1h"), three
            intervals of the series where absent.

        Raises
        ------
        InvalidQuery, NotFound
            Neither a grid nor a time, or both; no such method over it.
        """
        where = where_to_interpolate(None if grid is None else _grid_json(grid), time)
        step = Step("interpolate", method, items(_given(params)), items(where), _questions(others))
        return self._joined(self._then(step), others)

    def merge(self, function: str, *others: "Query", **params: object) -> "Query":
        """Combine with other queries of the same cells (`difference`, `anomaly`, `vapour_pressure_deficit`, …).

        A function says which sources it takes, and in which order; this query is the first. One over "all", or over
        cells that come again ("hour_of_day", "month_of_year"), is a climatology where this query has other cells: each
        of these takes the one that it lies in. It is of all readings, whatever the surface is clipped to, or of those
        in its own clip: `hourly.merge("anomaly", normal.clip(time=("1991", "2021")))`.
        """
        step = Step("merge", function, items(_given(params)), others=_questions(others))
        return self._joined(self._then(step), others)

    def clip(self, **bounds: object) -> "Query":
        """Keep the cells whose corner is in bounds: time, lon, lat, x, y or z = (start, stop), stop not included."""
        listed = []
        for name, pair in bounds.items():
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                message = f"clip of {name!r} needs a start and a stop, ('2007-10-01', '2007-10-04'); got {pair!r}"
                raise InvalidQuery(message)
            listed.append((name, (pair[0], pair[1])))
        twice = sorted(set(bounds) & set(dict(self.question.clip)))
        if twice:
            message = f"{', '.join(twice)} is clipped already; give one clip, with the narrower bounds"
            raise InvalidQuery(message)
        return self._with(replace(self.question, clip=(*self.question.clip, *listed)))

    def select(self, **properties: object) -> "Query":
        """Read only series with these properties: station, height_m, replicate, statistic, interval_s, source."""
        return self._with(replace(self.question, select=items({**dict(self.question.select), **properties})))

    def accept_flags(self, *flags: int) -> "Query":
        """Read only readings with these QARTOD flags (default 1 and 2); the values of an array have none."""
        return self._with(replace(self.question, accept_flags=flags))

    def with_variance(self, *, correlation_time: str | None = None) -> "Query":
        """Ask for the variance of the estimates, or of their means and sums, as well.

        Parameters
        ----------
        correlation_time
            For a mean over time: the time after which errors have lost all but 1/e of their correlation ("6h"), "0s"
            where slices are independent, or "estimate" from what each station's neighbours do not know of it. Where
            absent, `variance` is the greatest and `variance_low` the least over all of them.
        """
        return self._with(replace(self.question, variance=True, correlation_time=correlation_time))

    def to_json(self) -> dict[str, Any]:
        """Return the query's JSON form."""
        return self.question.to_json()

    def surface(self) -> Surface:
        """Return the chain of perspectives; raises what is known to be wrong before anything is computed."""
        return build(self.question, self.lookup, self.lookup.known)

    @property
    def token(self) -> str:
        """Content token: equal questions about equal data have equal tokens."""
        return self.surface().token

    def plan(self, *, refining: bool = False) -> Plan:
        """Return what a run would compute, with its projected bytes."""
        return make_plan(self.surface(), refining=refining)

    def explain(self, *, strategy: Wanted = "auto", allowed_bytes: int | None = None, measured: bool = False) -> str:
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
        strategy: Wanted = "auto",
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
            return self._computed(strategy, allowed_bytes, progress)
        key = token(self.token, self.to_json())
        found = KEPT.get(key)
        if found is None:
            return KEPT.keep(key, self._computed(strategy, allowed_bytes, progress))
        if progress is not None:
            progress(1.0)
        return found

    def _computed(
        self, strategy: Wanted, allowed_bytes: int | None, progress: Callable[[float], None] | None
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
        target = Path(path)
        check_store(target)
        plan, chunks = streamed_plan(self.surface(), allowed_bytes)
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
            share of the cells that is walked, at most 0.5; the rest follows row by row.
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
        walking = Walking(fraction, walkers, seed)
        allowed = free_bytes() // 2 if allowed_bytes is None else allowed_bytes
        plan = make_plan(self.surface(), refining=True, allowed_bytes=allowed)
        plan.check(allowed)
        pictures = refine(plan, order=order, walking=walking)
        return (Refinement(self.question, picture) for picture in pictures)

    def _joined(self, query: "Query", others: "tuple[Query, ...]") -> "Query":
        return replace(query, lookup=reduce(Sources.joined, (other.lookup for other in others), self.lookup))

    def _then(self, step: Step) -> "Query":
        return self._with(self.question.then(step))

    def _with(self, question: Question) -> "Query":
        return replace(self, question=question)


def _questions(queries: tuple[Query, ...]) -> tuple[Question, ...]:
    return tuple(query.question for query in queries)


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _grid_json(grid: object) -> dict[str, Any]:
    if isinstance(grid, Mapping):
        return dict(grid)
    if not isinstance(grid, Grid):
        message = f"interpolate needs grid=hg.grid(…); got {grid!r}"
        raise InvalidQuery(message)
    if grid.system == "metres":
        corner: dict[str, Any] = {"x": grid.x.origin / 1000, "y": grid.y.origin / 1000, "step": grid.x.step / 1000}
    else:
        corner = {"lon": _sexagesimal(grid.x.origin), "lat": _sexagesimal(grid.y.origin)}
        corner["step"] = f"{grid.x.step / 1e6:.10g}arcsec"
    corner["shape"] = [grid.y.count, grid.x.count]
    return corner if grid.z is None else {**corner, "z": levels_json(grid.z)}


def _sexagesimal(quanta: int) -> str:
    seconds, micro = divmod(abs(quanta), 1_000_000)
    text = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    fraction = f".{micro:06d}".rstrip("0").rstrip(".")
    return ("-" if quanta < 0 else "") + text + fraction


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
    return Query(Question(source.variable.name, snapshot=snapshot), Sources(arrays={snapshot: source}))


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
        return Query(Question(variable, snapshot=self.snapshot, as_of=self.as_of), Sources(self._archive))

    def __contains__(self, variable: object) -> bool:
        return variable in self.variables

    def query(self, document: Mapping[str, Any], *, known: Known | None = None) -> Query:
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
        sources = Sources(self._archive, known=None if known is None else known.at(self.snapshot))
        return Query(pinned(question, self.snapshot, self.as_of), sources)


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
    NotAnArchive
        The folder is none; it was not touched.
    NotFound
        There is no such snapshot.
    InvalidTime
        `as_of` is no instant.
    """
    return OpenArchive(Archive.open(path, snapshot=snapshot, as_of_ns=None if as_of is None else parse_instant(as_of)))


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
    return read_into(document, file.parent)
