"""Query specifications: frozen steps, equal by content, and their JSON form (design section 4)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import numpy as np

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT, MEANINGS
from hypergrid.core.times import format_instant, parse_instant
from hypergrid.interpolation import AUTO, Variogram, method_over
from hypergrid.perspective.functions.aggregates import AGGREGATES
from hypergrid.perspective.functions.rows import CONVERTS, MERGES

Operation = Literal["convert", "aggregate", "interpolate", "merge"]

DIMENSIONS = ("time", "lon", "lat", "x", "y", "z")
"""Dimensions that an aggregate may change and a clip may bound."""

CELL_KEYS = (*DIMENSIONS, "zones")
"""Keys of the new cells of an aggregate."""

GRID_KEYS = ("lon", "lat", "x", "y", "step", "shape", "z", "points")
"""Keys of the grid of an interpolation."""

RECIPE = "recipe"
"""Method name that selects the recipe of the variable in `recipes.py`."""

SELECTABLE = ("station", "height_m", "replicate", "statistic", "interval_s", "source")
"""Properties that distinguish series."""

MAX_STEPS = 100
"""Maximum number of steps, including those of merged queries."""

MAX_MERGE_DEPTH = 8
"""Maximum nesting depth of merged queries."""

_TABLES: dict[str, Mapping[str, object]] = {
    "convert": CONVERTS, "aggregate": AGGREGATES, "merge": MERGES,
}  # fmt: skip
_STEP_KEYS = {
    "convert": {"op", "function", "params"},
    "aggregate": {"op", "function", "params", *CELL_KEYS},
    "interpolate": {"op", "method", "grid", "time", "params", "with"},
    "merge": {"op", "function", "params", "with"},
}
_QUERY_KEYS = {"variable", "snapshot", "steps", "clip", "accept_flags", "select", "variance", "as_of"}


@dataclass(frozen=True)
class Step:
    """One operator as the user wrote it.

    Names are validated here, values when the query is resolved against its data.
    """

    op: Operation
    name: str
    """Function or method name."""
    params: tuple[tuple[str, Any], ...] = ()
    """Parameters sorted by name."""
    cells: tuple[tuple[str, Any], ...] = ()
    """JSON values: aggregate cells by dimension, an interpolation's grid by key, or its time step."""
    others: tuple["QuerySpec", ...] = ()
    """Other queries of a merge or of a recipe of two variables."""

    def __post_init__(self) -> None:
        if self.op == "interpolate" and self.name == RECIPE and not self.is_in_time:
            return
        if self.op == "interpolate":
            method_over("time" if self.is_in_time else "space", self.name)
        else:
            # Registries raise NotFound for an unknown name.
            _TABLES[self.op][self.name]

    @property
    def is_in_time(self) -> bool:
        return self.op == "interpolate" and [name for name, _ in self.cells] == ["time"]

    @property
    def is_automatic(self) -> bool:
        """Whether the method of an interpolation over space is chosen from the readings."""
        return self.op == "interpolate" and self.name == AUTO and not self.is_in_time

    def change_others(self, change: Callable[["QuerySpec"], "QuerySpec"]) -> "Step":
        return replace(self, others=tuple(map(change, self.others))) if self.others else self

    def to_json(self) -> dict[str, Any]:
        """Return the step as it stands in a query document."""
        key = "method" if self.op == "interpolate" else "function"
        document: dict[str, Any] = {"op": self.op, key: self.name}
        if self.op == "interpolate" and not self.is_in_time:
            document["grid"] = _to_plain(dict(self.cells))
        else:
            document.update({name: _to_plain(value) for name, value in self.cells})
        if self.params:
            document["params"] = {name: _to_plain(value) for name, value in self.params}
        if self.others:
            document["with"] = [other.to_json() for other in self.others]
        return document


