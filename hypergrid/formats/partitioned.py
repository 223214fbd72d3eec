"""A surface in pieces of time that processes compute apart, and one file of them; the numbers are `Query.compute`'s.

A piece is a range of the surface's time cells. The chain is narrowed to them with all that they need below, as a clip
is pushed down (`perspective/restrict.py`), so every cell keeps its value. Where something is learnt from all slices (a
variogram that is fitted, a correlation in time that is not given), or where cells come again, there is one piece.
"""

import json
import math
import shutil
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from hypergrid.analysis.incremental import clip_query, needs_all_slices
from hypergrid.core.errors import DamagedArchive, TooLarge
from hypergrid.core.tokens import token
from hypergrid.core.version import VERSION
from hypergrid.execution import Outcome, free_bytes, make_plan, make_streamed_plan, run, start_store, to_dataset
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.planning.invalidation import is_fitted_to_data
from hypergrid.execution.running.buffer_pool import allocate
from hypergrid.formats.results import swap, write
from hypergrid.perspective import Interpolate, Recur, Surface
from hypergrid.perspective.build.restrict import restrict
from hypergrid.query import Query
from hypergrid.topology import Periodic

READINGS_OF_A_PIECE: Final = 2_000_000
CELLS_OF_A_PIECE: Final = 4_000_000
"""Cells of the base, and of the surface, that a piece has about: it is computed in seconds, in less than a gigabyte."""

_UNREADABLE: Final = (
    OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, SyntaxError, tokenize.TokenError, zlib.error,
    zipfile.BadZipFile,
)  # fmt: skip
"""What zipfile and numpy raise where a byte of a file is another."""
_SAVED_FIELDS: Final = ("value", "count", "possible", "variance", "variance_low", "extrapolated")
_WORD_FIELDS: Final = ("left_out", "notes", "correlation", "buffered")
_WORDS_KEY: Final = "said"
"""Of a piece that is saved: arrays of its outcome, what is no array, and the member that holds that as JSON."""
_ARRAYS: Final = ("value", "count", "possible", "variance", "variance_low")


def split_pieces(query: Query, *, workers: int) -> list[slice]:
    """Return the ranges of time cells that are computed apart; one, where cells depend on what others are computed.

    Parameters
    ----------
    workers
        How many processes there are; where each piece needs all readings, as for a climatology, there are no more
        pieces.

    Raises
    ------
    HyperGridError
        The query cannot be answered.
    """
    node = clip_query(query)
    times = node.topology.time.count
    chain = node.list_chain()
    learnt = any(isinstance(item.operator, Interpolate) and is_fitted_to_data(item.operator) for item in chain)
    if learnt or needs_all_slices(node) or isinstance(node.topology.time, Periodic):
        return [slice(0, times)]
    readings = sum(item.topology.count for item in node.list_bases())
    wanted = max(readings / READINGS_OF_A_PIECE, node.topology.count / CELLS_OF_A_PIECE)
    count = min(times, workers if any(isinstance(item.operator, Recur) for item in chain) else math.ceil(wanted))
    edges = np.linspace(0, times, max(1, count) + 1).round().astype(int).tolist()
    return [slice(first, stop) for first, stop in zip(edges[:-1], edges[1:], strict=True)]


def pieces_token(query: Query, ranges: Sequence[slice]) -> str:
    """Return what names the pieces of a query: those of one name can be put together."""
    return token(VERSION, query.token, query.to_json(), [(time_range.start, time_range.stop) for time_range in ranges])


def compute_piece(query: Query, piece: slice, *, allowed_bytes: int | None = None) -> Outcome:
    """Compute a range of time cells; errors as of `Query.compute`."""
    allowed = free_bytes() // 2 if allowed_bytes is None else allowed_bytes
    node = clip_query(query)
    plan = make_plan(Surface(restrict(node, piece)), allowed_bytes=allowed)
    plan.check(allowed)
    *_, last = run(plan, watched=False)
    outcome = last.outcome
    # What is only of use while it runs stays here.
    return replace(outcome, computed=np.zeros(0, dtype=bool), work={})


