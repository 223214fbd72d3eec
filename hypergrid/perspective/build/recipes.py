"""Recipes: the recommended interpolation of each variable in a mountain network, as steps.

`interpolate("recipe", …)` expands into these steps, which `explain()` shows. The interpolated quantity is one that
varies smoothly in space: dew point instead of relative humidity, components instead of direction, share of the clear
sky instead of radiation. It is interpolated around a trend in elevation if cross-validation at the stations favours
one.

Parameters of the step: `by`, the method (ordinary_kriging); all parameters of the method (its variogram is fitted to
the stations by default); `parts`, parameters by part of the recipe, such as {"dew_point": {"variogram": …}}; `of`, the
variable whose recipe applies, for one with another name; and `turbidity` (solar_radiation).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.interpolation import METHODS
from hypergrid.perspective.build.data_sources import ARRAY
from hypergrid.perspective.functions.aggregates import AGGREGATES
from hypergrid.perspective.spec.query_spec import RECIPE, QuerySpec, Step, freeze_items

METHOD: Final = "ordinary_kriging"
LARGEST_INDEX: Final = 1.3
"""Largest clear-sky index; cloud edges do not exceed it over a reading (Gueymard 2017)."""


@dataclass(frozen=True)
class Recipe:
    """Interpolation recipe of one variable."""

    summary: str
    parts: tuple[str, ...]
    """Names of the interpolated quantities."""
    expand: "Callable[[_Ingredients], QuerySpec]"
    companion: str | None = None
    """Other variable required."""
    own: tuple[str, ...] = ()
    """Parameters of the recipe itself."""


@dataclass(frozen=True)
class _Ingredients:
    """Inputs of a recipe."""

    before: QuerySpec
    """Question up to the recipe step."""
    step: Step
    recipe: Recipe
    params: Mapping[str, Any]

    def interpolate(self, question: QuerySpec, part: str, **defaults: object) -> QuerySpec:
        """Add the interpolation of one part to a question."""
        given = {name: value for name, value in self.params.items() if name not in ("parts", "of", *self.recipe.own)}
        given.update((self.params.get("parts") or {}).get(part, {}))
        method = given.pop("by", METHOD)
        known = {parameter.name for parameter in METHODS[method].parameters}
        # External drift already models elevation.
        if "drift" not in known:
            given = {**defaults, **given}
        # A part drops a shared parameter by setting it to null.
        chosen = {name: value for name, value in given.items() if value is not None}
        return question.add_step(Step("interpolate", method, freeze_items(chosen), self.step.cells))

    @property
    def trend(self) -> str:
        """Trend in elevation; always a profile on levels, where estimates differ by their trend alone."""
        return "profile" if dict(self.step.cells).get("z") is not None else "auto"

    def own(self) -> tuple[tuple[str, Any], ...]:
        return freeze_items({name: self.params[name] for name in self.recipe.own if name in self.params})

    def companion(self) -> QuerySpec:
        """Return the question of the other variable, given or aligned like this one."""
        if self.step.others:
            return self.step.others[0]
        name = self.recipe.companion
        question = self.before
        if name is None or (question.snapshot or "").startswith(ARRAY):
            raise InvalidQuery(
                f"the recipe of {question.variable!r} also needs {name!r}: give its query as well, aligned alike, "
                f".interpolate('recipe', {name}, grid=…)"
            )
        low, high = PLAUSIBLE[name]
        clean = Step("convert", "valid_range", freeze_items({"low": low, "high": high}))
        # Converts of the first variable do not apply to the companion.
        aligned = tuple(_align_step(step, name) for step in question.steps if step.op == "aggregate" or step.is_in_time)
        # Other selected properties, such as heights, apply to the series of this variable only.
        select = tuple(pair for pair in question.select if pair[0] == "station")
        return replace(question, variable=name, steps=(clean, *aligned), select=select)


PLAUSIBLE: Final[Mapping[str, tuple[str, str]]] = {
    "air_temperature": ("-80 degC", "60 degC"),
    "wind_direction": ("0 degree", "360 degree"),
    "wind_speed": ("0 m s-1", "100 m s-1"),
}
"""Plausible ranges of companions; values outside are faults."""


def _align_step(step: Step, variable: str) -> Step:
    if variable != "wind_direction":
        return replace(step, name="mean") if step.name == "circular_mean" else step
    # A mean of directions is meaningless: sample the direction at one instant of the cell.
    if step.is_in_time:
        return replace(step, name="nearest")
    if not AGGREGATES[step.name].of_directions:
        return replace(step, name="sample", params=())
    return step


def _merge_questions(first: QuerySpec, function: str, second: QuerySpec) -> QuerySpec:
    return first.add_step(Step("merge", function, others=(second,)))


def _convert_question(question: QuerySpec, function: str, params: tuple[tuple[str, Any], ...] = ()) -> QuerySpec:
    return question.add_step(Step("convert", function, params))


def _cook_temperature(given: _Ingredients) -> QuerySpec:
    return given.interpolate(given.before, "temperature", trend=given.trend)


def _cook_humidity(given: _Ingredients) -> QuerySpec:
    temperature = given.companion()
    dew_point = _merge_questions(given.before, "dew_point", temperature)
    return _merge_questions(
        given.interpolate(dew_point, "dew_point", trend=given.trend),
        "relative_humidity",
        given.interpolate(temperature, "temperature", trend=given.trend),
    )


def _cook_not_negative(given: _Ingredients) -> QuerySpec:
    # Wind speed and rain are kriged directly. The length of kriged components and the square of a kriged root are too
    # low by what kriging smooths away (a quarter of the speed in light winds, a fifth of the rain).
    # The true value is never negative, so clamping to 0 always reduces the error.
    on_levels = {"trend": given.trend} if given.trend == "profile" else {}
    question = given.interpolate(given.before, given.recipe.parts[0], **on_levels)
    return _convert_question(question, "limit", freeze_items({"low": 0.0}))


def _cook_wind_direction(given: _Ingredients) -> QuerySpec:
    # Without a trend: separate trends in the components would turn the wind with height.
    speed, direction = given.companion(), given.before
    east, north = (_merge_questions(speed, function, direction) for function in ("eastward_wind", "northward_wind"))
    return _merge_questions(
        given.interpolate(east, "eastward"), "wind_direction", given.interpolate(north, "northward")
    )


def _cook_radiation(given: _Ingredients) -> QuerySpec:
    # Fog and stratus below an inversion, and valley horizons, depend on elevation.
    index = given.interpolate(
        _convert_question(given.before, "clear_sky_index", given.own()), "index", trend=given.trend
    )
    limited = _convert_question(index, "limit", freeze_items({"low": 0.0, "high": LARGEST_INDEX}))
    return _convert_question(limited, "from_clear_sky_index", given.own())


_TEMPERATURE = Recipe(
    "Around the trend in elevation that cross-validation favours, inversions included.",
    ("temperature",),
    _cook_temperature,
)
_RAIN = Recipe("The amount itself, 0 or more.", ("amount",), _cook_not_negative)

RECIPES: Final[Mapping[str, Recipe]] = {
    "air_temperature": _TEMPERATURE,
    "surface_temperature": _TEMPERATURE,
    "dew_point": _TEMPERATURE,
    "dew_point_temperature": _TEMPERATURE,
    "relative_humidity": Recipe(
        "From dew point and temperature, each around the trend that cross-validation favours.",
        ("dew_point", "temperature"),
        _cook_humidity,
        companion="air_temperature",
    ),
    "wind_speed": Recipe("The speed itself, 0 or more.", ("speed",), _cook_not_negative),
    "wind_direction": Recipe(
        "From the components towards east and north.", ("eastward", "northward"), _cook_wind_direction, "wind_speed"
    ),
    "solar_radiation": Recipe(
        "Share of the clear sky's irradiance, around a trend where cross-validation favours one, times that at the "
        "cell; 0 at night.",
        ("index",),
        _cook_radiation,
        own=("turbidity",),
    ),
    "rain": _RAIN,
    "rain_meter": _RAIN,
    "precipitation": _RAIN,
}


def expand_recipes(question: QuerySpec) -> QuerySpec:
    """Expand the recipes of a question into steps.

    A question without recipes is returned as it is.

    Raises
    ------
    NotFound
        No recipe for the variable, or an unknown part or method.
    InvalidQuery
        The recipe needs another query, which is missing.
    """
    steps = tuple(step.change_others(expand_recipes) for step in question.steps)
    for number, step in enumerate(steps):
        if step.op == "interpolate" and step.name == RECIPE:
            # `add_step` refuses a clipped question: the clip is restored after expansion.
            before = replace(question, steps=steps[:number], clip=(), variance=False, correlation_time=None)
            cooked = _cook_step(before, step)
            cooked = replace(cooked, steps=(*cooked.steps, *steps[number + 1 :]))
            return replace(
                cooked, clip=question.clip, variance=question.variance, correlation_time=question.correlation_time
            )
    return replace(question, steps=steps)


def _cook_step(before: QuerySpec, step: Step) -> QuerySpec:
    params = dict(step.params)
    name = params.get("of") or before.variable
    if name not in RECIPES:
        raise NotFound(f"{NotFound.among(kind='recipe of', given=name, existing=RECIPES)}; use a method by name")
    recipe = RECIPES[name]
    needed = 1 if recipe.companion else 0
    if len(step.others) > needed:
        raise InvalidQuery(f"the recipe of {name!r} takes {needed} other queries; got {len(step.others)}")
    parts = {} if params.get("parts") is None else params["parts"]
    if not isinstance(parts, Mapping) or not all(isinstance(each, Mapping) for each in parts.values()):
        raise InvalidQuery(
            f"'parts' of a recipe needs parameters by part, such as {{'{recipe.parts[0]}': {{…}}}}; got {parts!r}"
        )
    NotFound.refuse_unknown(f"part of the recipe of {name}", parts, recipe.parts)
    return recipe.expand(_Ingredients(before, step, recipe, params))