@dataclass(frozen=True)
class QuerySpec:
    """A complete query as the user wrote it."""

    variable: str
    steps: tuple[Step, ...] = ()
    snapshot: str | None = None
    clip: tuple[tuple[str, tuple[Any, Any]], ...] = ()
    """Bounds by dimension: start and stop (exclusive)."""
    accept_flags: tuple[int, ...] = ACCEPTED_BY_DEFAULT
    select: tuple[tuple[str, Any], ...] = ()
    """Required series properties; default: statistics sample and mean."""
    variance: bool = False
    correlation_time: str | None = None
    """E-folding time of errors ("6h", "0s", "estimate") for the variance of a mean over time."""
    as_of: str | None = None
    """Instant by which readings must have arrived; None: no limit."""

    def __post_init__(self) -> None:
        if not self.accept_flags or not set(self.accept_flags) <= set(MEANINGS):
            raise InvalidQuery(f"accept_flags needs QARTOD flags (1, 2, 3, 4); got {list(self.accept_flags)}")
        if self.length > MAX_STEPS:
            raise InvalidQuery(
                f"a query takes up to {MAX_STEPS} steps, those of merged queries included; got {self.length}"
            )
        # Normalise, so that equivalent questions compare equal and share computed results.
        object.__setattr__(self, "accept_flags", tuple(sorted(set(self.accept_flags))))
        if self.as_of is not None:
            object.__setattr__(self, "as_of", format_instant(parse_instant(self.as_of)))
        object.__setattr__(self, "select", tuple((name, _normalize_choice(name, value)) for name, value in self.select))
        NotFound.refuse_unknown("property of a series to select by", (name for name, _ in self.select), SELECTABLE)
        NotFound.refuse_unknown("dimension to clip", (name for name, _ in self.clip), DIMENSIONS)

    @property
    def summary(self) -> str:
        """Variable and step names in one line."""
        steps = "".join(f" > {step.name}" for step in self.steps)
        return f"{self.variable}{steps}{', with variance' if self.variance else ''}"

    @property
    def is_automatic(self) -> bool:
        """Whether it, or a query merged into it, has an automatic interpolation."""
        return any(step.is_automatic or any(other.is_automatic for other in step.others) for step in self.steps)

    @property
    def length(self) -> int:
        """Number of steps, including those of merged queries."""
        return len(self.steps) + sum(other.length for step in self.steps for other in step.others)

    def add_step(self, step: Step) -> "QuerySpec":
        """Return the query with one more step; its clip is that of the surface, wherever it was written."""
        return replace(self, steps=(*self.steps, step))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form without defaults, except `snapshot`."""
        document: dict[str, Any] = {"variable": self.variable, "snapshot": self.snapshot}
        document["steps"] = [step.to_json() for step in self.steps]
        if self.clip:
            document["clip"] = {name: _to_plain(bounds) for name, bounds in self.clip}
        if self.accept_flags != ACCEPTED_BY_DEFAULT:
            document["accept_flags"] = list(self.accept_flags)
        if self.select:
            document["select"] = {name: _to_plain(value) for name, value in self.select}
        if self.variance:
            known = self.correlation_time is not None
            document["variance"] = {"correlation_time": self.correlation_time} if known else True
        if self.as_of is not None:
            document["as_of"] = self.as_of
        return document


def _normalize_choice(name: str, value: object) -> object:
    """Normalise a selected property: numbers to float, several values to a sorted tuple."""
    if isinstance(value, tuple | list) and value:
        single = (_normalize_choice(name, None if isinstance(item, tuple | list) else item) for item in value)
        # Choices may mix text, numbers and None, which compare only as text.
        return tuple(sorted(set(single), key=str))
    if value is None or isinstance(value, str):
        return value
    if name == "station" and isinstance(value, int | np.integer) and not isinstance(value, bool):
        # Ids are text, also those that look like numbers.
        return str(value)
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        # Larger than any height, interval or replicate number, and exactly convertible to float.
        if -1e15 < value < 1e15:
            return float(value)
    raise InvalidQuery(f"select needs text, a number or a list of them for {name!r}; got {value!r}")


def _to_plain(value: object) -> object:
    if isinstance(value, Variogram):
        return value.to_json()
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _to_plain(item) for name, item in value.items()}
    if isinstance(value, datetime | np.datetime64):
        return format_instant(parse_instant(value))
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True)
class _Reader:
    """Parser of JSON forms; `where` names the location in messages."""

    where: str = field(default="query")
    depth: int = 0
    """Nesting depth of merges around it."""

    def read_mapping(self, value: object, known: set[str], required: set[str]) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise InvalidQuery(f"{self.where} needs a JSON object; got {type(value).__name__}")
        NotFound.refuse_unknown(f"key of {self.where}", value, known)
        for key in sorted(required - set(value)):
            raise InvalidQuery(f"{self.where} needs the key {key!r}; got {sorted(map(str, value))}")
        return value

    def read_step(self, value: object) -> Step:
        op = value.get("op") if isinstance(value, Mapping) else None
        if not isinstance(op, str) or op not in _STEP_KEYS:
            raise NotFound.among(kind=f"operator of {self.where}", given=op, existing=_STEP_KEYS)
        key = "method" if op == "interpolate" else "function"
        required = {"op", key} | ({"with"} if op == "merge" else set())
        if op == "interpolate" and isinstance(value, Mapping) and "time" not in value:
            value = {"method": AUTO, **value}
        document = self.read_mapping(value, _STEP_KEYS[op], required)
        params = _Reader(f"params of {self.where}").read_any_mapping(document.get("params"))
        cells: Mapping[str, Any] = {name: document[name] for name in CELL_KEYS if name in document}
        if isinstance(cells.get("zones"), str):
            # Security: a query sent to a server must not read the server's files.
            raise InvalidQuery(
                f"{self.where} ({op}): zones are given as GeoJSON itself; a file can be named by hg.zones and in a "
                'query file only, there as {"file": "catchments.geojson"}, beside the query file'
            )
        if op == "interpolate":
            grid = document.get("grid")
            known = None if grid is None else _Reader(f"grid of {self.where}").read_any_mapping(grid)
            cells = choose_interpolation_cells(known, document.get("time"))
        others = tuple(
            _read_question(other, f"query {number} in 'with' of {self.where}", self.depth + 1)
            for number, other in enumerate(_require_list(document.get("with", []), self.where))
        )
        try:
            return Step(op, document[key], freeze_items(params), freeze_items(cells), others)  # type: ignore[arg-type]
        except NotFound as error:
            raise NotFound(f"{self.where} ({op}): {error}") from error

    def read_any_mapping(self, value: object) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping) or any(not isinstance(key, str) for key in value):
            raise InvalidQuery(f"{self.where} needs a JSON object; got {value!r}")
        return value


def freeze_items(mapping: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return a mapping as hashable pairs sorted by name, with lists as tuples."""
    return tuple(sorted((key, _freeze(value)) for key, value in mapping.items()))


