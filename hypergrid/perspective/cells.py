"""Cell specifications of aggregates ("10min", {"length": …, "step": …}, "all") to axes."""

from collections.abc import Mapping

from hypergrid.errors import InvalidQuery
from hypergrid.times import Window, parse_duration
from hypergrid.topology import Instants, Regular, TimeAxis, aligned, is_location_consistent, quanta


def time_cells(spec: object, source: TimeAxis, whole: Window, *, exact: bool) -> Regular:
    """Return the time cells of an aggregate.

    Parameters
    ----------
    spec
        A duration, `{"length": …, "step": …}` (sliding windows), or "all".
    source
        The source's time axis.
    whole
        What "all" means.
    exact
        Whether the source is readings with their exact times, which no cell can cut.

    Raises
    ------
    InvalidQuery, InvalidTime
        A specification that makes no cells, or cells that cut the source's.
    """
    if spec == "all":
        target = _one(whole.start_ns, whole.stop_ns)
        whole_cells = exact or isinstance(source, Instants) or is_location_consistent(source, target)
        return target if whole_cells else _one(*_widened(source, whole))
    step, length = _step_and_length(spec)
    target = aligned("time", source.origin, source.stop, step=step, length=length, quantum="ns")
    if not exact:
        _refuse_cut(spec, source, target)
    return target


def _one(start: int, stop: int) -> Regular:
    return Regular("time", start, stop - start, 1, stop - start)


def _widened(source: TimeAxis, whole: Window) -> tuple[int, int]:
    """Return the least range around a window that cuts no source cell: those at its edge are partial, and say so."""
    if isinstance(source, Instants):
        return whole.start_ns, whole.stop_ns
    start = source.origin + (whole.start_ns - source.origin) // source.step * source.step
    steps = max(-(-(whole.stop_ns - start - source.length) // source.step), 0)
    return start, start + steps * source.step + source.length


def _step_and_length(spec: object) -> tuple[int, int]:
    if isinstance(spec, Mapping):
        if set(spec) == {"length", "step"}:
            return parse_duration(spec["step"]), parse_duration(spec["length"])
        message = f"sliding time cells need exactly 'length' and 'step'; got {sorted(map(str, spec))}"
        raise InvalidQuery(message)
    if not isinstance(spec, str):
        message = f"time cells need a duration such as '10min', {{'length': …, 'step': …}} or 'all'; got {spec!r}"
        raise InvalidQuery(message)
    length = parse_duration(spec)
    return length, length


def _refuse_cut(spec: object, source: TimeAxis, target: Regular) -> None:
    if not isinstance(source, Instants) and not is_location_consistent(source, target):
        message = (
            f"time cells of {spec!r} would cut the source's cells (step {source.step / 1e9:g} s, length "
            f"{source.length / 1e9:g} s); choose multiples of the source's step"
        )
        raise InvalidQuery(message)


def space_cells(name: str, spec: object, source: Regular) -> Regular:
    """Return the cells of an aggregate along lon, lat, x or y: a length, or "all".

    Raises
    ------
    InvalidQuery
        A length that makes no cells, or cells that cut the source's.
    """
    if spec == "all":
        length = source.stop - source.origin
        return Regular(name, source.origin, length, 1, length, source.quantum)
    step = quanta(spec, source.quantum, f"cells of {name}")
    if step <= 0:
        message = f"cells of {name!r} need a length above zero; got {spec!r}"
        raise InvalidQuery(message)
    target = aligned(name, source.origin, source.stop, step=step, length=step, quantum=source.quantum)
    if not is_location_consistent(source, target):
        message = (
            f"cells of {spec!r} along {name!r} would cut the grid's cells; choose a multiple that starts where they do"
        )
        raise InvalidQuery(message)
    return target
