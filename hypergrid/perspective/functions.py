"""Data functions as rows: name, parameters, and what the engine may assume of each.

An executor knows no function by name; it loops over what a row gives. A reduction row folds the values of a cell
with ufuncs (`parts`, merged by the same ufunc, then `finish`); a choosing row names the rank of the reading taken.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.parameters import Parameter
from hypergrid.registry import Registry
from hypergrid.units import convert

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Where:
    """Where and when the values of a block are: time cells by places."""

    start_ns: NDArray[np.int64]
    """Starts of the time cells (UTC) [ns since 1970], shape (time cells,)."""
    length_ns: int
    """Length of the time cells; 0 for instants."""
    lon: Floats
    """Longitude of the places [degree], shape (places,)."""
    lat: Floats
    """Latitude of the places [degree], shape (places,)."""
    elevation_m: Floats
    """Elevation of the places [m], shape (places,); no NaN."""


@dataclass(frozen=True)
class ConvertRow:
    """An element-wise function of values; NaN out means missing."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    apply: Callable[..., Floats]
    """Values and parameters by name to values; a third argument, a `Where`, for a row that is `placed`."""
    unit: Callable[[str, Mapping[str, Any]], str]
    """Unit of the result from the source's unit and the parameters; raises InvalidUnit where they do not fit."""
    placed: bool = False
    """Whether it depends on where and when the values are."""


@dataclass(frozen=True)
class Part:
    """One number kept while folding the values of a cell."""

    fold: np.ufunc
    """Step and merge in one: folds two such numbers."""
    empty: float
    """What a cell without values holds; the fold's identity."""


@dataclass(frozen=True)
class AggregateRow:
    """One value for the values of a cell."""

    name: str
    summary: str
    min_coverage: float
    """Share of the possible readings below which the result is missing, unless the query says otherwise."""
    part: Part | None
    """How to fold; None for a row that chooses."""
    finish: Callable[[Floats, NDArray[np.int64]], Floats] | None
    """Folded numbers and counts to values; counts may be 0."""
    rank: Callable[[NDArray[np.uint64], NDArray[np.int64]], NDArray[np.int64]] | None
    """For a row that chooses: hash of the cell and its count (above 0) to the rank of the reading in time."""
    linear: bool
    """Whether it is a linear map of the values, so that it commutes with an interpolation."""
    weigh: Literal["area", "share"] | None = field(default=None, kw_only=True)
    """How it weighs cells over space: by their true area inside the new cell, or by the share of each that is inside;
    None: each cell that belongs to the new one counts alike."""
    of_extremes: bool
    """Whether it makes sense over values that are themselves maxima or minima."""
    unit: Callable[[str], str] = lambda unit: unit


@dataclass(frozen=True)
class MergeRow:
    """One value from the values of several sources in the same cell."""

    name: str
    summary: str
    apply: Callable[[Floats, Floats], Floats]
    unit: Callable[[str, str], str]
    """Unit of the result; raises InvalidUnit where the two do not go together."""
    alike: bool
    """Whether the second source is converted to the first one's unit."""
    takes: tuple[str, str] | None = None
    """Units that the two sources are converted to, for a formula of two different variables."""
    matched: bool = False
    """Whether sources with different stations are merged on the stations that both have."""
    counts_first: bool = False
    """Whether the first source alone says how many values are behind a result; else the lesser of the two."""


CONVERTS: Registry[ConvertRow] = Registry("convert function")
AGGREGATES: Registry[AggregateRow] = Registry("aggregate function")
MERGES: Registry[MergeRow] = Registry("merge function")

CONVERTS.add(
    "valid_range",
    ConvertRow(
        "valid_range",
        "Values outside low to high become missing.",
        (
            Parameter("low", "number", "lowest valid value", unit="variable"),
            Parameter("high", "number", "highest valid value", unit="variable"),
        ),
        lambda values, given: np.where((values >= given["low"]) & (values <= given["high"]), values, np.nan),
        lambda unit, _: unit,
    ),
)
CONVERTS.add(
    "scale",
    ConvertRow(
        "scale",
        "The value times a factor, plus an offset.",
        (
            Parameter("factor", "number", "multiplies the value"),
            Parameter("offset", "number", "is added afterwards", required=False, default=0.0),
            Parameter("unit", "unit", "unit of the result; the source's where absent", required=False),
        ),
        lambda values, given: values * given["factor"] + given["offset"],
        lambda unit, given: given["unit"] or unit,
    ),
)


def _mean(folded: Floats, count: NDArray[np.int64]) -> Floats:
    with np.errstate(invalid="ignore"):
        return folded / np.where(count > 0, count, np.nan)


def _where_any(folded: Floats, count: NDArray[np.int64]) -> Floats:
    return np.where(count > 0, folded, np.nan)


_SUM = Part(np.add, 0.0)


def _reduction(name: str, summary: str, **row: object) -> None:
    defaults: dict[str, Any] = {
        "min_coverage": 0.0, "part": _SUM, "rank": None, "finish": _where_any, "linear": False,
        "of_extremes": True,
    }  # fmt: skip
    AGGREGATES.add(name, AggregateRow(name, summary, **{**defaults, **row}))


_reduction("mean", "Arithmetic mean.", min_coverage=0.8, finish=_mean, linear=True, of_extremes=False, weigh="area")
_reduction("sum", "Sum.", min_coverage=1.0, linear=True, of_extremes=False, weigh="share")
_reduction("min", "Smallest value.", part=Part(np.minimum, np.inf))
_reduction("max", "Largest value.", part=Part(np.maximum, -np.inf))
_reduction(
    "count", "Number of values.", finish=lambda _, count: count.astype(np.float64), unit=lambda _: "1"
)  # fmt: skip


def _choice(
    name: str, summary: str, rank: Callable[[NDArray[np.uint64], NDArray[np.int64]], NDArray[np.int64]]
) -> None:
    AGGREGATES.add(
        name,
        AggregateRow(
            name, summary, min_coverage=0.0, part=None, finish=None, rank=rank, linear=False,
            of_extremes=True,
        ),
    )  # fmt: skip


_choice("first", "Earliest value.", lambda _, count: np.zeros_like(count))
_choice("last", "Latest value.", lambda _, count: count - 1)
_choice(
    "sample",
    "One value that a hash of the cell picks: the same every time.",
    lambda hashes, count: (hashes % count.astype(np.uint64)).astype(np.int64),
)


def _same_unit(first: str, second: str) -> str:
    convert(0.0, second, first)
    return first


def _difference_unit(first: str, second: str) -> str:
    # A difference of temperatures is not a temperature: 20 degC less 19 degC is 1 K, not 1 degC.
    return {"degC": "delta_degC", "degF": "delta_degF"}.get(_same_unit(first, second), first)


def _ratio_unit(first: str, second: str) -> str:
    return "1" if first == second else f"{first} ({second})-1"


def _ratio(first: Floats, second: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = first / second
    return np.where(np.isfinite(quotient), quotient, np.nan)


MERGES.add(
    "difference",
    MergeRow("difference", "The first source less the second.", np.subtract, _difference_unit, alike=True),
)
MERGES.add(
    "ratio",
    MergeRow(
        "ratio",
        "The first source over the second; missing where the second is 0.",
        _ratio,
        _ratio_unit,
        alike=False,
    ),  # fmt: skip
)
