"""Aggregates as rows: reductions of the values of a cell, with properties for executors.

Executors know no function by name; they dispatch on the fields of a row:

* `parts`: accumulators folded by ufuncs, which serve as both step and merge (sum, mean, min, a mean direction);
* `step` and `merge`: accumulators computed from all values of a cell at once and merged by a formula (variance, trend);
* `whole`: one value from all values of a cell, not mergeable (quantiles);
* `rank`: position in time of the reading to take (first, last, sample).

Rows with accumulators end with `finish`. Rows with `parts`, or with `step` and `merge`, are decomposable: parts of a
cell can be folded separately, over time and over space, and then merged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, InvalidUnit
from hypergrid.core.parameters import Parameter
from hypergrid.core.registry import Registry
from hypergrid.core.times import DAY_NS, format_duration, parse_duration
from hypergrid.core.units import DIMENSIONLESS_TEXT, convert, counter_fault, difference_of
from hypergrid.perspective.functions import aggregate_formulas as formulas
from hypergrid.perspective.functions.aggregate_formulas import Counts, Floats, Given, Listing, RaggedCells, States
from hypergrid.physics.counters import Increments, increments, span_ns

Hashes = NDArray[np.uint64]

MIN_GAP_NS: Final = DAY_NS // 24
GAP_INTERVALS: Final = 3
"""Default maximum gap of a counter in intervals, at least `MIN_GAP_NS`: two missing readings."""


@dataclass(frozen=True)
class FoldedNumber:
    """One accumulator of a fold over the values of a cell."""

    fold: np.ufunc
    """Ufunc that folds two accumulators; both step and merge."""
    empty: float
    """Accumulator of an empty cell: the identity of the fold."""
    lift: Callable[[Floats, Floats | None, Given], Floats] | None = None
    """Maps values, durations [day] and parameters to accumulators; None: identity.

    Durations broadcast, and are None if unknown; NaN marks missing values.
    """


@dataclass(frozen=True)
class AggregateRow:
    """Reduction of the values of a cell to one."""

    name: str
    summary: str
    min_coverage: float = 0.0
    """Default share of possible readings below which the result is missing."""
    parameters: tuple[Parameter, ...] = ()
    parts: tuple[FoldedNumber, ...] = ()
    """Accumulators folded by ufuncs."""
    step: Callable[[RaggedCells, Given], States] | None = None
    """Computes accumulators from the values of cells; finite also for empty cells."""
    merge: Callable[[States, Counts, Listing], States] | None = None
    """Merges accumulators of cell parts, listed cell by cell, and their counts."""
    finish: Callable[[States, Counts, Given], Floats] | None = None
    """Computes values from accumulators and counts; counts may be 0."""
    whole: Callable[[RaggedCells, Given], Floats] | None = None
    """Computes one value per cell from all its values, NaN if empty."""
    rank: Callable[[Hashes, Counts], Counts] | None = None
    """For a choosing row: maps the hash and count (above 0) of a cell to the time rank of the reading."""
    prepare: Callable[[Floats, Counts, NDArray[Any], Given], Increments] | None = None
    """Computes the values to aggregate from non-missing values, their times [ns] and groups.

    A group is a series or a cell of space; values are in time order within each. NaN results are missing.
    """
    settle: Callable[[Given, int], Mapping[str, Any]] | None = None
    """Fills in defaults from the parameters and the spacing of values [ns] (0 if unknown)."""
    reach_ns: Callable[[Given], int] | None = None
    """How far before and after a cell values can affect it [ns]; None: not at all."""
    linear: bool = False
    """Whether it is linear in the values and thus commutes with an interpolation."""
    of_extremes: bool = True
    """Whether it is meaningful for values that are maxima or minima."""
    of_directions: bool = True
    """Whether it is meaningful for directions, where 350 and 10 degree are near."""
    of_counters: bool = True
    """Whether it is meaningful for the readings of an ever-growing counter."""
    of_instants: bool = True
    """Whether its result can stand for an instant in the cell, unlike an amount or a spread."""
    timed: bool = False
    """Whether it uses the timestamps of values."""
    lasting: bool = False
    """Whether it uses the duration of each value."""
    idempotent: bool = False
    """Whether repeated values leave the result unchanged."""
    weigh: Literal["area", "share"] | None = None
    """Weights of cells over space, for a row of sums.

    The true area inside the new cell, or the share of the cell inside it; None: all member cells count equally.
    """
    over: Literal["any", "with time", "time"] = "any"
    """Supported dimensions: any, time and optionally others, or time alone."""
    unit: Callable[[str, Mapping[str, Any]], str] = lambda unit, _: unit
    """Unit of the result from the source unit and the parameters.

    Raises InvalidUnit or InvalidQuery if they do not fit.
    """
    cell_method: str = ""
    """CF cell method; empty if CF has none."""
    long_name: str = ""
    """Display name if the result is a different quantity.

    `{0}` is the source's name, a parameter name in braces its value with unit.
    """
    standard_name: str | None = None
    """CF standard name of the quantity in `long_name`."""

    @property
    def decomposable(self) -> bool:
        """Whether parts of a cell can be folded separately and merged."""
        return bool(self.parts) or self.merge is not None

    @property
    def tiles(self) -> bool:
        """Whether overlapping readings are reduced to those that tile a cell."""
        # A function that looks back needs all readings.
        return self.prepare is None

    @property
    def repeatable(self) -> bool:
        """Whether it accepts overlapping readings because repeated values are not added up."""
        return self.idempotent or self.rank is not None


AGGREGATES: Registry[AggregateRow] = Registry("aggregate function")


def _add_aggregate(name: str, summary: str, **row: Any) -> None:  # noqa: ANN401 - the fields of a row
    AGGREGATES.add(name, AggregateRow(name, summary, **row))


def _mean(states: States, count: Counts, _given: Given) -> Floats:
    with np.errstate(invalid="ignore"):
        return states[0] / np.where(count > 0, count, np.nan)


def _share(states: States, count: Counts, given: Given) -> Floats:
    # Weights add up to the count only up to rounding.
    return np.minimum(_mean(states, count, given), 1.0)


def _where_any(states: States, count: Counts, _given: Given) -> Floats:
    # The identity of a fold is not a value: a sum of nothing is missing, not 0.
    return np.where(count > 0, states[0], np.nan)


_SUM = FoldedNumber(np.add, 0.0)
_AMOUNT = {"linear": True, "of_extremes": False, "of_directions": False, "of_counters": False}

_add_aggregate(
    "mean",
    "Arithmetic mean.",
    min_coverage=0.8,
    parts=(_SUM,),
    finish=_mean,
    weigh="area",
    cell_method="mean",
    **_AMOUNT,
)
_add_aggregate(
    "sum",
    "Sum; one of temperatures in degC is of what they lie above 0 degC, in K.",
    min_coverage=1.0,
    parts=(_SUM,),
    finish=_where_any,
    weigh="share",
    of_instants=False,
    unit=lambda unit, _: difference_of(unit),
    cell_method="sum",
    **_AMOUNT,
)
_add_aggregate(
    "min",
    "Smallest value.",
    parts=(FoldedNumber(np.minimum, np.inf),),
    finish=_where_any,
    idempotent=True,
    of_directions=False,
    of_instants=False,
    cell_method="minimum",
)
_add_aggregate(
    "max",
    "Largest value.",
    parts=(FoldedNumber(np.maximum, -np.inf),),
    finish=_where_any,
    idempotent=True,
    of_directions=False,
    of_instants=False,
    cell_method="maximum",
)
_add_aggregate(
    "count",
    "Number of values.",
    parts=(_SUM,),
    finish=lambda _states, count, _given: count.astype(np.float64),
    of_instants=False,
    unit=lambda _unit, _given: "1",
    cell_method="sum",
    long_name="number of values of {0}",
)

_CHOSEN = {"over": "time", "cell_method": "point"}
_add_aggregate("first", "Earliest value.", rank=lambda _, count: np.zeros_like(count), **_CHOSEN)
_add_aggregate("last", "Latest value.", rank=lambda _, count: count - 1, **_CHOSEN)
_add_aggregate(
    "sample",
    "One value that a hash of the cell picks: the same every time.",
    rank=lambda hashes, count: (hashes % count.astype(np.uint64)).astype(np.int64),
    **_CHOSEN,
)

_SPREAD = {
    "min_coverage": 0.8, "step": formulas.find_spread, "merge": formulas.merge_spread, "of_extremes": False,
    "of_directions": False, "of_counters": False, "of_instants": False,
}  # fmt: skip
_add_aggregate(
    "variance",
    "Sample variance (over n - 1); missing below two values.",
    finish=formulas.variance,
    unit=lambda unit, _: formulas.squared_unit(unit),
    cell_method="variance",
    long_name="variance of {0}",
    **_SPREAD,
)
_add_aggregate(
    "standard_deviation",
    "Sample standard deviation (over n - 1); missing below two values.",
    finish=formulas.standard_deviation,
    unit=lambda unit, _: difference_of(unit),
    cell_method="standard_deviation",
    long_name="standard deviation of {0}",
    **_SPREAD,
)


def _quantile_unit(unit: str, given: Given) -> str:
    if not 0 <= given["q"] <= 1:
        raise InvalidQuery(
            f"quantile needs a share 'q' from 0 to 1 (0.9: nine of ten values lie below); got {given['q']:g}"
        )
    return unit


_RANKED = {"min_coverage": 0.8, "of_extremes": False, "of_directions": False, "of_counters": False}
_add_aggregate(
    "median",
    "The value in the middle, or the mean of the two.",
    whole=formulas.median,
    cell_method="median",
    **_RANKED,
)
_add_aggregate(
    "quantile",
    "The value below which a share q of the values lies, interpolated linearly between them.",
    parameters=(Parameter("q", "number", "share of the values, 0 to 1", unit="1"),),
    whole=formulas.quantile,
    unit=_quantile_unit,
    of_instants=False,
    long_name="{q} quantile of {0}",
    **_RANKED,
)


def _direction_unit(unit: str, _given: Given) -> str:
    if unit != "degree":
        raise InvalidUnit(
            f"circular_mean needs directions in 'degree'; got values in {unit!r}; use mean, or scale(…, unit=…)"
        )
    return unit


_add_aggregate(
    "circular_mean",
    "Mean direction by unit vectors; missing where they cancel. A mean wind is that of its components: merge "
    "eastward_wind and northward_wind, take the mean of each, and merge wind_direction or wind_speed.",
    min_coverage=0.8,
    parts=(FoldedNumber(np.add, 0.0, formulas.eastward), FoldedNumber(np.add, 0.0, formulas.northward)),
    finish=formulas.direction,
    of_extremes=False,
    unit=_direction_unit,
    cell_method="mean",
)


def _check_choice(function: str, name: str, given: Given, choices: tuple[str, ...]) -> None:
    if given[name] not in choices:
        raise InvalidQuery(f"{name!r} of {function} needs one of {', '.join(map(repr, choices))}; got {given[name]!r}")


def _share_unit(_unit: str, given: Given) -> str:
    _check_choice("exceedance", "side", given, ("above", "below"))
    return "1"


_add_aggregate(
    "exceedance",
    "Share of the values that lie above, or below, a threshold; one that equals it does not.",
    min_coverage=0.8,
    parameters=(
        Parameter("threshold", "number", "what values are compared with", unit="variable"),
        Parameter("side", "text", "'above' or 'below'", required=False, default="above"),
    ),
    parts=(FoldedNumber(np.add, 0.0, formulas.exceeds),),
    finish=_share,
    of_instants=False,
    weigh="area",
    unit=_share_unit,
    cell_method="mean",
    long_name="share of {0} {side} {threshold}",
)


def _degree_days_unit(unit: str, given: Given) -> str:
    try:
        if unit in DIMENSIONLESS_TEXT:
            raise InvalidUnit(unit)
        convert(0.0, unit, "degC")
    except InvalidUnit as error:
        raise InvalidUnit(f"degree_days needs temperatures, for example in 'degC'; got values in {unit!r}") from error
    upper = given["upper"]
    if upper is not None and upper <= given["base"]:
        raise InvalidQuery(f"degree_days needs 'upper' above 'base'; got {upper:g} and {given['base']:g} {unit}")
    difference = difference_of(unit)
    # A difference of degC is K.
    return "K day" if float(convert(1.0, difference, "K")) == 1.0 else f"{difference} day"


_add_aggregate(
    "degree_days",
    "How far values lie above a base (up to an upper limit), times the time that each stands for, summed.",
    min_coverage=1.0,
    parameters=(
        Parameter("base", "number", "temperature from which it counts", unit="variable"),
        Parameter("upper", "number", "temperature beyond which no more is counted", unit="variable", required=False),
    ),
    parts=(FoldedNumber(np.add, 0.0, formulas.degree_days),),
    finish=_where_any,
    of_extremes=False,
    of_directions=False,
    of_instants=False,
    lasting=True,
    over="time",
    unit=_degree_days_unit,
    cell_method="sum",
    long_name="degree days of {0} above {base}",
)


def _trend_unit(unit: str, given: Given) -> str:
    _check_choice("trend", "per", given, tuple(formulas.DAYS_IN))
    return formulas.rate_unit(unit, given["per"])


_add_aggregate(
    "trend",
    "Least-squares slope of the values on their time; missing below three values.",
    min_coverage=0.8,
    parameters=(
        Parameter(
            "per", "text", "'day', 'year' (of 365.25 days) or 'decade'", required=False, default="day"
        ),
    ),
    step=formulas.find_trend,
    merge=formulas.merge_trend,
    finish=formulas.slope,
    of_directions=False,
    of_instants=False,
    timed=True,
    over="with time",
    unit=_trend_unit,
    long_name="trend of {0} per {per}",
)  # fmt: skip


def _gap_ns(given: Given) -> int:
    return parse_duration(given["max_gap"])


def _counter_reach_ns(given: Given) -> int:
    # An increment may need the far end of the window around its reading, and as much around that.
    return 2 * span_ns(_gap_ns(given))


def _counter_unit(unit: str, given: Given) -> str:
    if given["max_gap"] is not None:
        _gap_ns(given)
    fault = counter_fault(given["resolution"], given["rollover"])
    if fault:
        raise InvalidQuery(fault)
    return unit


def _count_growth(values: Floats, at_ns: Counts, group: NDArray[Any], given: Given) -> Increments:
    declared = {"resolution": given.get("resolution"), "rollover": given.get("rollover")}
    return increments(values, at_ns, group, _gap_ns(given), **declared)


def _add_max_gap(given: Given, interval_ns: int) -> Mapping[str, Any]:
    if given["max_gap"] is not None:
        return given
    return {**given, "max_gap": format_duration(max(MIN_GAP_NS, GAP_INTERVALS * interval_ns))}


_add_aggregate(
    "rain_accumulation",
    "What an ever-growing counter grew by: the sum of the increments between readings. A fall to near zero is a reset, "
    "one at the rollover a rollover, a large lasting one an emptying; smaller ones are noise or evaporation, balanced "
    "with what rises within a day. An increment belongs to the cell of its later reading; none is known over a gap "
    "longer than max_gap, where absent three intervals of the slowest series, at least 1h.",
    min_coverage=0.8,
    parameters=(
        Parameter(
            "max_gap", "text", "longest time between two readings that is bridged", required=False
        ),
        Parameter(
            "resolution", "number", "step of the counter; absent: as declared, or the smallest change around",
            unit="variable", required=False,
        ),
        Parameter(
            "rollover", "number", "content at which it starts again from zero; absent: as declared, or none",
            unit="variable", required=False,
        ),
    ),
    parts=(_SUM,),
    finish=_where_any,
    prepare=_count_growth,
    settle=_add_max_gap,
    reach_ns=_counter_reach_ns,
    of_extremes=False,
    of_directions=False,
    of_instants=False,
    over="time",
    unit=_counter_unit,
    cell_method="sum",
    long_name="growth of {0}",
)  # fmt: skip
