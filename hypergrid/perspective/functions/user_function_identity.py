"""Functions that users added: where each comes from, and its content, by which versions of it are told apart.

The content of a function is its source text (its code, where there is no text), what it was declared with, the plain
values and the functions of the same package that it uses, and the version that its author gave. What it calls in other
packages is not followed: a version says when that changed.
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
    """A function that a user added."""

    kind: Kind
    name: str
    function: Callable[..., Any]
    version: str
    """Given by its author; may be empty."""
    declared: tuple[object, ...]
    """What it was declared with: plain content."""
    text: str
    """Its source text when it was added; empty where there is none."""

    @property
    def module(self) -> str:
        """Module that it was defined in."""
        return str(getattr(unwrap_function(self.function), "__module__", ""))

    @property
    def qualname(self) -> str:
        """Name in its module."""
        return str(getattr(unwrap_function(self.function), "__qualname__", self.name))

    @property
    def digest(self) -> str:
        """Content token of the function as it is now: what it uses may have changed since it was added."""
        function = unwrap_function(self.function)
        content = (self.kind, self.name, self.version, self.declared, self.text)
        if not isinstance(function, FunctionType):
            return token(*content, self.module, self.qualname)
        return token(*content, *_iterate_used(function, {function}, text=bool(self.text)))

    @property
    def origin(self) -> str:
        """Where it comes from, its version and the beginning of its content, for provenance."""
        version = f" version {self.version}" if self.version else ""
        return f"{self.module}:{self.qualname}{version} content {self.digest[:12]}"


FUNCTION_IDENTITIES: Final[dict[tuple[str, str], FunctionIdentity]] = {}
"""Functions that users added, by kind and name."""


def add_identities(content: tuple[object, ...], kind: Kind, names: Iterable[str]) -> tuple[object, ...]:
    """Return the content of a step, with that of the functions in it that users added, where there are any."""
    digests = tuple(FUNCTION_IDENTITIES[kind, name].digest for name in names if (kind, name) in FUNCTION_IDENTITIES)
    return (*content, "added", digests) if digests else content


def unwrap_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of Python behind one that numba compiled or a decorator wrapped; itself elsewhere."""
    inner: Callable[..., Any] = inspect.unwrap(getattr(function, "py_func", function))
    return inner


def read_source_text(kind: Kind, name: str, function: object, version: str) -> str:
    """Return a function's source text, or nothing where it is known by its code or its version alone.

    Raises
    ------
    InvalidFunction
        It is no function, or nothing tells one version of it from another.
    """
    label = f"{kind} function {name!r}"
    if not callable(function):
        message = f"{label} needs a function of values below the decorator; got {function!r}"
        raise InvalidFunction(message)
    inner = unwrap_function(function)
    try:
        return inspect.getsource(inner)
    except (OSError, TypeError):
        pass
    if isinstance(inner, partial) or (not isinstance(inner, FunctionType) and not version):
        message = (
            f"{label} has neither source text nor code by which a changed one would be known ({inner!r}); define "
            f"it with "
            "'def', or give version='1' and change that when it changes"
        )
        raise InvalidFunction(message)
    return ""


def _iterate_used(function: FunctionType, seen: set[FunctionType], *, text: bool) -> Iterator[object]:
    """Yield content of a function beyond its text: its code where it has none, its defaults, what it refers to."""
    if not text:
        yield from _iterate_code(function.__code__)
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield from _iterate_value("default", value, function, seen)
    for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars, strict=True):
        try:
            yield from _iterate_value(name, cell.cell_contents, function, seen)
        except ValueError:
            # A name that is not bound yet has no value.
            continue
    for name in sorted(set(_iterate_names(function.__code__))):
        if name in function.__globals__:
            yield from _iterate_value(name, function.__globals__[name], function, seen)


def _iterate_value(name: str, value: object, user: FunctionType, seen: set[FunctionType]) -> Iterator[object]:
    inner = unwrap_function(value) if callable(value) else value
    if isinstance(inner, FunctionType):
        if inner not in seen and _find_package(inner) == _find_package(user):
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
        # Modules, classes and objects have no stable content; the version stands for them.
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
            # The order of a set changes from process to process.
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
