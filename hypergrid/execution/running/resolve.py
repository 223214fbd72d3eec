"""Resolve automatic interpolations before planning: each becomes the method that the query's own readings support.

A resolved query is an ordinary one: its plan can commute a mean with kriging, its JSON computes the same surface again
whatever a later version would choose, and a standing query keeps what it was made with.

A mean over all time is taken first if the same stations report in every slice: the map is then one of means, whose
variogram is fitted to means rather than to single slices with their noise.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import HyperGridError, InvalidQuery
from hypergrid.execution.operators.interpolations import covariates_of, make_layer_lookup, stations_of
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.interpolation import AUTO, Stations
from hypergrid.interpolation.methods.automatic import MOST_IN_ONE_SYSTEM, NEAREST, Choice, choose_drift
from hypergrid.interpolation.methods.station_selection import treat_coincident
from hypergrid.perspective import Interpolate, Perspective, QuerySpec, build
from hypergrid.perspective.build.build import is_climatology
from hypergrid.perspective.build.data_sources import SourceLookup
from hypergrid.perspective.build.station_projection import place_stations
from hypergrid.perspective.spec.query_spec import Step, freeze_items
from hypergrid.rewrite import rewrite

Floats = NDArray[np.float64]

MOST_SLICES: Final = 1_000
"""Slices up to which all are evaluated; of more, `SAMPLED_SLICES` at even distances, which show no gaps."""
SAMPLED_SLICES: Final = 240
AVERAGED_FIRST: Final = "the mean over time is taken first, as the same stations report in every slice"


def resolve_automatic(question: QuerySpec, lookup: SourceLookup, *, is_followed: bool = False) -> QuerySpec:
    """Replace each automatic interpolation by the method chosen for the values at its stations.

    An interpolation stays automatic if there is nothing to choose from: no values yet, or too few stations.

    Parameters
    ----------
    question
        The query; those merged into it are resolved within its clip in time.
    lookup
        Sources of the readings, of which up to `MOST_SLICES` slices are evaluated.
    is_followed
        Whether it will be evaluated on later readings too: the order of its steps then stays, as stations may fall
        silent.

    Raises
    ------
    HyperGridError
        The query cannot be answered.
    """
    time = tuple((name, bounds) for name, bounds in question.clip if name == "time")

    def resolve_other(other: QuerySpec, before: QuerySpec) -> QuerySpec:
        # A climatology uses all its readings, or those within a clip of its own.
        bounded = other if is_climatology(other, before) else replace(other, clip=time)
        return replace(resolve_automatic(bounded, lookup, is_followed=is_followed), clip=other.clip)

    steps = list(question.steps)
    for number, step in enumerate(steps):
        if step.others:
            merged_before = replace(question, steps=question.steps[:number], clip=())
            steps[number] = step.change_others(partial(resolve_other, before=merged_before))
    may_average = not (is_followed or question.variance)
    for number, step in enumerate(steps):
        if step.is_automatic:
            before = replace(question, steps=tuple(steps[:number]), clip=time, variance=False, correlation_time=None)
            after = steps[number + 1] if number + 1 < len(steps) and may_average else None
            steps[number : number + (1 if after is None else 2)] = _resolve_step(before, step, after, lookup)
    return question if tuple(steps) == question.steps else replace(question, steps=tuple(steps))


def _resolve_step(before: QuerySpec, step: Step, after: Step | None, lookup: SourceLookup) -> list[Step]:
    """Return the steps that replace an automatic interpolation and the step after it, if any."""
    rest = [] if after is None else [after]
    slices = _read_stations(before, step, lookup)
    if after is not None and _is_mean_over_all(after) and slices.is_constant:
        try:
            means = _read_stations(replace(before, steps=(*before.steps, after)), step, lookup)
        except HyperGridError:
            # For example cells shorter than the intervals of the readings: then slices are averaged, as asked.
            means = None
        if means is not None and means.reporting == slices.reporting:
            chosen = _choose_step(step, means, (AVERAGED_FIRST,))
            return [step, *rest] if chosen is None else [after, chosen]
    chosen = _choose_step(step, slices, ())
    return [step if chosen is None else chosen, *rest]


def _is_mean_over_all(step: Step) -> bool:
    return step.op == "aggregate" and step.name == "mean" and dict(step.cells) == {"time": "all"}


@dataclass(frozen=True, eq=False)
class _StationValues:
    """The values from which a method is chosen."""

    stations: Stations
    values: Floats
    """Shape (slices, stations)."""
    operator: Interpolate
    is_whole: bool
    """Whether these are all slices, rather than a sample."""

    @property
    def is_constant(self) -> bool:
        """Whether each station reports in every slice of the query."""
        return bool(self.is_whole and self.values.size and np.isfinite(self.values).all())

    @property
    def reporting(self) -> tuple[str, ...]:
        return self.stations.names


def _read_stations(before: QuerySpec, step: Step, lookup: SourceLookup) -> _StationValues:
    surface = build(replace(before, steps=(*before.steps, step)), lookup, lookup.known)
    node = rewrite(surface).surface.perspective
    operator = node.operator
    if not isinstance(operator, Interpolate):
        raise TypeError("the last step is an interpolation")
    values = _evaluate(node.source)
    axis, names = node.source.stations, operator.covariates
    covariates = covariates_of(axis, names, make_layer_lookup(node, operator))
    placing = place_stations(axis, operator)
    usable = placing.near & np.isfinite(values).any(axis=0)
    for covariate in covariates.values():
        usable &= np.isfinite(covariate)
    used = np.flatnonzero(usable)
    stations = stations_of(axis, used, placing.metres, covariates)
    stations, values, _ = treat_coincident(AUTO, stations, values[:, used], operator.arguments)
    return _StationValues(stations, values, operator, node.source.topology.time.count <= MOST_SLICES)


def _evaluate(source: Perspective) -> Floats:
    """Evaluate a perspective at all its stations, in all slices or a sample, shape (slices, series)."""
    count = source.topology.time.count
    times = None if count <= MOST_SLICES else np.linspace(0, count - 1, SAMPLED_SLICES).round().astype(np.intp)
    # What is pulled is computed for the sampled slices alone.
    pulled = frozenset() if times is None else frozenset(item.token for item in source.list_chain())
    return Evaluator(pulled=pulled).block(source, np.arange(source.topology.space.count), times=times).value


def _choose_step(step: Step, given: _StationValues, reasons: tuple[str, ...]) -> Step | None:
    """Return the step of the chosen method; None if there is nothing to choose from."""
    if not given.stations.count:
        return None
    try:
        choice = choose_drift(given.stations, given.values, given.operator.covariates)
    except InvalidQuery:
        return None
    own = dict(step.params)
    because = "; ".join(filter(None, [given.operator.arguments.get("because"), *choice.notes, *reasons]))
    params = {**own, **_list_parameters(choice, given.operator), "because": because}
    if given.stations.count > MOST_IN_ONE_SYSTEM:
        params.setdefault("neighbours", NEAREST)
    return replace(step, name=_name_method(choice), params=freeze_items(params))


def _name_method(choice: Choice) -> str:
    if choice.drift.covariates:
        return "external_drift_kriging"
    return "universal_kriging" if choice.drift.degree else "ordinary_kriging"


def _list_parameters(choice: Choice, operator: Interpolate) -> dict[str, Any]:
    variogram = choice.find_variogram(operator.arguments)
    params: dict[str, Any] = {"variogram": variogram, "coincident": operator.arguments["coincident"]}
    if choice.drift.covariates:
        params["drift"] = list(choice.drift.covariates)
    if choice.drift.degree:
        params["degree"] = choice.drift.degree
    return params
