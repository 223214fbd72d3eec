"""What a deployment says of quality: `[quality]` and `[quality.<variable>]`, over the defaults.

```toml
[quality]
run = true                        # false: flags stay 2, not evaluated
zone_guard = true                 # report clocks that radiation says are hours off
[quality.clock_shift_h]           # corrected only when told: hours added to the stamps of a station
"7" = -2.0
[quality.air_temperature]
spike = {suspect = 2.0}           # the rest of the test as by default; in the variable's unit
rate_of_change = false            # not run
climatology = {normal = [{months = [12, 1, 2], suspect = [-30, 15]}]}
```
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from hypergrid.core.errors import NotFound
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from ingest.deployment.quality_kinds import default_tests
from ingest.deployment.quality_settings import SUN, VALUE, Exempt, Parameters, VariableTests
from ingest.deployment.toml_table import TomlTable

MOST_SHIFT_H: Final = 26.0
"""Zones reach from -12 to +14 h [h]."""


@dataclass(frozen=True)
class QualityOverrides:
    """Which tests run on what is ingested."""

    token_name: ClassVar[str] = "QualityOverrides"

    run: bool = True
    zone_guard: bool = True
    clock_shift_h: tuple[tuple[str, float], ...] = ()
    """By station, the hours that are added to its stamps."""
    variables: tuple[tuple[str, VariableTests], ...] = ()
    """Variables that are declared; others have their defaults."""

    def tests(self, variable: Variable) -> VariableTests:
        """Return the tests of a variable, in its unit."""
        if not self.run:
            return VariableTests()
        declared = dict(self.variables)
        return declared[variable.name] if variable.name in declared else default_tests(variable)

    def to_json(self, variables: Mapping[str, Variable]) -> dict[str, Any]:
        """Return all parameters of the tests of some variables, as `from_json` reads them."""
        return {name: _tests_to_dict(self.tests(variable)) for name, variable in variables.items()}


def read_quality(table: TomlTable, variable: Callable[[str], Variable | None]) -> QualityOverrides:
    """Return what the table `quality` of a deployment file says.

    Parameters
    ----------
    variable
        Gives a variable by name; None where there is none of it.

    Raises
    ------
    hypergrid.core.errors.InvalidDeployment
        The message names the key.
    """
    run, guard = (_switch(table, key) for key in ("run", "zone_guard"))
    shifts: tuple[tuple[str, float], ...] = ()
    if table.has("clock_shift_h"):
        inner = TomlTable(table.value("clock_shift_h"), f"{table.path}.clock_shift_h", file=table.file)
        shifts = tuple(
            (name, inner.number(name, minimum=-MOST_SHIFT_H, maximum=MOST_SHIFT_H)) for name in inner.names()
        )
    declared = []
    for name in table.names():
        if name in ("run", "zone_guard", "clock_shift_h"):
            continue
        known = variable(name)
        if known is None:
            unknown = NotFound.among("variable", name, KNOWN_VARIABLES)
            table.refuse(name, f"is neither a key nor a variable that is known or declared: {unknown}")
        inner = TomlTable(table.value(name), f"{table.path}.{name}", file=table.file)
        declared.append((name, _read_tests(inner, default_tests(known), variable)))
    return QualityOverrides(run, guard, shifts, tuple(declared))


def from_json(content: Mapping[str, Any]) -> QualityOverrides:
    """Return what `Quality.to_json` wrote; errors as in `read_quality`."""
    table = TomlTable(content, "quality", file="the archive")
    tests = [
        (name, _read_tests(TomlTable(table.value(name), name, file="the archive"), VariableTests(), Variable))
        for name in table.names()
    ]
    return QualityOverrides(variables=tuple(tests))


def _switch(table: TomlTable, key: str) -> bool:
    value = table.value(key, default=True)
    return value if isinstance(value, bool) else table.refuse(key, f"needs true or false; got {value!r}")


def _read_tests(table: TomlTable, base: VariableTests, variable: Callable[[str], Variable | None]) -> VariableTests:
    chosen: dict[str, Parameters | None] = {}
    for name, kind in VariableTests.KINDS.items():
        standing = getattr(base, name)
        value = table.value(name, default=True if standing is not None else False)
        if not table.has(name) or value is False:
            chosen[name] = standing if not table.has(name) else None
            continue
        inner = TomlTable({} if value is True else value, f"{table.path}.{name}", file=table.file)
        chosen[name] = kind.read(inner, standing)
    table.finish()
    tests = VariableTests(**chosen)  # type: ignore[arg-type]
    for index, exempt in enumerate(tests.flat_line.exempt if tests.flat_line else ()):
        if exempt.of not in (VALUE, SUN) and variable(exempt.of) is None:
            unknown = NotFound.among("variable", exempt.of, {VALUE, SUN, *KNOWN_VARIABLES})
            table.refuse(f"flat_line.exempt[{index}].of", f"is neither value, sun nor a known variable: {unknown}")
        if exempt == Exempt(exempt.of):
            table.refuse(f"flat_line.exempt[{index}]", "needs least or most; without them all time would be exempt")
    return tests


def _tests_to_dict(tests: VariableTests) -> dict[str, Any]:
    present = {name: getattr(tests, name) for name in tests.KINDS}
    return {name: _parameters_to_dict(parameters) for name, parameters in present.items() if parameters is not None}


def _parameters_to_dict(parameters: Parameters) -> dict[str, Any]:
    """Return parameters as a deployment file would give them: what is absent has no key."""
    content: dict[str, Any] = {}
    for each in fields(parameters):
        value = getattr(parameters, each.name)
        if each.metadata["kind"] == "records":
            content[each.name] = [_parameters_to_dict(record) for record in value]
        elif value is not None:
            content[each.name] = list(value) if isinstance(value, tuple) else value
    return content
