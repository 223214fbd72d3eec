"""What a damaged chunk held, as people know it: the variable, the times and the stations that it takes with it.

So whoever asks knows what to ask around: all other chunks answer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hypergrid.archive.arrays.attributes import node_name
from hypergrid.archive.arrays.cells import Slices
from hypergrid.archive.arrays.root import Root
from hypergrid.archive.arrays.table import CHUNK_ROWS
from hypergrid.archive.arrays.variable_group import GROUP as VARIABLES
from hypergrid.archive.arrays.variable_group import VariableGroup
from hypergrid.archive.disk.concurrent_io import DamagedChunk, DamagedChunks
from hypergrid.core.errors import DamagedArchive
from hypergrid.core.times import format_instant

_NAMED: Final = 8
"""Stations that are named."""


@contextmanager
def name_damaged_chunks(path: Path, layout: Callable[[], tuple[Root, Slices]]) -> Iterator[None]:
    """Turn the error about damaged chunks into one that names what they held.

    Parameters
    ----------
    path
        Folder of the archive.
    layout
        Gives its root and its slices, where they are needed.
    """
    try:
        yield
    except DamagedChunks as error:
        named = "; ".join(dict.fromkeys(describe_chunk(chunk, *layout()) for chunk in error.chunks))
        message = (
            f"{path} is damaged: {named} cannot be read, as the checksum differs; all else can, so that "
            f"questions about other times or stations are answered; 'hypergrid check {path} --repair' brings "
            "back what raw copies hold"
        )
        raise DamagedArchive(message) from error


def describe_chunk(chunk: DamagedChunk, root: Root, slices: Slices) -> str:
    """Return what a chunk holds: of a variable with times and stations, of anything else its array and rows."""
    names = {f"{VARIABLES}/{node_name(name)}": name for name in root.variables}
    group, _, array = chunk.array.rpartition("/")
    name = names.get(group.removesuffix("/side"))
    if name is None:
        return str(chunk)
    variable = VariableGroup.load(root.group, name)
    if group.endswith("/side"):
        when = _times_of_rows(chunk.block[0], variable)
        return f"{array} of readings beside the slices of {name}{when}"
    rows, columns = chunk.block
    stations = list(dict.fromkeys(item.station for item in variable.series[columns]))
    more = f" and {len(stations) - _NAMED} more" if len(stations) > _NAMED else ""
    when = _span(slices.start_ns(rows.start), slices.start_ns(rows.stop))
    return f"{array} of {name}{when}, stations {', '.join(stations[:_NAMED])}{more}"


def _times_of_rows(rows: slice, variable: VariableGroup) -> str:
    """Return where rows of a side table lie in time; empty: an older archive does not tell."""
    chunk = rows.start // CHUNK_ROWS
    if variable.spans is None or chunk >= len(variable.spans):
        return ""
    first_ns, last_ns = variable.spans[chunk].tolist()
    return _span(first_ns, last_ns)


def _span(start_ns: int, stop_ns: int) -> str:
    return f" from {format_instant(start_ns)} to {format_instant(stop_ns)}"
