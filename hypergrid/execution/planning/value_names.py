"""Names of the values of a perspective, and of the functions that made them."""

import json
from dataclasses import dataclass, replace
from typing import Any

from hypergrid.core.units import KNOWN_VARIABLES, to_cf
from hypergrid.core.version import VERSION
from hypergrid.perspective import Aggregate, Base, Convert, Interpolate, InterpolateInTime, Merge, Perspective
from hypergrid.perspective.functions.merges import ANOMALIES
from hypergrid.perspective.functions.user_function_identity import FUNCTION_IDENTITIES


@dataclass(frozen=True)
class ValueName:
    """Names of values, and the unit in which they apply."""

    long_name: str
    """Name for display."""
    standard_name: str | None
    """CF standard name, if it applies exactly."""
    unit: str
    """Unit in which the names apply: a count of temperatures is not a temperature."""


def make_value_name(node: Perspective) -> ValueName:
    """Name the values of a perspective by its last renaming step, or its readings."""
    operator = node.operator
    if isinstance(operator, Base):
        variable = KNOWN_VARIABLES.get(operator.source.variable.name, operator.source.variable)
        return ValueName(variable.long_name or variable.name, variable.standard_name, variable.unit)
    names = [make_value_name(source) for source in node.sources]
    if isinstance(operator, Merge):
        row = operator.row
        long_names = [name.long_name for name in names]
        standard = row.standard_name
        if standard is not None and "{0}" in standard:
            standard = standard.format(names[0].standard_name) if names[0].standard_name in ANOMALIES else None
        return ValueName(row.long_name.format(*long_names) or names[0].long_name, standard, node.unit)
    if isinstance(operator, Convert):
        for row_ in reversed(operator.list_rows()):
            if row_.long_name or row_.standard_name:
                return ValueName(row_.long_name or names[0].long_name, row_.standard_name, node.unit)
        rows = zip(operator.list_rows(), operator.calls, strict=True)
        if not all(row_.keeps_quantity(call.arguments) for row_, call in rows):
            return replace(names[0], standard_name=None)
    if isinstance(operator, Aggregate):
        return _name_aggregate(names[0], node, operator)
    return names[0]


def _name_aggregate(below: ValueName, node: Perspective, operator: Aggregate) -> ValueName:
    row = operator.row
    if row.long_name:
        words = {name: str(value) for name, value in format_parameters(node, operator).items()}
        return ValueName(row.long_name.format(below.long_name, **words), row.standard_name, node.unit)
    if node.unit != node.source.unit:
        return ValueName(f"{operator.function} of {below.long_name}", None, node.unit)
    return below


def format_parameters(node: Perspective, operator: Aggregate) -> dict[str, Any]:
    """Return an aggregate's parameters by name, as numbers or as text with unit."""
    units = {parameter.name: parameter.unit for parameter in operator.row.parameters}
    parameters: dict[str, Any] = {}
    for name, value in operator.parameters:
        unit = node.source.unit if units.get(name) == "variable" else units.get(name, "")
        plain = ", ".join(map(str, value)) if isinstance(value, tuple) else value
        parameters[name] = (
            plain if unit in ("", "1", "unknown") or isinstance(plain, str) else f"{plain:g} {to_cf(unit)}"
        )
    return parameters


def value_names(surface: Perspective) -> dict[str, str]:
    """Return `long_name`, and `standard_name` if the values still have its unit."""
    name = make_value_name(surface)
    named = {"long_name": name.long_name}
    if name.standard_name and surface.unit == name.unit:
        named["standard_name"] = name.standard_name
    return named


def format_functions(surface: Perspective) -> str:
    """Return the versions of a chain's functions as JSON: "operator name" to version."""
    used: dict[str, str] = {}
    for item in surface.list_chain():
        operator = item.operator
        if isinstance(operator, Convert):
            used.update({f"convert {call.name}": _version("convert", call.name) for call in operator.calls})
        elif isinstance(operator, Aggregate | Merge):
            kind = "aggregate" if isinstance(operator, Aggregate) else "merge"
            used[f"{kind} {operator.function}"] = _version(kind, operator.function)
        elif isinstance(operator, Interpolate | InterpolateInTime):
            used[f"interpolate {operator.method}"] = _version("interpolate", operator.method)
    return json.dumps(used)


def _version(kind: str, name: str) -> str:
    return FUNCTION_IDENTITIES[kind, name].origin if (kind, name) in FUNCTION_IDENTITIES else f"HyperGrid {VERSION}"