def choose_interpolation_cells(grid: Mapping[str, Any] | None, time: object) -> Mapping[str, Any]:
    """Return the cells of an interpolation: a grid by key, or a time step.

    Raises
    ------
    InvalidQuery, NotFound
        Neither, both, or a grid with the key "time".
    """
    if (grid is None) == (time is None):
        problem = "neither" if grid is None else "both"
        raise InvalidQuery(f"interpolate needs a grid (over space), or time such as '10min' (over time); got {problem}")
    if grid is None:
        return {"time": time}
    if "time" in grid:
        raise NotFound.among(kind="key of a grid", given="time", existing=GRID_KEYS)
    return grid


def _freeze(value: object) -> object:
    return tuple(_freeze(item) for item in value) if isinstance(value, list | tuple) else value


def _require_list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise InvalidQuery(f"{where} needs a list; got {type(value).__name__}")
    return list(value)


def question_from_json(document: object) -> QuerySpec:
    """Parse a query from its JSON form.

    Raises
    ------
    InvalidQuery, NotFound
        An unknown or missing key, operator, function or method; the message names the location.
    """
    return _read_question(document, "query", 0)


def _read_question(document: object, where: str, depth: int) -> QuerySpec:
    if depth > MAX_MERGE_DEPTH:
        raise InvalidQuery(f"queries can be merged into queries {MAX_MERGE_DEPTH} deep; this one goes deeper")
    given = _Reader(where).read_mapping(document, _QUERY_KEYS, {"variable"})
    if not isinstance(given["variable"], str):
        raise InvalidQuery(f"{where} needs the name of a variable; got {given['variable']!r}")
    snapshot = given.get("snapshot")
    if snapshot is not None and (not isinstance(snapshot, str) or not snapshot):
        raise InvalidQuery(f"{where} needs the id of a snapshot, or null; got {snapshot!r}")
    steps = tuple(
        _Reader(f"step {number} of {where}", depth).read_step(step)
        for number, step in enumerate(_require_list(given.get("steps", []), f"'steps' of {where}"), start=1)
    )
    clip = _Reader(f"clip of {where}").read_any_mapping(given.get("clip"))
    for name, bounds in clip.items():
        if len(_require_list(bounds, f"clip of {name!r} of {where}")) != 2:
            raise InvalidQuery(f"clip of {name!r} of {where} needs a start and a stop; got {bounds!r}")
    flags = _require_list(given.get("accept_flags", ACCEPTED_BY_DEFAULT), f"'accept_flags' of {where}")
    if any(not isinstance(flag, int) or isinstance(flag, bool) for flag in flags):
        raise InvalidQuery(f"'accept_flags' of {where} needs QARTOD flags, whole numbers; got {flags!r}")
    select = _Reader(f"select of {where}").read_any_mapping(given.get("select"))
    variance, memory = _read_variance(given.get("variance", False), where)
    as_of = given.get("as_of")
    if as_of is not None and not isinstance(as_of, str):
        raise InvalidQuery(f"{where} needs 'as_of' as an instant such as '2007-10-01T06:00Z', or null; got {as_of!r}")
    return QuerySpec(
        given["variable"], steps, snapshot, tuple((k, tuple(v)) for k, v in clip.items()), tuple(flags),
        freeze_items(select), variance, memory, as_of,
    )  # fmt: skip


def _read_variance(value: object, where: str) -> tuple[bool, str | None]:
    if isinstance(value, bool):
        return value, None
    memory = (
        value.get("correlation_time") if isinstance(value, Mapping) and set(value) == {"correlation_time"} else None
    )
    if not isinstance(memory, str):
        raise InvalidQuery(f"'variance' of {where} needs true, false, or {{'correlation_time': '6h'}}; got {value!r}")
    return True, memory
