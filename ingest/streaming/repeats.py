"""Messages and rows that a stream brings again, as a device repeats what was not acknowledged."""

import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import equal_values
from ingest.formats.document_records import AGAIN_NS
from ingest.streaming.spool_decoder import RowBatch

REMEMBERED: Final = 4
"""Messages remembered per device, to recognise repeats."""


@dataclass
class SentMessages:
    """Last messages of devices that number their messages."""

    by_origin: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)
    """Counter, hash of the values and first timestamp [ns] of each message, by origin."""

    def first_times(self, rows: RowBatch) -> NDArray[np.int64]:
        """Return the timestamps, with those of repeated messages replaced by the first one, shape (m,)."""
        time_ns = rows.time_ns.copy()
        counted = np.flatnonzero(rows.counter >= 0)
        starts = rows.starts
        for row in counted.tolist():
            span = slice(int(starts[row]), int(rows.stops[row]))
            digest = zlib.crc32(rows.value[span].tobytes(), zlib.crc32(rows.column[span].tobytes()))
            entries = self.by_origin.setdefault(int(rows.origin[row]), deque(maxlen=REMEMBERED))
            counter, now = int(rows.counter[row]), int(time_ns[row])
            known = next((was for n, what, was in entries if (n, what) == (counter, digest)), None)
            if known is not None and abs(now - known) <= AGAIN_NS:
                time_ns[row] = known
            else:
                entries.append((counter, digest, now))
        return time_ns


def find_repeats(rows: RowBatch) -> NDArray[np.bool_]:
    """Tell which rows repeat the previous row of their station and instant exactly, shape (m,)."""
    order = np.lexsort((rows.time_ns, rows.origin))
    same = (np.diff(rows.origin[order]) == 0) & (np.diff(rows.time_ns[order]) == 0) & (np.diff(rows.sizes[order]) == 0)
    later = np.flatnonzero(same) + 1
    later_rows, other = rows.take(order[later]), rows.take(order[later - 1])
    equal = equal_values(later_rows.value, other.value)
    equal &= (later_rows.column == other.column) & (later_rows.flag == other.flag)
    differs = (
        np.bincount(np.repeat(np.arange(len(later_rows)), later_rows.sizes), ~equal, minlength=len(later_rows)) > 0
    )
    is_repeat = np.zeros(len(rows), np.bool_)
    is_repeat[order[later[~differs]]] = True
    return is_repeat
