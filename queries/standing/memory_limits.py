"""What a standing query may take: one that would need more memory than there is fails by itself, and is told."""

from collections.abc import Iterable
from typing import Final

from hypergrid.core.errors import TooLarge
from hypergrid.execution.planning.plan import free_bytes
from hypergrid.perspective import Perspective

SMALL_BYTES: Final = 1 << 26
"""Below it nobody looks what is free [bytes]."""
CELL_BYTES: Final = 16
"""A value and a count."""
REMEDY: Final = "give it a window or a clip in time, a coarser step or a smaller grid"


def refuse_large(name: str, parts: Iterable[Perspective]) -> None:
    """Refuse surfaces, computed at once, that need more than half of the memory that is free.

    Raises
    ------
    TooLarge
        Their steps, all held at once, project more; both numbers are told.
    """
    projected = sum(projected_bytes(part) for part in parts)
    if projected <= SMALL_BYTES:
        return
    allowed = free_bytes() // 2
    if projected > allowed:
        label = f"standing query {name!r}"
        raise TooLarge(label, "bytes of memory", projected, allowed, REMEDY)


def projected_bytes(node: Perspective) -> int:
    """Return what the cells of a chain take, all steps held at once [bytes]."""
    return sum(CELL_BYTES * item.topology.count for item in node.list_chain() if not item.holds_readings)
