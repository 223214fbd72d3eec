"""Quality settings of a deployment: `[quality]` and `[quality.<variable>]`, over the defaults.

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
"""Maximum clock shift [h]; time zones span -12 to +14 h."""


@dataclass(frozen=True)
class QualityOverrides:
    """Quality tests of a deployment."""

    token_name: ClassVar[str] = "QualityOverrides"

    run: bool = True
    zone_guard: bool = True
    clock_shift_h: tuple[tuple[str, float], ...] = ()
    """Hours added to the stamps of a station, by station."""
    variables: tuple[tuple[str, VariableTests], ...] = ()
    """Declared variables; the others have default tests."""

    def tests(self, variable: Variable) -> VariableTests:
        """Return the tests of a variable, in its unit."""
        if not self.run:
            return VariableTests()
        declared = dict(self.variables)
        return declared[variable.name] if variable.name in declared else default_tests(variable)

    def to_json(self, variables: Mapping[str, Variable]) -> dict[str, Any]:
        """Return all parameters of the tests of some variables, in the form that `from_json` reads."""
        return {name: _tests_to_dict(self.tests(variable)) for name, variable in variables.items()}


def read_quality(table: TomlTable, variable: Callable[[str], Variable | None]) -> QualityOverrides:
    """Read the table `quality` of a deployment file.

    Parameters
    ----------
    variable
        Looks up a variable by name; None if unknown.

    Raises
    ------
    hypergrid.core.errors.InvalidDeployment
        The table is invalid; the message names the key.
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
    """Parse the output of `QualityOverrides.to_json`; errors as in `read_quality`."""
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
    """Return parameters as in a deployment file: absent ones have no key."""
    content: dict[str, Any] = {}
    for each in fields(parameters):
        value = getattr(parameters, each.name)
        if each.metadata["kind"] == "records":
            content[each.name] = [_parameters_to_dict(record) for record in value]
        elif value is not None:
            content[each.name] = list(value) if isinstance(value, tuple) else value
    return content
