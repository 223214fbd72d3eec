"""Which aggregates fit which values and cells: refused before anything runs, by what a function's row says."""

from hypergrid.errors import InvalidQuery
from hypergrid.perspective.aggregates import AggregateRow
from hypergrid.perspective.perspective import Perspective
from hypergrid.perspective.standing import are_instants
from hypergrid.topology import SeriesAxis


def check_aggregate(row: AggregateRow, dimensions: tuple[str, ...], here: Perspective) -> None:
    """Refuse an aggregate of values that it has no meaning for.

    Raises
    ------
    InvalidQuery
        Dimensions that the function cannot be taken over; a mean of maxima; a mean of directions; amounts of time over
        values that stand for none; a counter that is none.
    """
    _refuse_dimensions(row, dimensions)
    kinds = [] if row.of_extremes else sorted(here.extremes)
    if kinds:
        message = f"a {row.name} of {kinds[0]} values is not the {row.name} of the readings; select another statistic"
        raise InvalidQuery(message)
    if not row.of_directions:
        refuse_directions(f"a {row.name} of directions", here, instead="circular_mean, ")
    if row.lasting:
        _refuse_unknown_lengths(row, here)
    if row.prepare is not None:
        _refuse_totals(row, here)


def refuse_directions(what: str, here: Perspective, *, instead: str = "") -> None:
    """Refuse directions, where 350 and 10 degree are near: `what` says what was to be done, `instead` what may be."""
    if here.unit == "degree":
        message = (
            f"{what} has no meaning: 350 and 10 degree would give 180; "
            f"use {instead}sample, first or last, and look at single instants"
        )
        raise InvalidQuery(message)


def _refuse_dimensions(row: AggregateRow, dimensions: tuple[str, ...]) -> None:
    along = [name for name in dimensions if name != "time"]
    if row.over == "any" or ("time" in dimensions and (row.over == "with time" or not along)):
        return
    if row.rank is not None:
        message = f"{row.name} chooses a value in time; over {', '.join(along)} use mean, min, max, sum or count"
    elif row.over == "with time":
        message = f"{row.name} needs time; got {', '.join(along)} alone: add time='all', or another length"
    else:
        message = (
            f"{row.name} follows each place in time; got {', '.join(dimensions)}: take it over time, and then the mean "
            f"over {', '.join(along)}"
        )
    raise InvalidQuery(message)


def _refuse_unknown_lengths(row: AggregateRow, here: Perspective) -> None:
    space = here.topology.space
    if not here.holds_readings:
        if are_instants(here.topology.time):
            message = (
                f"{row.name} needs how long each value stands for, and instants stand for none; aggregate before it, "
                "for example aggregate('mean', time='1h')"
            )
            raise InvalidQuery(message)
        return
    held = space.series if isinstance(space, SeriesAxis) else ()
    unknown = [series.station for series in held if not series.interval_s > 0]
    if unknown:
        names = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        message = (
            f"{row.name} needs how long each reading stands for; the interval of {len(unknown)} of {len(held)} series "
            f"is not known ({names}); aggregate before it, for example aggregate('mean', time='1h')"
        )
        raise InvalidQuery(message)


def _refuse_totals(row: AggregateRow, here: Perspective) -> None:
    """Refuse totals as the readings of a counter: they are what it grew by already."""
    space = here.bases()[0].topology.space
    if isinstance(space, SeriesAxis) and any(series.statistic == "total" for series in space.series):
        message = (
            f"{row.name} needs the readings of an ever-growing counter; these series hold totals of their intervals: "
            "use sum, or select another statistic"
        )
        raise InvalidQuery(message)
