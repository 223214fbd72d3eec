"""Build steps that interpolate in time: station values at multiples of a step (thesis 5.5.3.3)."""

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.parameters import bind
from hypergrid.core.times import Window, format_duration, format_instant, parse_duration
from hypergrid.interpolation import method_in_time
from hypergrid.perspective.build.restrict import restrict
from hypergrid.perspective.build.timestamps import INSTANT_NS, describe_interval_values
from hypergrid.perspective.spec.query_spec import Step
from hypergrid.perspective.tree.operators import InterpolateInTime
from hypergrid.perspective.tree.perspective import Perspective
from hypergrid.topology import Bands, Bins, Periodic, Points, Regular, SeriesAxis, Topology


def interpolate_in_time(step: Step, node: Perspective, window: Window | None) -> Perspective:
    """Build the perspective of the instants.

    Instants are whole multiples of the step since midnight UTC, the first and last chosen as for the cells of an
    aggregate.

    Parameters
    ----------
    step
        An interpolation with `time`.
    node
        Station readings, or time cells of stations.
    window
        Window of wanted instants; readings around it are still used. None: all instants.

    Raises
    ------
    HyperGridError
        A source without instantaneous values, an unknown method, parameter or duration, or no maximum gap for series
        with an unknown interval.
    """
    space, time = node.topology.space, node.topology.time
    row = method_in_time(step.name)
    if not isinstance(space, SeriesAxis):
        kind = {Bands: "made of bands", Points: "at points"}.get(type(space), "a grid")
        raise InvalidQuery(f"its source is {kind}; interpolate in time first, station by station, and then in space")
    if isinstance(time, Periodic):
        raise InvalidQuery(
            f"its source has cells of {time.describe()}, which come again and again: there is no instant between them"
        )
    whole = describe_interval_values(node)
    if whole is not None:
        raise InvalidQuery(
            f"its source holds {whole}, which belong to intervals and have no value at an instant between them; "
            "use a mean or samples, or an aggregate over longer time cells"
        )
    length_ns = parse_duration(dict(step.cells)["time"])
    given = row.parse(bind(row.name, row.parameters, dict(step.params), variable_unit=node.unit))
    gap_ns: int | None = given["max_gap_ns"]
    if gap_ns is None and not node.holds_readings:
        if isinstance(time, Regular):
            gap_ns = row.gap_of(time.step)
        elif isinstance(time, Bins):
            # The largest spacing, so that consecutive cells never form a gap.
            gap_ns = row.gap_of(int(max(np.diff(time.starts).max(initial=0), time.lengths.max())))
    if gap_ns is None:
        _refuse_unknown(space)
    operator = InterpolateInTime(row.name, gap_ns)
    # Cells of one nanosecond, so that an hourly mean and an instant are never confused.
    instants = Regular("time", 0, length_ns, 1, INSTANT_NS).repeat_over(time.origin, time.stop)
    made = Perspective((node,), Topology(instants, space), operator, node.unit)
    return made if window is None else restrict(made, _find_inside(instants, window))


def _refuse_unknown(space: SeriesAxis) -> None:
    """Refuse series with an unknown interval: their maximum gap cannot be derived."""
    unknown = [series.station for series in space.series if not series.interval_s > 0]
    if unknown:
        names = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        raise InvalidQuery(
            f"the interval between readings of {len(unknown)} of {space.count} series is not known ({names}); say how "
            "long a gap may be filled, for example max_gap='1h'"
        )


def _find_inside(instants: Regular, window: Window) -> slice:
    first, stop = (-((instants.origin - edge) // instants.step) for edge in (window.start_ns, window.stop_ns))
    first, stop = max(first, 0), min(stop, instants.count)
    if first >= stop:
        raise InvalidQuery(
            f"none of the instants, one every {format_duration(instants.step)}, lies in "
            f"{format_instant(window.start_ns)} to {format_instant(window.stop_ns)}; choose a shorter step"
        )
    return slice(first, stop)
