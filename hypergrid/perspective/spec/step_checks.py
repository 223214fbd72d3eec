"""Check a step when it is added: everything that can be known without its data."""

from collections.abc import Mapping
from typing import Any

from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.parameters import Parameter, bind
from hypergrid.core.times import parse_duration
from hypergrid.interpolation import METHODS, method_over
from hypergrid.interpolation.methods.station_selection import PARAMETERS as SELECTION
from hypergrid.perspective.functions.aggregates import AGGREGATES
from hypergrid.perspective.functions.rows import CONVERTS, MERGES
from hypergrid.perspective.spec.cell_specs import parse_cells
from hypergrid.perspective.spec.query_spec import GRID_KEYS, RECIPE, Step
from hypergrid.topology.points import cells_from_json

MIN_COVERAGE = "min_coverage"
"""Parameter of every aggregate."""


def check_step(step: Step, number: int) -> None:
    """Refuse a step whose parameters or cells are invalid for every source.

    Parameters
    ----------
    step
        The step, whose names of functions and methods exist.
    number
        Its number in the query, from 1, for messages.

    Raises
    ------
    HyperGridError
        An unknown or missing parameter, an invalid value, time cells or a grid that cannot be read, or a merge with the
        wrong number of queries.
    """
    try:
        if step.op == "interpolate":
            _check_interpolation(step)
        elif step.op == "aggregate":
            _check_aggregate(step)
        elif step.op == "merge":
            check_sources(step.name, len(step.others))
            _check_call(step.name, MERGES[step.name].parameters, dict(step.params))
        else:
            _check_call(step.name, CONVERTS[step.name].parameters, dict(step.params))
    except HyperGridError as error:
        raise error.locate(f"step {number} ({step.op} {step.name!r})") from error


def check_sources(name: str, others: int) -> None:
    """Refuse a merge with the wrong number of sources.

    Raises
    ------
    InvalidQuery
        The function takes another number; the message lists its sources in order.
    """
    row = MERGES[name]
    needed = len(row.roles) - 1
    if others != needed:
        count = "one other query" if needed == 1 else f"{needed} other queries"
        order = ", then ".join(row.roles)
        raise InvalidQuery(
            f"merge {name!r} takes {count} in 'with' (it is of {order}, the first being this query); got {others}"
        )


def _check_aggregate(step: Step) -> None:
    cells = dict(step.cells)
    if not cells:
        raise InvalidQuery("an aggregate needs cells, for example time='10min'; got none")
    parameters = AGGREGATES[step.name].parameters
    params = {name: value for name, value in step.params if name != MIN_COVERAGE}
    NotFound.refuse_unknown(f"parameter of {step.name}", params, [*(row.name for row in parameters), MIN_COVERAGE])
    _check_call(step.name, parameters, params)
    spec = cells.get("time", "all")
    # Solar time needs the longitudes of the stations.
    if spec != "all" and not (isinstance(spec, Mapping) and spec.get("solar")):
        parse_cells(spec)


def _check_interpolation(step: Step) -> None:
    cells = dict(step.cells)
    if step.name == RECIPE and not step.is_in_time:
        return
    if step.is_in_time:
        row = method_over("time", step.name)
        parse_duration(cells["time"])
        _check_call(row.name, row.parameters, dict(step.params))
    else:
        NotFound.refuse_unknown("key of a grid", cells, GRID_KEYS)
        if "step" not in cells:
            raise InvalidQuery(f"a grid needs a step, such as '1arcsec'; got {cells}")
        cells_from_json(cells)
        _check_call(step.name, (*METHODS[step.name].parameters, *SELECTION), dict(step.params))


def _check_call(label: str, parameters: tuple[Parameter, ...], params: dict[str, Any]) -> None:
    """Bind parameters; those in the unit of the values are only checked to be there."""
    of_values = {row.name for row in parameters if row.kind == "number" and row.unit == "variable"}
    known = {name: 0.0 if name in of_values and value is not None else value for name, value in params.items()}
    bind(label, parameters, known, variable_unit="1")
