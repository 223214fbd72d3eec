"""Compiled loops of the streams room (`hypergrid.core.machine_code`), kept by the content of all files listed here."""

from pathlib import Path

from hypergrid.core.machine_code import Compiled, compile_into, find_cache_folder

PACKAGE = Path(__file__).parents[1]
SOURCES = tuple(
    PACKAGE / f"{name}.py"
    for name in (
        *(
            f"wo_join/{name}"
            for name in ("compiled", "early_close", "hash_table", "hints", "kernel", "lags", "observe")
        ),
        *(f"wo_join/{name}" for name in ("spilling/release_gate", "state_layout", "watermarks")),
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
