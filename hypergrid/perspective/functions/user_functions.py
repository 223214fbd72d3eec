"""User functions, added by decorator or by the entry point group "hypergrid.functions".

::

    @hg.convert_function("heat_stress", unit="1", takes="degC")
    def heat_stress(values, limit=30.0):
        '''Share of the way from the limit to 10 degrees above it.'''
        return np.clip((values - limit) / 10, 0, 1)

    archive["air_temperature"].convert("heat_stress", limit=28)

Added functions behave like built-in ones in queries, their JSON, `explain()` and provenance. The entry point of a
package names the module in which its functions are decorated.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from types import FunctionType
from typing import Any, Final, TypeVar, get_args

from hypergrid.core.errors import InvalidFunction, InvalidUnit, NotFound
from hypergrid.core.parameters import Kind as ParameterKind
from hypergrid.core.parameters import Parameter
from hypergrid.core.registry import Registry
from hypergrid.core.units import check_unit, convert
from hypergrid.interpolation import METHODS, Method
from hypergrid.interpolation.methods.detrended import with_trend
from hypergrid.interpolation.methods.station_selection import PARAMETERS as SELECTION
from hypergrid.perspective.functions.aggregates import AGGREGATES, AggregateRow
from hypergrid.perspective.functions.rows import CONVERTS, MERGES, ConvertRow, MergeRow, make_formula_unit
from hypergrid.perspective.functions.user_function_calls import (
    FUNCTION_IDENTITIES,
    FunctionIdentity,
    Kind,
    call_all_cells,
    call_by_cell,
    call_elementwise,
    label_function,
    read_source_text,
    unwrap_function,
)
from hypergrid.perspective.functions.user_interpolation import UserInterpolation

Function = TypeVar("Function", bound=Callable[..., Any])
Unit = str | Callable[..., str] | None

GROUP: Final = "hypergrid.functions"
"""Entry point group of packages with user functions."""

_TABLES: Final[Mapping[Kind, Registry[Any]]] = {
    "convert": CONVERTS, "aggregate": AGGREGATES, "merge": MERGES, "interpolate": METHODS,
}  # fmt: skip
_TAKEN: Final = (
    "function", "others", "self", "time", "lon", "lat", "x", "y", "zones", "min_coverage", "values",
)  # fmt: skip
"""Reserved parameter names: keys of a step."""
_OFFSETS: Final = ("east_m", "north_m")
_TAKEN_BY_METHODS: Final = (
    "grid", "method", "trend", "variogram", "neighbours", "radius_m", "octants", "drift", "degree", "support",
    "quadrature", "variance_of", *(item.name for item in SELECTION),
)  # fmt: skip
"""Reserved parameter names of interpolations: the engine gives them a meaning."""


def convert_function(
    name: str,
    *,
    unit: Unit = None,
    takes: str | None = None,
    parameters: Sequence[Parameter] | None = None,
    long_name: str = "",
    standard_name: str | None = None,
    version: str = "",
) -> Callable[[Function], Function]:
    """Add an element-wise function: `function(values, **parameters)` returns equally many values.

    Parameters
    ----------
    name
        Name in queries: letters, digits and underscores.
    unit
        Unit of the result; None: that of the source; or a function of the source's unit.
    takes
        Required unit of the source; None: any.
    parameters
        Parameters of queries. None: inferred from the function's arguments. A default that is a number or text defines
        the type, an argument without a default is a required number, and all others keep their defaults.
    long_name, standard_name
        Display name and CF standard name of the result.
    version
        Given by the author; the only indication of changes in other packages that the function calls.

    Returns
    -------
    A decorator that returns the function unchanged. The function gets a one-dimensional array, NaN where missing, and
    each result must depend on its own value alone. The first line of its docstring is the summary.

    Raises
    ------
    InvalidFunction
        By the decorator: an invalid or used name, or parameters that do not match the function.
    InvalidUnit
        Unknown unit.
    """

    def add(function: Function) -> Function:
        listed = _make_parameters("convert", name, function, parameters, arrays=("values",))
        declared = (_format_unit(unit), takes, listed, long_name, standard_name)
        _check_units("convert", name, unit, (takes,))

        def unit_of(source: str, _given: Mapping[str, Any]) -> str:
            return _describe_unit("convert", name, unit, takes, source)

        def apply(values: Any, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as the row's
            return call_elementwise(f"convert function {name!r}", function, (values,), given)

        row = ConvertRow(
            name, _read_summary(function), listed, apply, unit_of, long_name=long_name, standard_name=standard_name
        )
        _add_row(
            FunctionIdentity(
                "convert", name, function, version, declared, read_source_text("convert", name, function, version)
            ),
            row,
        )
        return function

    return add


def aggregate_function(
    name: str,
    *,
    unit: Unit = None,
    takes: str | None = None,
    parameters: Sequence[Parameter] | None = None,
    vectorised: bool = False,
    min_coverage: float = 0.0,
    of_extremes: bool = True,
    long_name: str = "",
    standard_name: str | None = None,
    version: str = "",
) -> Callable[[Function], Function]:
    """Add an aggregate: `function(values, **parameters)` reduces the values of a cell to a number.

    Parameters
    ----------
    name, unit, takes, parameters, version
        As for `convert_function`.
    long_name, standard_name
        Display name and CF standard name of the result; by default the function's name "of" the source's, and none.
    vectorised
        False: the function is called once per non-empty cell with its values in time order, shape (members,), none
        missing, and returns a number. True: it gets the values of many cells, shape (members, cells), NaN as padding,
        and returns shape (cells,); much faster for many cells.
    min_coverage
        Default share of the possible readings below which a cell is missing.
    of_extremes
        Whether it is meaningful for values that are maxima or minima.

    Raises
    ------
    InvalidFunction, InvalidUnit
        As for `convert_function`.
    """

    def add(function: Function) -> Function:
        listed = _make_parameters("aggregate", name, function, parameters, arrays=("values",))
        declared: tuple[object, ...] = (_format_unit(unit), takes, listed, vectorised, min_coverage, of_extremes)
        # Absent options stay out of the digest.
        declared = (*declared, long_name, standard_name) if long_name or standard_name else declared
        _check_units("aggregate", name, unit, (takes,))
        if not 0 <= min_coverage <= 1:
            raise InvalidFunction(f"aggregate function {name!r} needs a min_coverage from 0 to 1; got {min_coverage!r}")

        def unit_of(source: str, _given: Mapping[str, Any] | None = None) -> str:
            return _describe_unit("aggregate", name, unit, takes, source)

        whole = partial(call_all_cells if vectorised else call_by_cell, f"aggregate function {name!r}", function)
        row = AggregateRow(
            name=name, summary=_read_summary(function), min_coverage=float(min_coverage), of_extremes=of_extremes,
            whole=whole, parameters=listed, unit=unit_of, standard_name=standard_name,
            long_name=_refuse_template(long_name) if long_name else f"{name.replace('_', ' ')} of {{0}}",
        )  # fmt: skip
        text = read_source_text("aggregate", name, function, version)
        _add_row(FunctionIdentity("aggregate", name, function, version, declared, text), row)
        return function

    return add


def merge_function(
    name: str,
    *,
    unit: Unit = None,
    takes: Sequence[str] | None = None,
    parameters: Sequence[Parameter] | None = None,
    matched: bool = True,
    long_name: str = "",
    standard_name: str | None = None,
    version: str = "",
) -> Callable[[Function], Function]:
    """Add a merge: `function(first, second, …, **parameters)` combines one array per source.

    Parameters
    ----------
    name, long_name, standard_name, version
        As for `convert_function`.
    unit
        Unit of the result; None: that of the first source; or a function of the units of all sources.
    takes
        Units the sources are converted to, one each; None: no conversion.
    parameters
        As for `convert_function`; a number with the unit "variable" is in that of the first source. None: the arguments
        that have a default or are keyword-only (after `*`).
    matched
        Whether sources with different stations are merged on their common stations; otherwise they are refused.

    Returns
    -------
    A decorator that returns the function unchanged. The function's arguments before its parameters define the number
    and names of the sources. It gets one-dimensional arrays of equal length and returns one value per cell.

    Raises
    ------
    InvalidFunction, InvalidUnit
        As for `convert_function`.
    """

    def add(function: Function) -> Function:
        roles = _list_roles(name, function, parameters)
        listed = _make_parameters("merge", name, function, parameters, arrays=roles)
        units = tuple(takes) if takes is not None else None
        declared: tuple[object, ...] = (_format_unit(unit), units, roles, matched, long_name, standard_name)
        declared = (*declared, listed) if listed else declared
        _check_units("merge", name, unit, units or ())
        if units is not None and len(units) != len(roles):
            raise InvalidFunction(
                f"merge function {name!r} takes {len(roles)} sources ({', '.join(roles)}); got units {units}"
            )

        def unit_of(*sources: str) -> str:
            if units is not None:
                make_formula_unit(name, roles, units, "")(*sources)
            # The unit function gets the units after conversion.
            return _describe_unit("merge", name, unit, None, *(units or sources))

        def apply(*arrays: Any, **given: Any) -> Any:  # noqa: ANN401 - as the row's
            return call_elementwise(f"merge function {name!r}", function, arrays, given)

        row = MergeRow(
            name, _read_summary(function), apply, unit_of, alike=False, parameters=listed, takes=units, matched=matched,
            roles=roles, long_name=_refuse_template(long_name), standard_name=standard_name,
        )  # fmt: skip
        _add_row(
            FunctionIdentity(
                "merge", name, function, version, declared, read_source_text("merge", name, function, version)
            ),
            row,
        )
        return function

    return add


def interpolation_function(
    name: str,
    *,
    select: Callable[..., Any] | None = None,
    compute: Callable[..., Any] | None = None,
    parameters: Sequence[Parameter] | None = None,
    vectorised: bool = False,
    version: str = "",
) -> Callable[..., Any]:
    """Add an interpolation method: which stations a target uses, and what is made of their values.

    Parameters
    ----------
    name, parameters, version
        As for `convert_function`; both functions get all parameters.
    select
        `select(east_m, north_m, **parameters)` gets the offsets of the stations that report from a target [m], shape
        (stations,), and returns a mask of those to use, or their numbers. It is called once for each target and set of
        reporting stations, whatever the number of time cells. None: all stations are used.
    compute
        `compute(values, east_m, north_m, **parameters)` gets the values of the selected stations, none missing, and
        their offsets [m], shape (stations,), and returns the value at the target, NaN if it has none. None: the
        function below the decorator.
    vectorised
        True: `compute` gets the values of many slices, shape (stations, slices), and returns shape (slices,); much
        faster where many slices have the same stations.

    Returns
    -------
    A decorator for `compute`, or `compute` itself if it was given. `trend` and the treatment of coincident and distant
    stations work as for every method; there is no variance. On networks so wide that they lie on the sphere, offsets
    are as long as great circles.

    Raises
    ------
    InvalidFunction
        As for `convert_function`.
    """

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        _check_name("interpolate", name)
        listed = _make_parameters("interpolate", name, function, parameters, arrays=("values", *_OFFSETS))
        if select is not None:
            _make_parameters("interpolate", name, select, listed, arrays=_OFFSETS, role="select of ")
        own = UserInterpolation(name, function, select, vectorised)
        row = Method(
            name, _read_summary(function), listed, linear=False, has_variance=False, parse=dict, prepare=own.prepare
        )
        text = read_source_text("interpolate", name, function, version)
        if select is not None:
            read_source_text("interpolate", name, select, version)
        _add_row(
            FunctionIdentity("interpolate", name, function, version, (listed, vectorised), text, select),
            with_trend(row),
        )
        return function

    return add if compute is None else add(compute)


def forget_function(name: str) -> None:
    """Remove all user functions of a name: convert, aggregate, merge and interpolation.

    Raises
    ------
    InvalidFunction
        The function is built in.
    NotFound
        Unknown function; the message lists the user functions.
    """
    kinds = [kind for kind in _TABLES if (kind, name) in FUNCTION_IDENTITIES]
    if not kinds and any(name in table for table in _TABLES.values()):
        raise InvalidFunction(
            f"{name!r} is a function of HyperGrid itself; only functions that were added can be forgotten"
        )
    if not kinds:
        raise NotFound.among(kind="added function", given=name, existing=(held for _, held in FUNCTION_IDENTITIES))
    for kind in kinds:
        _TABLES[kind].remove(name)
        del FUNCTION_IDENTITIES[kind, name]


def load_entry_points() -> None:
    """Load the functions of installed packages; failures are skipped with a warning."""
    for point in entry_points(group=GROUP):
        try:
            loaded = point.load()
            # An entry point may name a module or a decorated function in it.
            if point.attr and not any(added.function is loaded for added in FUNCTION_IDENTITIES.values()):
                raise InvalidFunction(f"{point.value} is no function below one of HyperGrid's decorators")
        except Exception as error:  # noqa: BLE001 - whatever another package raises must not stop this one
            _warn(point, error)


def _warn(point: EntryPoint, error: Exception) -> None:
    package = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    message = (
        f"entry point {point.name!r} = {point.value!r}{package} (group {GROUP!r}) brings no functions: "
        f"{type(error).__name__}: {error}; mend or remove that package"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def _load_once() -> None:
    for table in _TABLES.values():
        # One load fills all tables, and a lookup during it must not start another.
        table.fill_later(_do_nothing)
    load_entry_points()


def _do_nothing() -> None:
    """Do nothing: another table has already loaded the functions of all."""


for _table in _TABLES.values():
    _table.fill_later(_load_once)


def _add_row(added: FunctionIdentity, row: object) -> None:
    key, table = (added.kind, added.name), _TABLES[added.kind]
    before = FUNCTION_IDENTITIES.get(key)
    if before is not None:
        # Running the same definition again replaces it; another function of that name is an error.
        if (before.module, before.qualname) != (added.module, added.qualname):
            raise InvalidFunction(
                f"{label_function(added.kind, added.name)} exists already, as {before.module}:{before.qualname}; "
                f"choose another name, or hg.forget_function({added.name!r}) first"
            )
        table.remove(added.name)
        del FUNCTION_IDENTITIES[key]
    elif table.holds(added.name):
        label = label_function(added.kind, added.name)
        raise InvalidFunction(f"{label} is one of HyperGrid itself; choose another name")
    table.add(added.name, row)
    FUNCTION_IDENTITIES[key] = added


def _check_units(kind: Kind, name: object, unit: Unit, takes: Sequence[str | None]) -> None:
    _check_name(kind, name)
    for text in (unit, *takes):
        if isinstance(text, str):
            check_unit(text)


def _check_name(kind: Kind, name: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        article = "an" if kind in ("aggregate", "interpolate") else "a"
        label = label_function(kind, name).removesuffix(f" {name!r}")
        raise InvalidFunction(f"{article} {label} needs a name of letters, digits and underscores; got {name!r}")


def _describe_unit(kind: Kind, name: str, unit: Unit, takes: str | None, *sources: str) -> str:
    # Two values that stay the same under conversion prove that units are equal in scale and offset.
    if takes is not None and convert([0.0, 1.0], sources[0], takes).tolist() != [0.0, 1.0]:
        raise InvalidUnit(
            f"{name} needs values in {takes!r}; got {sources[0]!r}; convert them with scale(factor=…, unit=…)"
        )
    if unit is None or isinstance(unit, str):
        return sources[0] if unit is None else unit
    made: object = unit(*sources)
    if not isinstance(made, str):
        raise InvalidFunction(
            f"the unit of {label_function(kind, name)} must be text; for {', '.join(sources)} it gave {made!r}"
        )
    return check_unit(made)


def _format_unit(unit: Unit) -> str | None:
    return unit if unit is None or isinstance(unit, str) else "of the source"


def _refuse_template(text: str) -> str:
    """Escape braces in a display name."""
    return text.replace("{", "{{").replace("}", "}}")


def _read_summary(function: Callable[..., Any]) -> str:
    lines = (inspect.getdoc(function) or "").strip().splitlines()
    return lines[0] if lines else "Added by a user."


def _read_signature(function: object) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _make_parameters(
    kind: Kind,
    name: str,
    function: object,
    declared: Sequence[Parameter] | None,
    *,
    arrays: Sequence[str],
    role: str = "",
) -> tuple[Parameter, ...]:
    """Return the parameters of a function, checked against its signature, which begins with `arrays`."""
    label, signature = f"{role}{label_function(kind, name)}", _read_signature(function)
    taken = (*_TAKEN, *_TAKEN_BY_METHODS) if kind == "interpolate" else _TAKEN
    listed = tuple(declared or ())
    if signature is not None:
        if len([p for p in signature if p.kind in _POSITIONAL or p.kind is p.VAR_POSITIONAL]) < len(arrays):
            first = ", ".join(arrays)
            raise InvalidFunction(f"{label} needs a function that takes {first} first, 'def {name}({first}, …)'")
        own = [p for p in signature[len(arrays) :] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        takes_any = any(p.kind is p.VAR_KEYWORD for p in signature)
        if declared is None:
            listed = tuple(_guess_parameter(parameter) for parameter in own if _is_plain(function, parameter))
        missing = [p.name for p in own if p.default is p.empty and p.name not in {each.name for each in listed}]
        unknown = [p.name for p in listed if not takes_any and p.name not in {each.name for each in own}]
        if missing or unknown:
            what = f"does not say what {missing[0]!r} is" if missing else f"declares {unknown[0]!r}, which it lacks"
            raise InvalidFunction(
                f"{label} {what}: parameters=[…] and the function's arguments must have the same names"
            )
    for parameter in listed:
        if parameter.name in taken or not parameter.name.isidentifier():
            raise InvalidFunction(f"{label} cannot have a parameter {parameter.name!r}; choose another name")
        if parameter.kind not in get_args(ParameterKind):
            kinds = ", ".join(get_args(ParameterKind))
            raise InvalidFunction(
                f"{label}: parameter {parameter.name!r} needs a kind among {kinds}; got {parameter.kind!r}"
            )
    return listed


def _is_plain(function: object, parameter: inspect.Parameter) -> bool:
    """Return whether a query can set an undeclared argument; not those of numpy ufuncs."""
    default = parameter.default
    known = default is parameter.empty or (isinstance(default, int | float | str) and not isinstance(default, bool))
    return known and isinstance(unwrap_function(function), FunctionType)  # type: ignore[arg-type]


def _guess_parameter(parameter: inspect.Parameter) -> Parameter:
    """Infer a parameter from an argument: text if its default is text, else a number."""
    default, text = parameter.default, f"argument {parameter.name}"
    if default is parameter.empty:
        return Parameter(parameter.name, "number", text)
    kind: ParameterKind = "text" if isinstance(default, str) else "number"
    return Parameter(parameter.name, kind, text, required=False, default=default)


def _list_roles(name: str, function: object, declared: Sequence[Parameter] | None) -> tuple[str, ...]:
    """Return the source names of a merge: the function's arguments before its parameters."""
    signature, known = _read_signature(function), {parameter.name for parameter in declared or ()}
    sources = [p for p in signature or () if p.kind in _POSITIONAL and p.default is p.empty and p.name not in known]
    first = list(signature or ())[: len(sources)]
    several = any(p.kind is p.VAR_POSITIONAL for p in signature or ())
    if signature is None or several or first != sources or len(sources) < 2:
        raise InvalidFunction(
            f"merge function {name!r} needs a function of two or more arrays without defaults, one a source, then its "
            "parameters, such as 'def name(temperature, humidity, *, limit=30.0)'"
        )
    return tuple(p.name.replace("_", " ") for p in sources)
