"""Parameters of functions and methods, validated before a query runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.units import check_unit, parse_number

Kind = Literal["number", "count", "unit", "text", "names", "variogram", "trend"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function or a method."""

    token_name: ClassVar[str] = "Parameter"

    name: str
    kind: Kind
    summary: str
    """One sentence for the user."""
    unit: str = ""
    """Unit of a number; "variable" means the unit of the source's values."""
    required: bool = True
    default: float | int | str | tuple[str, ...] | None = None
    """Used if the parameter is not given."""


def bind(
    label: str, parameters: tuple[Parameter, ...], given: Mapping[str, object], *, variable_unit: str
) -> dict[str, Any]:
    """Return the validated parameters of a call, in their declared units, with defaults filled in.

    Raises
    ------
    NotFound
        An unknown parameter name.
    InvalidQuery, InvalidUnit
        A missing parameter, or an invalid value.
    """
    known = {parameter.name: parameter for parameter in parameters}
    NotFound.refuse_unknown(f"parameter of {label}", given, known)
    bound = {}
    for parameter in parameters:
        if given.get(parameter.name) is not None:
            bound[parameter.name] = _parse(label, parameter, given[parameter.name], variable_unit)
        elif parameter.required:
            raise InvalidQuery(f"{label} needs the parameter {parameter.name!r} ({parameter.summary}); it is missing")
        else:
            bound[parameter.name] = parameter.default
    return bound


def _parse(owner: str, parameter: Parameter, value: object, variable_unit: str) -> object:
    label = f"{parameter.name!r} of {owner}"
    if parameter.kind == "number":
        unit = variable_unit if parameter.unit == "variable" else parameter.unit
        return parse_number(value, unit, label=label)
    if parameter.kind == "count":
        # bool is a subclass of int.
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
            raise InvalidQuery(f"{label} needs a whole number above zero; got {value!r}")
        return value
    if parameter.kind == "unit":
        if not isinstance(value, str):
            raise InvalidQuery(f"{label} needs a unit such as 'degC'; got {value!r}")
        return check_unit(value)
    if parameter.kind == "text":
        if not isinstance(value, str):
            raise InvalidQuery(f"{label} needs text ({parameter.summary}); got {value!r}")
        return value
    if parameter.kind == "names":
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple) or not listed or not all(isinstance(name, str) for name in listed):
            raise InvalidQuery(f"{label} needs a list of names ({parameter.summary}); got {value!r}")
        return tuple(listed)
    return value


_KINDS: Final[dict[Kind, dict[str, Any]]] = {
    "number": {"type": ["number", "string"]},
    "count": {"type": "integer", "minimum": 1, "exclusiveMaximum": 2**31},
    "unit": {"type": "string", "maxLength": 80},
    "text": {"type": "string"},
    "names": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
    "variogram": {
        "anyOf": [
            {"enum": ["fit", "fit_by_slice"]},
            {"type": "object", "required": ["model"], "properties": {"model": {"type": "string"}}},
        ]
    },
    "trend": {
        "anyOf": [
            {"enum": ["profile", "lapse_rate", "auto", "none"]},
            {
                "type": "object",
                "required": ["lapse_rate"],
                "properties": {"lapse_rate": {"type": ["number", "string"]}},
            },
        ]
    },
}


def make_schema(parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a step's `params`.

    A number may be text with its own unit; `x-unit` is the unit of a plain number, "variable" meaning that of the
    source's values.
    """
    properties: dict[str, Any] = {}
    for parameter in parameters:
        parameter_schema = {**_KINDS[parameter.kind], "description": parameter.summary}
        if parameter.kind == "number":
            parameter_schema["x-unit"] = parameter.unit or "1"
        if parameter.default is not None:
            parameter_schema["default"] = (
                list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
            )
        if not parameter.required:
            # Clients may send null for a parameter that is not given.
            parameter_schema = {
                "anyOf": [{key: parameter_schema[key] for key in _KINDS[parameter.kind]}, {"type": "null"}]
            } | {key: value for key, value in parameter_schema.items() if key not in _KINDS[parameter.kind]}
        properties[parameter.name] = parameter_schema
    return {
        "type": "object",
        "properties": properties,
        "required": [parameter.name for parameter in parameters if parameter.required],
        "additionalProperties": False,
    }
