"""Identity of user functions: origin and content, which distinguishes their versions.

The content of a function is its source text (or its code without one), its declaration, the plain values and functions
of the same package that it uses, and the version given by its author. Calls into other packages are not followed; the
version must reflect their changes.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any, Final, Literal

from hypergrid.core.errors import InvalidFunction
from hypergrid.core.tokens import token

Kind = Literal["convert", "aggregate", "merge"]


@dataclass(frozen=True, eq=False)
class FunctionIdentity:
    """A function added by a user."""

    kind: Kind
    name: str
    function: Callable[..., Any]
    version: str
    """Version given by its author; may be empty."""
    declared: tuple[object, ...]
    """Plain content of its declaration."""
    text: str
    """Source text when it was added; empty if unavailable."""

    @property
    def module(self) -> str:
        return str(getattr(unwrap_function(self.function), "__module__", ""))

    @property
    def qualname(self) -> str:
        return str(getattr(unwrap_function(self.function), "__qualname__", self.name))

    @property
    def digest(self) -> str:
        """Current content token of the function."""
        function = unwrap_function(self.function)
        # Not cached: what the function uses may have changed since it was added.
        content = (self.kind, self.name, self.version, self.declared, self.text)
        if not isinstance(function, FunctionType):
            return token(*content, self.module, self.qualname)
        return token(*content, *_iterate_used(function, {function}, text=bool(self.text)))

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
    label = f"{kind} function {name!r}"
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
