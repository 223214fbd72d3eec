"""Compiled loops of the streams room (`hypergrid.core.machine_code`), kept by the content of all files listed here."""

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
"""What compiled functions are made of: their files, and those that their constants and records come from."""
_FOLDER = find_cache_folder(SOURCES)


def jit(function: Compiled) -> Compiled:
    """Compile a function that makes no array."""
    return compile_into(_FOLDER, set(), counted=False)(function)


def jit_inline(function: Compiled) -> Compiled:
    """Compile a function that makes no array into those that call it: for what is done for every tuple."""
    return compile_into(_FOLDER, set(), counted=False, within=True)(function)


def jit_maker(function: Compiled) -> Compiled:
    """Compile a function that makes arrays; it is not to be called from within loops."""
    return compile_into(_FOLDER, set())(function)


# What compiled loops tell their compiler (LLVM) of numbers: it makes no code for what cannot be.
#
# Measured on the join of three streams, of 45 ns a tuple: without Python's negative indices it took 4 ns less. To say
# what is unlikely took up to 2 ns off; what was changed together with it (no modulo, fewer small loops) has a share.

Numba = Any
"""What numba and llvmlite hand over: a context, a builder of code, signatures, values; they are without types."""
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


assume = cast(Callable[[bool], None], intrinsic(_assume))
"""State a condition that always holds. Where it does not, anything may happen."""
index = cast(Callable[[int], int], intrinsic(_index))
"""Return an integer, of any width as 64 bits, that is never negative. Where it is, anything may happen."""
unlikely = cast(Callable[[bool], bool], intrinsic(_unlikely))
"""Return a condition, which seldom holds: what follows from it is kept out of the way of all else."""
