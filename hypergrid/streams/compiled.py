"""Compiled loops of the streams room (`hypergrid.machine_code`), kept by the content of all files listed here."""

from pathlib import Path

from hypergrid.machine_code import Compiled, compile_into, kept_in

HERE = Path(__file__).parent
SOURCES = (
    *(
        HERE / f"{name}.py"
        for name in ("compiled", "fields", "gate", "hints", "kernel", "lags", "observe", "progress", "table", "whole")
    ),
    HERE.parent / "machine_code.py",
)
"""What compiled functions are made of: their files, and those that their constants and records come from."""
_FOLDER = kept_in(SOURCES)


def compiled(function: Compiled) -> Compiled:
    """Compile a function that makes no array."""
    return compile_into(_FOLDER, set(), counted=False)(function)


def compiled_within(function: Compiled) -> Compiled:
    """Compile a function that makes no array into those that call it: for what is done for every tuple."""
    return compile_into(_FOLDER, set(), counted=False, within=True)(function)


def compiled_maker(function: Compiled) -> Compiled:
    """Compile a function that makes arrays; it is not to be called from within loops."""
    return compile_into(_FOLDER, set())(function)
