"""Convert time axes to coordinates with bounds, and describe them in CF terms."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hypergrid.core.times import SECOND_NS, format_duration
from hypergrid.perspective.build.timestamps import are_instants
from hypergrid.topology import Bins, Instants, Periodic, Regular, TimeAxis, blocks_of


def time_coords(axis: TimeAxis) -> dict[str, Any]:
    """Return the coordinates of a time axis.

    Returns
    -------
    Instants: `time`. Cells: `time`, their starts, and `time_bounds`. Periodic cells: their numbers (`hour_of_day`, …),
    `time`, the start of each one's first block, and `climatology_bounds`, from there to the end of its last block (CF
    1.11, section 7.4); a cell without blocks has bounds of zero length.
    """
    if isinstance(axis, Instants) or are_instants(axis):
        attributes = {"standard_name": "time", "axis": "T"}
        return {"time": xr.Variable("time", axis.corners.view("datetime64[ns]"), attributes, _time_unit(axis.corners))}
    if isinstance(axis, Periodic):
        return _climatology_coords(axis)
    attributes = {
        "standard_name": "time",
        "axis": "T",
        "bounds": "time_bounds",
        "long_name": "start of the time cell (UTC)",
    }
    return _bounded_coords("time", np.stack(blocks_of(axis), axis=1), "time_bounds", attributes)


def _climatology_coords(axis: Periodic) -> dict[str, Any]:
    cycle = axis.cycle
    numbered: dict[str, Any] = {
        "long_name": f"{cycle.name.replace('_', ' ')} ({cycle.calendar.clock.describe()})",
        "units": "1",
    }
    if cycle.meanings:
        numbered["flag_values"] = axis.labels.astype(np.int32)
        numbered["flag_meanings"] = " ".join(cycle.meanings[cell] for cell in axis.cells.tolist())
    attributes = {
        "standard_name": "time",
        "climatology": "climatology_bounds",
        "long_name": "start of the cell's first block of time (UTC)",
    }
    bounds = np.stack([axis.corners, axis.last_ends], axis=1)
    numbers = xr.Variable(axis.name, axis.labels.astype(np.int32), numbered)
    return {axis.name: numbers, **_bounded_coords(axis.name, bounds, "climatology_bounds", attributes)}


def _bounded_coords(dimension: str, bounds: NDArray[np.int64], name: str, attributes: dict[str, str]) -> dict[str, Any]:
    """Return the times of a dimension, and their bounds."""
    # Use one unit, so that a file's times and their bounds can be compared.
    unit = _time_unit(bounds)
    return {
        "time": xr.Variable(dimension, bounds[:, 0].copy().view("datetime64[ns]"), attributes, unit),
        name: xr.Variable((dimension, "bounds"), bounds.view("datetime64[ns]"), None, unit),
    }


def _time_unit(instants_ns: NDArray[np.int64]) -> dict[str, str]:
    """Return the encoding of times: whole seconds if possible, else nanoseconds."""
    unit = "nanoseconds" if (instants_ns % SECOND_NS).any() else "seconds"
    return {"units": f"{unit} since 1970-01-01", "calendar": "standard", "dtype": "int64"}


def format_cell_methods(dimensions: Sequence[str], method: str, time: TimeAxis, remark: str = "") -> str:
    """Return the CF cell methods of an aggregate.

    Parameters
    ----------
    dimensions
        The dimensions that change.
    method
        CF name of the function.
    time
        Time cells of the aggregate.
    remark
        A further remark, in words.
    """
    if "zones" in dimensions:
        method = f"{method} where zone"
    over = " ".join("area:" if dimension == "zones" else f"{dimension}:" for dimension in dimensions)
    within = time.cycle.within if isinstance(time, Periodic) and "time" in dimensions else None
    cell_methods = (
        f"{over} {method}" if within is None else f"{over} {method} within {within} {over} {method} over {within}"
    )
    remarks = ", ".join(words for words in (describe_time_cells(dimensions, time), remark) if words)
    return f"{cell_methods} (comment: {remarks})" if remarks else cell_methods


def describe_time_cells(dimensions: Sequence[str], time: TimeAxis) -> str:
    """Describe the time cells of an aggregate; empty for instants or without time."""
    if "time" not in dimensions:
        return ""
    if isinstance(time, Periodic):
        return f"by {time.describe()}"
    if isinstance(time, Bins):
        return f"cells of {time.describe()}"
    return f"cells of {format_duration(round_length_ns(time.length))}" if isinstance(time, Regular) else ""


def round_length_ns(length_ns: int) -> int:
    """Round a length for display."""
    # Cells over all instants of an array end one nanosecond after the last instant.
    if length_ns % 1_000 == 1 and length_ns > 1_000:
        return length_ns - 1
    is_odd = length_ns % 1_000 and length_ns > 60 * SECOND_NS
    return round(length_ns / SECOND_NS) * SECOND_NS if is_odd else length_ns
