"""Compilers of the loops of continuous queries (`hypergrid.core.machine_code`), cached by their content.

The loops read columns as 64-bit integers whatever their kind, so each function has one specialisation.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from hypergrid.core.machine_code import Compiled, compile_into, find_cache_folder
from hypergrid.wo_join import compiled as hints

_HOME = Path(__file__).parent
_CORE = Path(__file__).parents[3] / "core"
SOURCES = (*sorted(_HOME.glob("*.py")), Path(hints.__file__), _CORE / "machine_code.py")
"""Source files of the compiled functions."""
_FOLDER = find_cache_folder(SOURCES)


Word: TypeAlias = Any
"""Integer of 64 bits, or a number of 64 bits: of Python where it calls, of numpy in the loops."""

index: Callable[[Word], Word] = hints.index
"""Convert an integer to 64 bits, promising that it is not negative; behaviour is undefined if it is."""

FUNCTIONS: Final["list[SpecialisedFunction]"] = []
"""Functions that Python calls, once their modules are imported: a closed list of at most twelve."""


class SpecialisedFunction:
    """A compiled function with one specialisation, that of the first call, which Python calls without dispatch.

    Dispatch takes 6 us for thirty arrays, longer than a small batch spends in the loop. Without it an array of another
    size of items raises `TypeError`, but other kinds, shapes and strides are taken for those of the specialisation.
    """

    checks_types = False
    """Whether each call still checks the types of its arguments; others raise `TypeError`."""

    def __init__(self, dispatcher: Any) -> None:  # noqa: ANN401 - numba has no types
        self.dispatcher = dispatcher
        self._enter: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401 - arrays and tuples of them
        if self._enter is None:
            # If several threads make the first call at once, numba compiles once and the others wait.
            result = self.dispatcher(*arguments)
            [specialisation] = self.dispatcher.overloads.values()
            self._enter = specialisation.entry_point
            return result
        if self.checks_types:
            self.dispatcher.disable_compile()
            return self.dispatcher(*arguments)
        return self._enter(*arguments)


def jit(function: Compiled) -> Compiled:
    """Compile a function that creates no arrays, for Python."""
    compiled = SpecialisedFunction(compile_into(_FOLDER, set(), counted=False)(function))
    FUNCTIONS.append(compiled)
    return cast(Compiled, compiled)


def jit_inline(function: Compiled) -> Compiled:
    """Compile a function that creates no arrays inline into its callers; Python cannot call it."""
    return compile_into(_FOLDER, set(), counted=False, within=True, wrapped=False)(function)


def jit_apart(function: Compiled) -> Compiled:
    """Compile a function that creates no arrays for compiled callers."""
    return compile_into(_FOLDER, set(), counted=False, wrapped=False)(function)
