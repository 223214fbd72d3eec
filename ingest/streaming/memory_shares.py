"""Shares of groups of stations in a stream's memory, by what their joins need (equation 3.8 of the thesis).

They are decided after a batch was committed and hold from the record behind it on, so a batch that is repeated has the
shares that it had before. Until the need of each group is known, shares are equal.
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from hypergrid.archive.disk.checksums import read_checked, write_checked
from hypergrid.core.errors import DamagedArchive
from hypergrid.core.files import sync_folder
from hypergrid.wo_join.memory import split_memory
from ingest.deployment.deployment_file import LEAST_MEMORY
from ingest.streaming.assembler import JoinStatus
from ingest.streaming.spilled_rows import StateUnusable
from ingest.streaming.stream_commit import SHARES

CHANGE: Final = 0.05
"""Shares stay until one would change by as much of the limit: rows are not moved to disk and back for less."""
KEPT: Final = 32
"""Decisions that stay known, for batches that are repeated."""


def split(memory: int, joins: Mapping[str, JoinStatus]) -> dict[str, float] | None:
    """Return the share of each group in a limit of memory [bytes]; None: the need of one is not known yet.

    Each has what its rows would take in memory by equation 3.8 if all fit, and an equal part of what is left; otherwise
    the least and a part of the rest in proportion to its need. A group that has sent nothing needs the least.
    """
    needed = {}
    for group, join in joins.items():
        if join.needed is None and join.streams:
            return None
        needed[group] = max(float(LEAST_MEMORY), (join.needed or 0.0) * join.row_bytes)
    parts = split_memory(list(needed.values()), [float(LEAST_MEMORY)] * len(needed), memory)
    spare = (memory - sum(parts)) / len(parts)
    return {group: (part + spare) / memory for group, part in zip(needed, parts, strict=True)}


def decide(folder: Path, first: int, shares: Mapping[str, float]) -> None:
    """Have shares hold from a record of the spool on, unless they hardly differ from those before.

    Parameters
    ----------
    folder
        Folder of the stream.
    first
        Number of the record.
    """
    decisions = _read(folder)
    before = decisions[-1][1] if decisions else dict.fromkeys(shares, 1 / len(shares))
    is_same = before.keys() == shares.keys() and all(abs(before[name] - shares[name]) < CHANGE for name in shares)
    if is_same or (decisions and first <= decisions[-1][0]):
        return
    path = folder / SHARES
    write_checked(path, {"decisions": [*decisions, (first, dict(shares))][-KEPT:]})
    # A power cut must not take them from the batch that has them.
    with path.open("rb") as file:
        os.fsync(file.fileno())
    sync_folder(folder)


def memory_of(folder: Path, memory: int, group: str, groups: Collection[str], first: int) -> int:
    """Return the memory of one of several groups in a batch that begins with a record [bytes].

    Raises
    ------
    StateUnusable
        The file of the shares is damaged: the batch may have had others before.
    """
    held = [shares for since, shares in _read(folder) if since <= first]
    share = held[-1][group] if held and held[-1].keys() == set(groups) else 1 / len(groups)
    return max(LEAST_MEMORY, int(share * memory))


def _read(folder: Path) -> list[tuple[int, dict[str, float]]]:
    try:
        return [(first, shares) for first, shares in read_checked(folder / SHARES)["decisions"]]
    except FileNotFoundError:
        return []
    except (OSError, DamagedArchive, KeyError, TypeError, ValueError) as error:
        raise StateUnusable(f"the shares of a stream's memory cannot be read: {error}") from error
