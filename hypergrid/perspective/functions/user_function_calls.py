"""Identity of user functions, and calls of them with validated results."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import RLock
from types import CodeType, FunctionType
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import HyperGridError, InvalidFunction
from hypergrid.core.tokens import token
from hypergrid.perspective.functions.aggregate_formulas import RaggedCells

Floats = NDArray[np.float64]
Function = Callable[..., Any]

SEARCHED: Final = 1000
"""Maximum number of values tried individually to find the first one on which a function raises."""
PROBES: Final = 3
"""Number of values of a block that are recomputed individually."""
LARGEST: Final = 2**20
"""Maximum number of values in the table of a vectorised call (8 MiB), padding included, unless one cell has more."""

# Serialises all calls, so a user function need not be thread-safe.
_AT_ONCE: Final = RLock()


class Fault(InvalidFunction):
    """Failure of a user function, before the cell is known."""

    def __init__(self, message: str, at: int | None = None) -> None:
        super().__init__(message)
        self.at = at
        """Flat position of the first value that went wrong; None where it is not known."""
        self.call = 0
        """Which function of a step it was, where a step has several."""


def call_elementwise(label: str, function: Function, arrays: tuple[Floats, ...], given: Mapping[str, Any]) -> Floats:
    """Apply an element-wise function to arrays of one shape.

    Raises
    ------
    Fault
        It raised, returned another shape, no numbers or infinite ones, or a result that depends on other values or on
        chance.
    """
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    flat = [np.broadcast_to(array, shape).ravel() for array in arrays]
    if not flat[0].size:
        return np.empty(shape)
    try:
        # Copies, because a function may write into its arguments.
        made = call_function(label, function, [array.copy() for array in flat], given)
    except Fault as fault:
        # The exception of a vectorised call names no position, so values are tried one by one.
        fault.at = _find_first_raising(label, function, flat, given)
        raise
    numbers = check_numbers(label, made, flat[0].shape, "value")
    # Infinite inputs count as missing; only infinite results of finite inputs are refused.
    numbers[np.any([np.isinf(array) for array in flat], axis=0)] = np.nan
    refuse_infinite(label, numbers, lambda at: ", ".join(f"{array[at]:g}" for array in flat))
    present = np.flatnonzero(np.all([np.isfinite(array) for array in flat], axis=0))
    for at in sample_positions(present):
        alone = call_function(label, function, [array[at : at + 1].copy() for array in flat], given)
        if not is_same(check_numbers(label, alone, (1,), "value")[0], numbers[at]):
            raise Fault(
                f"{label} must make each value from that value alone: {flat[0][at]:g} gave {numbers[at]:g} among "
                f"others "
                f"and {np.asarray(alone)[0]:g} alone; what depends on other values is an aggregate, and chance "
                "has no place here",
                int(at),
            )
    return numbers.reshape(shape)


def call_by_cell(label: str, function: Function, members: RaggedCells, given: Mapping[str, Any]) -> Floats:
    """Apply a function to the values of each cell, NaN for empty cells, shape (cells,).

    Raises
    ------
    Fault
        It raised, or returned no number or an infinite one.
    """
    cell_values = np.full(len(members.sizes), np.nan)
    ends = np.cumsum(members.sizes)
    for cell in np.flatnonzero(members.sizes).tolist():
        values = members.value[ends[cell] - members.sizes[cell] : ends[cell]]
        number = check_number(label, call_function(label, function, [values.copy()], given, cell), cell)
        if np.isinf(number):
            raise Fault(f"{label} gave {number:g} for {values.size} values; give NaN where there is no result", cell)
        cell_values[cell] = number
    return cell_values


def call_all_cells(label: str, function: Function, members: RaggedCells, given: Mapping[str, Any]) -> Floats:
    """Apply a vectorised function to the values of all cells, like `call_by_cell`.

    Each call gets a table with one column per cell and at most `LARGEST` numbers.

    Raises
    ------
    Fault
        As for `call_elementwise`, per cell instead of per value.
    """
    cell_values = np.full(len(members.sizes), np.nan)
    filled_cells = np.flatnonzero(members.sizes)
    for cells in _split_tables(members.sizes, filled_cells):
        try:
            cell_values[cells] = _call_columns(label, function, members.columns(cells), given)
        except Fault as fault:
            fault.at = None if fault.at is None else int(cells[fault.at])
            raise
    return cell_values


def _split_tables(sizes: NDArray[np.int64], cells: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Yield cells in order, grouped to fill tables of at most `LARGEST` numbers.

    A table has as many rows as its largest cell has members.
    """
    if len(cells) > 1 and len(cells) * int(sizes[cells].max()) > LARGEST:
        yield from _split_tables(sizes, cells[: len(cells) // 2])
        yield from _split_tables(sizes, cells[len(cells) // 2 :])
    elif len(cells):
        yield cells


def _call_columns(label: str, function: Function, values: Floats, given: Mapping[str, Any]) -> Floats:
    numbers = check_numbers(label, call_function(label, function, [values.copy()], given), values.shape[1:], "column")
    refuse_infinite(label, numbers, lambda at: f"{np.isfinite(values[:, at]).sum()} values")
    for at in sample_positions(np.arange(values.shape[1])):
        alone = check_numbers(
            label, call_function(label, function, [values[:, at : at + 1].copy()], given), (1,), "column"
        )
        if not is_same(alone[0], numbers[at]):
            raise Fault(
                f"{label} must make each number from one column alone: a column gave {numbers[at]:g} among others and "
                f"{alone[0]:g} alone; reduce along axis 0, the values of a cell",
                int(at),
            )
    return numbers


def is_same(first: float, other: float) -> bool:
    # Vectorised and scalar logarithms may differ in the last digit, in 32 bits even more.
    return bool(np.isclose(first, other, rtol=1e-6, atol=1e-12, equal_nan=True))


@contextmanager
def _silence_warnings() -> Iterator[None]:
    # NaN values cause these warnings.
    with _AT_ONCE, np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def call_function(
    label: str, function: Function, arrays: list[Floats], given: Mapping[str, Any], at: int | None = None
) -> object:
    try:
        with _silence_warnings():
            return function(*arrays, **given)
    except HyperGridError:
        raise
    except Exception as error:  # whatever a user's function raises
        raise Fault(f"{label} raised {type(error).__name__}: {error}", at) from error


def _find_first_raising(label: str, function: Function, flat: list[Floats], given: Mapping[str, Any]) -> int | None:
    """Return the first value on which a function also raises individually, or None."""
    for at in range(min(flat[0].size, SEARCHED)):
        try:
            call_function(label, function, [array[at : at + 1].copy() for array in flat], given)
        except Fault:
            return at
    return None


def sample_positions(positions: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return up to `PROBES` evenly spaced positions, including the first and last."""
    if not len(positions):
        return positions
    return positions[np.unique(np.linspace(0, len(positions) - 1, PROBES).astype(np.intp))]


def _to_array(label: str, result: object, at: int | None) -> NDArray[Any]:
    if result is None:
        raise Fault(f"{label} gave nothing (None); end it with 'return …'", at)
    try:
        array = np.asarray(_fill_mask(result) if isinstance(result, np.ma.MaskedArray) else result)
    except (TypeError, ValueError) as error:
        raise Fault(
            f"{label} must give numbers; got {type(result).__name__}, which makes no array ({error})", at
        ) from error
    if array.dtype.kind not in "biuf":
        raise Fault(f"{label} must give real numbers; got {type(result).__name__} of dtype {array.dtype}", at)
    return array


def _fill_mask(result: np.ma.MaskedArray[Any, Any]) -> NDArray[Any]:
    return np.asarray(np.where(np.ma.getmaskarray(result), np.nan, result.data))


def check_numbers(label: str, result: object, shape: tuple[int, ...], each: str) -> Floats:
    array = _to_array(label, result, None)
    if array.shape != shape:
        raise Fault(f"{label} must give one number for each {each}: it gave shape {array.shape}, needed is {shape}")
    return array.astype(np.float64)


def check_number(label: str, result: object, at: int) -> float:
    array = _to_array(label, result, at)
    if array.shape not in ((), (1,)):
        raise Fault(f"{label} must give one number for the values of a cell; it gave shape {array.shape}", at)
    return float(array.reshape(()))


def refuse_infinite(label: str, values: Floats, of: Callable[[int], str]) -> None:
    infinite = np.isinf(values)
    if infinite.any():
        at = int(np.argmax(infinite))
        raise Fault(f"{label} gave {values[at]:g} for {of(at)}; give NaN where there is no result", at)


Kind = Literal["convert", "aggregate", "merge", "interpolate"]
"""Step that a function belongs to."""


def label_function(kind: Kind, name: object) -> str:
    """Name a function in messages."""
    return f"{'interpolation' if kind == 'interpolate' else kind} function {name!r}"


@dataclass(frozen=True, eq=False)
class FunctionIdentity:
    """A function added by a user, with its origin and content, which distinguishes its versions.

    The content of a function is its source text (or its code without one), its declaration, the plain values and
    functions of the same package that it uses, and the version given by its author. Calls into other packages are not
    followed; the version must reflect their changes.
    """

    kind: Kind
    name: str
    function: Callable[..., Any]
    version: str
    """Version given by its author; may be empty."""
    declared: tuple[object, ...]
    """Plain content of its declaration."""
    text: str
    """Source text when it was added; empty if unavailable."""
    helper: Callable[..., Any] | None = None
    """Second function of the method, whose content counts as well."""

    @property
    def module(self) -> str:
        return str(getattr(unwrap_function(self.function), "__module__", ""))

    @property
    def qualname(self) -> str:
        return str(getattr(unwrap_function(self.function), "__qualname__", self.name))

    @property
    def digest(self) -> str:
        """Current content token of the function."""
        # Not cached: what the function uses may have changed since it was added.
        content = (self.kind, self.name, self.version, self.declared, self.text)
        return token(*content, *self._list_used(self.function, self.text), *self._list_helper())

    def _list_used(self, function: Callable[..., Any], text: str) -> tuple[object, ...]:
        inner = unwrap_function(function)
        if not isinstance(inner, FunctionType):
            return str(getattr(inner, "__module__", "")), str(getattr(inner, "__qualname__", self.name))
        return tuple(_iterate_used(inner, {inner}, text=bool(text)))

    def _list_helper(self) -> tuple[object, ...]:
        if self.helper is None:
            return ()
        text = read_source_text(self.kind, self.name, self.helper, self.version)
        return ("helper", text, *self._list_used(self.helper, text))

    @property
    def origin(self) -> str:
        """Module, name, version and digest prefix, for provenance."""
        version = f" version {self.version}" if self.version else ""
        return f"{self.module}:{self.qualname}{version} content {self.digest[:12]}"


FUNCTION_IDENTITIES: Final[dict[tuple[str, str], FunctionIdentity]] = {}
"""User functions by kind and name."""


def add_identities(content: tuple[object, ...], kind: Kind, names: Iterable[str]) -> tuple[object, ...]:
    """Append the digests of any user functions to the content of a step."""
    digests = tuple(FUNCTION_IDENTITIES[kind, name].digest for name in names if (kind, name) in FUNCTION_IDENTITIES)
    return (*content, "added", digests) if digests else content


def unwrap_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python function behind numba compilation or decorators."""
    # numba keeps the Python function in `py_func`.
    inner: Callable[..., Any] = inspect.unwrap(getattr(function, "py_func", function))
    return inner


def read_source_text(kind: Kind, name: str, function: object, version: str) -> str:
    """Return the source text of a function, or empty text.

    Without text, the function is identified by its code or its version.

    Raises
    ------
    InvalidFunction
        Not a function, or its versions cannot be distinguished.
    """
    label = label_function(kind, name)
    if not callable(function):
        raise InvalidFunction(f"{label} needs a function of values below the decorator; got {function!r}")
    inner = unwrap_function(function)
    try:
        return inspect.getsource(inner)
    except (OSError, TypeError):
        pass
    if isinstance(inner, partial) or (not isinstance(inner, FunctionType) and not version):
        raise InvalidFunction(
            f"{label} has neither source text nor code by which a changed one would be known ({inner!r}); define "
            f"it with "
            "'def', or give version='1' and change that when it changes"
        )
    return ""


def _iterate_used(function: FunctionType, seen: set[FunctionType], *, text: bool) -> Iterator[object]:
    """Yield content beyond the text: code if there is no text, defaults, referenced values."""
    if not text:
        yield from _iterate_code(function.__code__)
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield from _iterate_value("default", value, function, seen)
    for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars, strict=True):
        try:
            yield from _iterate_value(name, cell.cell_contents, function, seen)
        except ValueError:
            # An unbound name has no value.
            continue
    for name in sorted(set(_iterate_names(function.__code__))):
        if name in function.__globals__:
            yield from _iterate_value(name, function.__globals__[name], function, seen)


def _iterate_value(name: str, value: object, user: FunctionType, seen: set[FunctionType]) -> Iterator[object]:
    inner = unwrap_function(value) if callable(value) else value
    if isinstance(inner, FunctionType):
        if inner not in seen and _find_package(inner) == _find_package(user):
            # Functions may refer to each other.
            seen.add(inner)
            try:
                text = inspect.getsource(inner)
            except (OSError, TypeError):
                text = ""
            yield from (name, text, *_iterate_used(inner, seen, text=bool(text)))
        return
    try:
        yield name, token(value)
    except TypeError:
        # Modules, classes and objects have no stable content; the version represents them.
        return


def _find_package(function: FunctionType) -> str:
    return str(function.__module__).partition(".")[0]


def _iterate_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _iterate_names(constant)


def _iterate_code(code: CodeType) -> Iterator[str]:
    yield from (code.co_code.hex(), *code.co_names, *code.co_varnames)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _iterate_code(constant)
        else:
            # The order of a set differs between processes.
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
