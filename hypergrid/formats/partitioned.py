"""Partition a surface by time for independent processes, and merge the parts.

The result equals that of `Query.compute`.

A piece is a range of the surface's time cells. The chain is restricted to them and their inputs as in clip push-down
(`perspective/build/restrict.py`), so every cell keeps its value. There is a single piece if a step is fitted to all
slices (a fitted variogram, a temporal correlation that is not given) or if cells recur.
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

from hypergrid.analysis.incremental import clip_query
from hypergrid.core.errors import DamagedArchive, TooLarge
from hypergrid.core.files import replace_atomically
from hypergrid.core.tokens import token
from hypergrid.core.version import VERSION
from hypergrid.execution import Outcome, free_bytes, make_plan, make_streamed_plan, run, start_store, to_dataset
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.planning.dependencies import list_fitted_steps, needs_all_slices
from hypergrid.execution.running.result_cache import allocate
from hypergrid.formats.results import swap, write
from hypergrid.perspective import Recur, Surface
from hypergrid.perspective.build.restrict import restrict
from hypergrid.query import Query
from hypergrid.topology import Periodic

READINGS_OF_A_PIECE: Final = 2_000_000
CELLS_OF_A_PIECE: Final = 4_000_000
"""Target number of base cells, and of surface cells, per piece: seconds of work in less than a gigabyte."""

_UNREADABLE: Final = (
    OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, SyntaxError, tokenize.TokenError, zlib.error,
    zipfile.BadZipFile,
)  # fmt: skip
"""Errors of zipfile and numpy on a damaged file."""
_SAVED_FIELDS: Final = ("value", "count", "possible", "variance", "variance_low", "extrapolated")
_WORD_FIELDS: Final = ("left_out", "notes", "correlation", "buffered")
_WORDS_KEY: Final = "said"
"""Layout of a saved piece: array fields, other fields, and the member that stores the latter as JSON."""
_ARRAYS: Final = ("value", "count", "possible", "variance", "variance_low")


def split_pieces(query: Query, *, workers: int) -> list[slice]:
    """Partition the time cells into ranges; one if cells depend on each other.

    Parameters
    ----------
    workers
        Number of processes: the upper bound if every piece needs all readings, as for a climatology.

    Raises
    ------
    HyperGridError
        The query cannot be answered.
    """
    node = clip_query(query)
    times = node.topology.time.count
    chain = node.list_chain()
    if list_fitted_steps(node) or needs_all_slices(node) or isinstance(node.topology.time, Periodic):
        return [slice(0, times)]
    readings = sum(item.topology.count for item in node.list_bases())
    wanted = max(readings / READINGS_OF_A_PIECE, node.topology.count / CELLS_OF_A_PIECE)
    count = min(times, workers if any(isinstance(item.operator, Recur) for item in chain) else math.ceil(wanted))
    edges = np.linspace(0, times, max(1, count) + 1).round().astype(int).tolist()
    return [slice(first, stop) for first, stop in zip(edges[:-1], edges[1:], strict=True)]


def pieces_token(query: Query, ranges: Sequence[slice]) -> str:
    """Return the token of a partitioning; only pieces with equal tokens can be merged."""
    return token(VERSION, query.token, query.to_json(), [(time_range.start, time_range.stop) for time_range in ranges])


def compute_piece(query: Query, piece: slice, *, allowed_bytes: int | None = None) -> Outcome:
    """Compute a range of time cells; raises the errors of `Query.compute`."""
    allowed = free_bytes() // 2 if allowed_bytes is None else allowed_bytes
    whole = clip_query(query)
    node = restrict(whole, piece)
    plan = make_plan(Surface(node), allowed_bytes=allowed)
    plan.check(allowed)
    *_, last = run(plan, watched=False, is_part=node.topology.time.count < whole.topology.time.count)
    outcome = last.outcome
    # Both fields are of use only during the run, and are not saved.
    return replace(outcome, computed=np.zeros(0, dtype=bool), work={})


def save_piece(outcome: Outcome, path: Path) -> None:
    """Write a piece atomically to an npz file, whose members carry checksums."""
    arrays = {name: array for name in _SAVED_FIELDS if (array := getattr(outcome, name)) is not None}
    words = json.dumps({name: getattr(outcome, name) for name in _WORD_FIELDS}).encode()
    with replace_atomically(path) as scratch, scratch.open("wb") as file:
        # Without pickle, loading a piece never executes code.
        np.savez(file, allow_pickle=False, **arrays, **{_WORDS_KEY: np.frombuffer(words, np.uint8)})


def load_piece(path: Path) -> Outcome:
    """Load a piece written by `save_piece`.

    Raises
    ------
    DamagedArchive
        The file differs from what was written.
    """
    try:
        with np.load(path, allow_pickle=False) as kept:
            arrays = {name: kept[name] for name in kept.files}
        words = json.loads(arrays.pop(_WORDS_KEY).tobytes())
        return Outcome(**arrays, **{name: words[name] for name in _WORD_FIELDS})
    # A missing piece is not a damaged one.
    except FileNotFoundError:
        raise
    except _UNREADABLE as error:
        raise DamagedArchive(
            f"{path} is not what was written ({error}); start the same command again: it is computed once more"
        ) from error


def gather(query: Query, piece_files: Iterable[tuple[slice, Path]], out: Path, *, history: str) -> int:
    """Merge the pieces of a surface into one file; return the number of missing cells.

    The file is the same as that of `hypergrid query`. A Zarr store (.zarr) is written piece by piece, whatever its
    size; other formats need the whole result in memory. An existing result at `out` is replaced atomically at the end.

    Raises
    ------
    NotFound, InvalidQuery
        The path cannot be used.
    TooLarge
        The result needs more memory than is available.
    """
    if out.suffix == ".zarr":
        return _gather_store(query, piece_files, out, history=history)
    plan = make_plan(query.surface())
    shape = plan.surface.topology.time.count, plan.surface.topology.space.count
    # Four arrays of 8 bytes: the values, two counts, and the encoded file.
    needed, allowed = 4 * 8 * shape[0] * shape[1], free_bytes() // 2
    if needed > allowed:
        remedy = "name it .zarr, which is written piece by piece"
        raise TooLarge(f"the result {out.name}", "bytes of memory", needed, allowed, remedy)
    whole = Outcome(allocate(shape), computed=np.ones(shape[1], dtype=bool))
    for piece, path in piece_files:
        _put_piece(whole, piece, load_piece(path), shape[1])
    dataset = to_dataset(query.question, plan.surface, whole, token=plan.original.token)
    write(dataset.assign_attrs(history=history), out)
    return int(np.count_nonzero(np.isnan(whole.value)))


def _gather_store(query: Query, piece_files: Iterable[tuple[slice, Path]], out: Path, *, history: str) -> int:
    plan, chunks = make_streamed_plan(query.surface(), None)
    scratch = out.with_name(f".{out.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    whole = start_store(scratch, query.question, plan, chunks)
    for piece, path in piece_files:
        _put_piece(whole, piece, load_piece(path), plan.surface.topology.space.count)
    whole.finish({"history": history})
    swap(scratch, out)
    return whole.missing


def _put_piece(whole: Outcome, piece: slice, part: Outcome, cells: int) -> None:
    arrays: dict[str, Any] = {name: getattr(part, name) for name in _ARRAYS}
    for name in ("count", "possible"):
        if arrays[name] is None:
            arrays[name] = np.zeros((1, 1), dtype=np.int64)
    whole.put_times(slice(0, cells), np.arange(piece.start, piece.stop), Cells(**arrays))
    for reason, count in part.left_out.items():
        whole.left_out[reason] = whole.left_out.get(reason, 0) + count
    whole.notes = list(dict.fromkeys([*whole.notes, *part.notes]))
    whole.correlation = whole.correlation or part.correlation
    if part.extrapolated is not None:
        before = np.zeros_like(part.extrapolated) if whole.extrapolated is None else whole.extrapolated
        whole.extrapolated = before | part.extrapolated
