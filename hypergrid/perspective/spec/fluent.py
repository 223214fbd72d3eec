"""Fluent query building, shared by local and remote queries."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

from hypergrid.core.errors import InvalidQuery
from hypergrid.perspective.spec.clip_order import check_after_clip
from hypergrid.perspective.spec.correlation_time import parse_memory
from hypergrid.perspective.spec.names import AggregateName, ConvertName, MergeName, MethodName
from hypergrid.perspective.spec.python_values import write_bounds, write_duration, write_time_cells
from hypergrid.perspective.spec.query_html import format_query
from hypergrid.perspective.spec.query_spec import QuerySpec, Step, choose_interpolation_cells, freeze_items
from hypergrid.perspective.spec.step_checks import check_step
from hypergrid.topology.points import Points, cells_json
from hypergrid.topology.space import Grid
from hypergrid.topology.zones import zones as read_zones


class Fluent(ABC):
    """A frozen question with methods that return an extended copy.

    Subclasses hold the question and define how a copy holds another one.
    """

    question: QuerySpec

    def _repr_html_(self) -> str:
        return format_query(type(self).__name__, self.question)

    @abstractmethod
    def _replace_question(self, question: QuerySpec) -> Self:
        """Return a copy with another question."""

    def _join_queries(self, query: Self, others: tuple[Self, ...]) -> Self:  # noqa: ARG002 - for subclasses
        """Return a query that also reads the data of others."""
        return query

    def convert(self, function: ConvertName | str, **params: object) -> Self:
        """Apply an element-wise function (`valid_range`, `scale`, …) to the values."""
        return self._add_step(Step("convert", function, _freeze_params(params)))

    def aggregate(
        self,
        function: AggregateName | str,
        *,
        time: object = None,
        lon: object = None,
        lat: object = None,
        x: object = None,
        y: object = None,
        z: object = None,
        zones: object = None,
        **params: object,
    ) -> Self:
        """Reduce the cells that each new cell covers to one value (`mean`, `max`, `sum`, …).

        Parameters
        ----------
        function
            Name of an aggregate.
        time
            "10min" (or "hourly", "1D", a timedelta, a pandas offset), {"length": "15min", "step": "5min"}, or "all";
            "month", "season", "year", "hydrological_year" (from October; {"hydrological_year": 9} from September),
            {"edges": [instants…]}; a duration or name with an offset or zone, {"step": "1day", "offset": "6h"},
            {"step": "month", "zone": "Europe/Zurich"}. Periodic cells: "hour_of_day", "day_of_week" (Monday is 1),
            "day_of_year" (29 February is 60, 1 March 61 in every year), "month_of_year", "season_of_year" (DJF is 1);
            {"periodic": "hour_of_day", "zone": …} or {…, "solar": True} (mean solar time at the stations' mean
            longitude); {"periodic": "6h", "within": "1day", "phase": "3h"}. The dimension of a periodic result is named
            after its cells, and no aggregate over time can follow.
        lon, lat, x, y
            New cells along an axis of a grid: a length, or "all".
        z
            The same along the levels of a grid. For stations, or a ground grid with a layer "elevation": elevation
            bands, given as 500 (metres, at whole multiples), {"edges": [0, 800, 1500]}, or {"start": 400, "stop": 2400,
            "step": 500}.
        zones
            Polygons as new cells of a grid, instead of the above: `hg.zones(…)`, or its input.
        params
            Parameters of the function (listed by `hypergrid functions`), and `min_coverage`: share of the possible
            readings below which a cell is missing. Where absent 1 for sum and degree_days, 0 (any reading is enough)
            for min, max, count, first, last and sample, 0.8 for all others.
        """
        # Inlined as JSON, so that the question does not depend on a file.
        polygons = None if zones is None else read_zones(zones).to_json()
        cells = {"time": write_time_cells(time), "lon": lon, "lat": lat, "x": x, "y": y, "z": z, "zones": polygons}
        return self._add_step(Step("aggregate", function, _freeze_params(params), freeze_items(_drop_absent(cells))))

    def interpolate(
        self,
        method: MethodName | str = "auto",
        *others: Self,
        grid: Grid | Points | Mapping[str, Any] | None = None,
        time: object = None,
        **params: object,
    ) -> Self:
        """Estimate values between the stations, or between the readings of each station.

        Parameters
        ----------
        method
            Name of a method: over space with a grid, over time ("nearest", "linear", "spline") with `time`. "auto"
            chooses drift and variogram by the stations themselves, and says in the result what and why. "recipe"
            selects the recommended steps for the variable (`perspective/build/recipes.py`), shown by `explain()`.
        others
            For a recipe of two variables, the aligned query of the other one; default: from the archive.
        grid
            Cells of a grid, `hg.grid(…)`, or points, `hg.points(…)`.
        time
            Step between instants, such as "10min"; instants are whole multiples of it since midnight UTC.
        params
            Parameters of the method. Over time `max_gap`: the longest bridged time between two readings ("1h"), by
            default three intervals of the series.

        Raises
        ------
        InvalidQuery, NotFound
            Neither a grid nor a time, or both; an unknown method.
        """
        where = choose_interpolation_cells(None if grid is None else _grid_json(grid), write_duration(time))
        step = Step(
            "interpolate",
            method,
            _freeze_params(_drop_absent(params)),
            freeze_items(where),
            _list_questions(others),
        )
        return self._join_queries(self._add_step(step), others)

    def merge(self, function: MergeName | str, *others: Self, **params: object) -> Self:
        """Combine with other queries of the same cells (`difference`, `anomaly`, `vapour_pressure_deficit`, …).

        The function defines its sources and their order; this query is the first. A query over "all", or over periodic
        cells ("hour_of_day", "month_of_year"), acts as a climatology if this query has other cells: each of them takes
        the value of the climatology cell that contains it. A climatology uses all readings, regardless of the surface's
        clip, or those in its own clip: `hourly.merge("anomaly", normal.clip(time=("1991", "2021")))`.
        """
        step = Step("merge", function, _freeze_params(_drop_absent(params)), others=_list_questions(others))
        return self._join_queries(self._add_step(step), others)

    def clip(self, **bounds: object) -> Self:
        """Keep the cells whose corner is within bounds, stop excluded.

        Bounds are given per dimension: time, lon, lat, x, y or z = (start, stop), or slice(start, stop), whose stop is
        excluded as well. Instants are text, datetimes, dates or pandas Timestamps. A clip may come before other steps
        if it means the same there: its bounds are edges of the time cells that follow.
        """
        listed = [(name, write_bounds(name, pair)) for name, pair in bounds.items()]
        twice = sorted(set(bounds) & set(dict(self.question.clip)))
        if twice:
            raise InvalidQuery(f"{', '.join(twice)} is clipped already; give one clip, with the narrower bounds")
        return self._replace_question(replace(self.question, clip=(*self.question.clip, *listed)))

    def at_stations(self) -> Self:
        """Keep the steps before the first interpolation over space: the values at the stations."""
        steps = self.question.steps
        maps = (at for at, step in enumerate(steps) if step.op == "interpolate" and "time" not in dict(step.cells))
        first = next(maps, None)
        if first is None:
            return self
        return self._replace_question(
            replace(self.question, steps=steps[:first], variance=False, correlation_time=None)
        )

    def select(self, **properties: object) -> Self:
        """Read only series with the given properties.

        Properties are station, height_m, replicate, statistic, interval_s and source.
        """
        return self._replace_question(
            # Later calls extend or override earlier ones.
            replace(self.question, select=freeze_items({**dict(self.question.select), **properties}))
        )

    def accept_flags(self, *flags: int) -> Self:
        """Read only readings with these QARTOD flags (default 1 and 2).

        Array values have no flags.
        """
        return self._replace_question(replace(self.question, accept_flags=flags))

    def with_variance(self, *, correlation_time: str | timedelta | None = None) -> Self:
        """Also compute the variance of the estimates, or of their means and sums.

        Parameters
        ----------
        correlation_time
            For a mean over time: the time after which the correlation of errors falls to 1/e ("6h"), "0s" if slices are
            independent, or "estimate" to fit it to leave-one-out residuals of the stations. If absent, `variance`
            is the largest and `variance_low` the smallest value over all correlation times.
        """
        memory: Any = write_duration(correlation_time)
        parse_memory(memory)
        return self._replace_question(replace(self.question, variance=True, correlation_time=memory))

    def to_json(self) -> dict[str, Any]:
        return self.question.to_json()

    def _add_step(self, step: Step) -> Self:
        check_step(step, len(self.question.steps) + 1)
        check_after_clip(self.question, step)
        return self._replace_question(self.question.add_step(step))


def _list_questions(queries: tuple[object, ...]) -> tuple[QuerySpec, ...]:
    questions = []
    for query in queries:
        if not isinstance(query, Fluent):
            raise InvalidQuery(
                f"merge and interpolate take queries, such as archive['air_temperature']; got {query!r}; a plain "
                "number is a parameter of a convert function"
            )
        questions.append(query.question)
    return tuple(questions)


def _freeze_params(params: Mapping[str, object]) -> tuple[tuple[str, Any], ...]:
    """Return parameters as pairs, durations as text; "daily" and the like are durations only as `max_gap`."""
    written = {
        name: value if isinstance(value, str) and name != "max_gap" else write_duration(value)
        for name, value in params.items()
    }
    return freeze_items(written)


def _drop_absent(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _grid_json(grid: object) -> dict[str, Any]:
    if isinstance(grid, Mapping):
        return dict(grid)
    if not isinstance(grid, Grid | Points):
        raise InvalidQuery(f"interpolate needs grid=hg.grid(…), or grid=hg.points(…); got {grid!r}")
    return cells_json(grid)