def save_piece(outcome: Outcome, path: Path) -> None:
    """Write a piece to a file (npz, whose members carry checksums), which is there whole or not at all."""
    arrays = {name: array for name in _SAVED_FIELDS if (array := getattr(outcome, name)) is not None}
    words = json.dumps({name: getattr(outcome, name) for name in _WORD_FIELDS}).encode()
    scratch = path.with_name(f".{path.name}.part")
    with scratch.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays, **{_WORDS_KEY: np.frombuffer(words, np.uint8)})
    scratch.replace(path)


def load_piece(path: Path) -> Outcome:
    """Return what `save_piece` wrote.

    Raises
    ------
    DamagedArchive
        The file is not what was written.
    """
    try:
        with np.load(path, allow_pickle=False) as kept:
            arrays = {name: kept[name] for name in kept.files}
        words = json.loads(arrays.pop(_WORDS_KEY).tobytes())
        return Outcome(**arrays, **{name: words[name] for name in _WORD_FIELDS})
    except FileNotFoundError:
        raise
    except _UNREADABLE as error:
        message = f"{path} is not what was written ({error}); start the same command again: it is computed once more"
        raise DamagedArchive(message) from error


def gather(query: Query, piece_files: Iterable[tuple[slice, Path]], out: Path, *, history: str) -> int:
    """Put the pieces of a surface into one file, as `hypergrid query` writes it; return how many cells are missing.

    A store (.zarr) is written piece by piece, whatever its size; of other formats the whole is in memory. What was at
    `out` is replaced at the end, at once.

    Raises
    ------
    NotFound, InvalidQuery
        The path cannot be used.
    TooLarge
        The format needs more memory than is free.
    """
    if out.suffix == ".zarr":
        return _gather_store(query, piece_files, out, history=history)
    surface = query.surface()
    plan = make_plan(surface)
    shape = plan.surface.topology.time.count, plan.surface.topology.space.count
    # Values and two counts, and the file as it is made.
    needed, allowed = 4 * 8 * shape[0] * shape[1], free_bytes() // 2
    if needed > allowed:
        subject, what = f"the result {out.name}", "bytes of memory"
        raise TooLarge(subject, what, needed, allowed, "name it .zarr, which is written piece by piece")
    whole = Outcome(allocate(shape), computed=np.ones(shape[1], dtype=bool))
    for piece, path in piece_files:
        part = load_piece(path)
        whole.put_times(slice(0, shape[1]), np.arange(piece.start, piece.stop), _make_cells(part))
        _merge_diagnostics(whole, part)
    dataset = to_dataset(query.question, plan.surface, whole, token=plan.original.token)
    write(dataset.assign_attrs(history=history), out)
    return int(np.count_nonzero(np.isnan(whole.value)))


def _gather_store(query: Query, piece_files: Iterable[tuple[slice, Path]], out: Path, *, history: str) -> int:
    plan, chunks = make_streamed_plan(query.surface(), None)
    scratch = out.with_name(f".{out.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    whole = start_store(scratch, query.question, plan, chunks)
    for piece, path in piece_files:
        part = load_piece(path)
        times = np.arange(piece.start, piece.stop)
        whole.put_times(slice(0, plan.surface.topology.space.count), times, _make_cells(part))
        _merge_diagnostics(whole, part)
    whole.finish({"history": history})
    swap(scratch, out)
    return whole.missing


def _make_cells(part: Outcome) -> Cells:
    arrays: dict[str, Any] = {name: getattr(part, name) for name in _ARRAYS}
    for name in ("count", "possible"):
        if arrays[name] is None:
            arrays[name] = np.zeros((1, 1), dtype=np.int64)
    return Cells(**arrays)


def _merge_diagnostics(whole: Outcome, part: Outcome) -> None:
    """Add what a piece tells beside its values to what the others told."""
    for reason, count in part.left_out.items():
        whole.left_out[reason] = whole.left_out.get(reason, 0) + count
    whole.notes = list(dict.fromkeys([*whole.notes, *part.notes]))
    whole.correlation = whole.correlation or part.correlation
    if part.extrapolated is not None:
        before = np.zeros_like(part.extrapolated) if whole.extrapolated is None else whole.extrapolated
        whole.extrapolated = before | part.extrapolated
