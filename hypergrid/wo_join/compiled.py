"""Compilers of the streams room (`hypergrid.core.machine_code`), cached by the content of all files listed here."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hypergrid.core.machine_code import Compiled, compile_into, find_cache_folder

PACKAGE = Path(__file__).parents[1]
SOURCES = tuple(
    PACKAGE / f"{name}.py"
    for name in (
        *(
            f"wo_join/{name}"
            for name in (
                "compiled",
                "hash_table",
                "kernel",
                "lags",
                "observe",
                "spilling/release_gate",
                "state_layout",
                "watermarks",
            )
        ),
        "core/machine_code",
    )
)
"""Source files of the compiled functions, and of the constants and records that they use."""
_FOLDER = find_cache_folder(SOURCES)


def jit(function: Compiled) -> Compiled:
    """Compile a function that creates no arrays."""
    return compile_into(_FOLDER, set(), counted=False)(function)


def jit_inline(function: Compiled) -> Compiled:
    """Compile a function that creates no arrays inline into its callers, for per-tuple work; Python cannot call it."""
    return compile_into(_FOLDER, set(), counted=False, within=True, wrapped=False)(function)


def jit_shared(function: Compiled) -> Compiled:
    """Compile a function that creates no arrays inline into its callers, and for Python."""
    return compile_into(_FOLDER, set(), counted=False, within=True)(function)


def jit_maker(function: Compiled) -> Compiled:
    """Compile a function that creates arrays; it must not be called inside loops."""
    return compile_into(_FOLDER, set())(function)


# Hints for the compiler (LLVM), which omits code for cases that are excluded.
#
# Measured on the join of three streams at 45 ns a tuple: excluding Python's negative indices saved 4 ns. Marking
# unlikely conditions saved up to 2 ns, part of which is due to changes made with it (no modulo, fewer small loops).
# Each array of a record counts as several arguments, and the more arguments a function has, the larger it may be to be
# inlined: rarely called functions that stay apart saved 7 to 10 % of the time of streams in order.

Numba = Any
"""Untyped objects of numba and llvmlite: context, builder, signature, values."""
Code = Callable[[Numba, Numba, Numba, Sequence[Numba]], Numba]
BIT = ir.IntType(1)


def _assume(_: object, condition: Numba) -> tuple[Numba, Code]:
    def code(context: Numba, builder: Numba, signature: Numba, values: Sequence[Numba]) -> Numba:
        builder.assume(context.cast(builder, values[0], signature.args[0], types.boolean))
        return context.get_dummy_value()

    return types.none(condition), code


def _index(_: object, number: Numba) -> tuple[Numba, Code]:
    def code(context: Numba, builder: Numba, signature: Numba, values: Sequence[Numba]) -> Numba:
        wide = context.cast(builder, values[0], signature.args[0], types.intp)
        builder.assume(builder.icmp_signed(">=", wide, ir.Constant(wide.type, 0)))
        return wide

    return types.intp(number), code


def _unlikely(_: object, condition: Numba) -> tuple[Numba, Code]:
    def code(context: Numba, builder: Numba, signature: Numba, values: Sequence[Numba]) -> Numba:
        is_so = context.cast(builder, values[0], signature.args[0], types.boolean)
        expect = builder.module.declare_intrinsic("llvm.expect", [BIT], ir.FunctionType(BIT, [BIT, BIT]))
        return builder.call(expect, [is_so, BIT(0)])

    return types.boolean(condition), code


def _stay_apart(_: object) -> tuple[Numba, Code]:
    def code(context: Numba, builder: Numba, signature: Numba, values: Sequence[Numba]) -> Numba:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.none(), code


assume = cast(Callable[[bool], None], intrinsic(_assume))
"""Promise the compiler that a condition holds; behaviour is undefined if it does not."""
index = cast(Callable[[int], int], intrinsic(_index))
"""Convert an integer to 64 bits, promising that it is not negative; behaviour is undefined if it is."""
unlikely = cast(Callable[[bool], bool], intrinsic(_unlikely))
"""Mark a condition as unlikely, so that the code for it is moved out of the hot path."""
stay_apart = cast(Callable[[], None], intrinsic(_stay_apart))
"""Keep the function that calls this out of the code of its callers."""
