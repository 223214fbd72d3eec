"""Layout of a join's state: arrays only, shared by compiled loops and snapshots.

`per` has a row of integers for each stream, `join_state` one row for the join (`whole` in snapshots). Keys are int64
between `FLOOR` and `CEILING`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]
Floats = NDArray[np.float64]

FLOOR = -(2**62)
"""Less than every key."""
CEILING = 2**62
"""Greater than every key."""
NONE = -1
"""Absent slot, entry or stream."""

EPOCH = 4096
"""Tuples of a stream per monitoring epoch; a monitor covers the current epoch and the one before."""
WARM = 32
"""Tuples of a stream before its monitored parameters are used; until then nothing is dropped on its account."""
RATED = 128
"""Number of last tuples of a stream over which its rate is measured (a power of two)."""
FINE = 5
"""Bits of resolution of the disorder histogram: bucket widths are at most 1/32 of the disorder."""
BUCKETS = 1920
"""Buckets of the disorder histogram, which cover a disorder of up to 2^62."""

# Columns of `per`: what the monitors know of a stream …
COUNT, GREATEST, LAST = 0, 1, 2
"""Tuples so far (the physical index of the last), greatest key, last arrival [ns]."""
DISPLACED, DISPLACED_BEFORE, REPEATED, REPEATED_BEFORE, WORST, WORST_BEFORE = 4, 5, 6, 7, 8, 9
"""Greatest displacement [tuples], repetition [tuples] and disorder [key units], of this epoch and the one before."""
FIRST_RECORD, END_RECORD, SHORT = 10, 11, 12
"""Ring of running maxima: index of the first, index after the last, and whether a search hit the start of the ring."""
QUANTILE, ABOVE, COUNTED = 13, 14, 15
"""Disorder histogram: the quantile's bucket, number of tuples above it, number of tuples in all."""
STILL = 16
"""Tuples since the greatest key last grew."""
RANKED, BELOW = 17, 18
"""Length of the sorted list of greatest keys, and the number of smaller keys dropped from it."""
# … and what the join does with it.
LINE, SWEPT, HELD, PEAK = 19, 20, 21, 22
"""Watermark: the stream is expected to bring no key below LINE. Its tuples below SWEPT are dropped; number of tuples
held now, and at most so far."""
ASLEEP, AWAY, OLDEST, NEWEST, REACHED, BOUND, LATE = 23, 24, 25, 26, 27, 28, 29
"""Whether asleep; last quarantined key or FLOOR; ends of its queue; the record at which LINE is; tuples it may hold;
tuples that were late or quarantined."""
RETURNS = 30
"""Number of consecutive tuples from far behind the stream's greatest key."""

KNOWN_DISPLACED, KNOWN_DISORDER = 32, 33
"""Known scrambling factor [tuples] and greatest disorder [key units], -1 if monitored."""
GUARD, TURN, GUARDED = 31, 34, 35
"""Key above which no tuple can have a greater displacement than this epoch's maximum; tuple count at which one more
tuple may lie above the quantile; tuple count until which GUARD is valid."""
KNOWN_REPEATED = 36
"""Known multiplicity [tuples], -1 if monitored."""
COLUMNS = 37

# Columns of an entry …
AFTER, SIZE, WATCH, TAILS = 0, 1, 2, 3
"""Next entry of the bucket or of the free list; tuples of all streams; the stream whose absence last prevented a
result, which is probed first (probe order by last failure); column at which the streams' last tuples begin."""
WHOLE = -1
"""SIZE of a completed entry: every expected tuple arrived, its results are emitted, its tuples dropped."""
# … and of a slot.
NEXT, OWNER, ORDINAL, YOUNGER = 0, 1, 2, 3
"""Next tuple of the ring or of the free list; the entry; ordinal of the tuple within its key and stream, from
0; the next tuple of the stream by arrival."""

# Places in `join_state`.
CLOCK, FREE_SLOT, FREE_ENTRY, HELD_ALL, ENTRIES, GREATEST_ALL, SWEPT_ALL, DEADLINE = 0, 1, 2, 3, 4, 5, 6, 7
LEAST_LINE, NEXT_LINE, LAST_STREAM, PEAK_ALL, TAKEN = 8, 9, 10, 11, 12
"""Least watermark of all awake streams, second least, the stream of the least; peak of tuples held; tuples taken."""
WRITTEN, LATE_WRITTEN, PENDING, PENDING_DONE, SHIFT = 13, 14, 15, 16, 17
VISITS, DROPS, ADVANCES, NEEDED, TOP_SWEPT = 18, 19, 20, 21, 22
CREATED, FIRST_KEY, REACH, MOVED, DROPS_WHOLE = 23, 24, 25, 26, 27
"""DROPS_WHOLE: whether tuples are dropped as soon as their entry is complete."""
# Settings of the join, in the same row: the window in tuples or ns, the silence after which a stream is asleep [ns],
# one in how many tuples may exceed the disorder quantile, the jump limit of a clock in key units (0: judged), and bytes
# allowed, of a tuple, and of a key.
POLICY, FORM, WINDOW, IDLE, RARE, JUMP, ALLOWED, SLOT_BYTES, ENTRY_BYTES = 32, 33, 34, 35, 36, 37, 38, 39, 40
PLACES = 48

# Return codes of the loop.
DONE, OUTPUT_FULL, SLOTS_FULL, ENTRIES_FULL, LATE_FULL, RECORDS_SHORT, RANKS_FULL, RETUNE, LIMIT = range(9)

# Policies and forms.
WINDOW_COUNT, WINDOW_TIME, PUBLISHED, PROGRESS = range(4)
INNER, ASSEMBLING = range(2)
# Reason of a tuple in `late`.
CLOSED, QUARANTINED = 0, 1


class MonitorState(NamedTuple):
    """State of the monitors of n streams."""

    per: Ints
    """State of each stream, shape (n, COLUMNS)."""
    records: Ints
    """Rings of running maxima: physical index, key, arrival [ns]; shape (n, a power of two, 3)."""
    rates: Ints
    """Rings of the last arrivals [ns], shape (n, RATED)."""
    spread: Narrow
    """Disorder histograms: of both epochs, and of the current one; shape (n, 2, BUCKETS)."""
    ranks: Ints
    """Greatest keys of each stream, sorted, shape (n, capacity); capacity 0 if lags are not monitored."""
    reaches: Floats
    """Tuples that each stream (row) holds for each other (column) beyond its scrambling factor, shape (n, n)."""


class HeldTuples(NamedTuple):
    """Tuples held by a join: one hash table, an entry per key, a slot per tuple."""

    buckets: Narrow
    """First entry of each bucket, shape (a power of two,)."""
    keys: Ints
    """Key of each entry, shape (entries,)."""
    heads: Narrow
    """State of each entry, and the last tuple of each stream in it; shape (entries, TAILS + n)."""
    links: Narrow
    """Links of each slot, shape (slots, 4); the tuples of one stream in one entry form a ring."""
    rows: Ints
    payloads: Floats
    arrivals: Ints
    """Arrival of each slot [ns]; one element if the policy does not need arrivals."""
    pending: Narrow
    """Entries that are closed and not yet written to the output, shape (entries,)."""


class JoinState(NamedTuple):
    """Complete state of a join."""

    join_state: Ints
    """State and settings of the join as a whole, shape (PLACES,)."""
    steps: Floats
    """Mean step of the greatest key [key units], shape (1,)."""
    monitors: MonitorState
    held: HeldTuples
    rows: Ints
    """Number of tuples taken of each stream, which is the row of its next one, shape (n,)."""

    @property
    def allocated_bytes(self) -> int:
        arrays = (self.join_state, self.steps, self.rows, *self.monitors, *self.held)
        return sum(array.nbytes for array in arrays)


class KnownArrays(NamedTuple):
    """Parameters known beforehand; the others are in `per`."""

    rate: Floats
    """[Hz], NaN if monitored; shape (n,)."""
    lag: Floats
    """[tuples], NaN if monitored; shape (n, n)."""


class Batch(NamedTuple):
    """Tuples in order of arrival, each column of shape (m,)."""

    stream: Narrow
    row: Ints
    """Number of the tuple in its stream; its complement for the further keys of a reading of uncertain key."""
    key: Ints
    payload: Floats
    arrival: Ints

    def part(self, rows: slice) -> "Batch":
        return Batch(self.stream[rows], self.row[rows], self.key[rows], self.payload[rows], self.arrival[rows])


class StreamTuple(NamedTuple):
    """One tuple of a batch."""

    stream: int
    row: int
    key: int
    payload: float


class SortBuffer(NamedTuple):
    """Tuples of a stream that wait to be sorted by a first key."""

    waiting: Ints
    """First and second key of each, shape (4 * slack + 4, 2): at most `slack` tuples wait."""
    ends: Ints
    """Position of the first in `waiting`, and after the last; shape (2,)."""


class OutputArrays(NamedTuple):
    """Output buffers for results and late tuples."""

    rows: Ints
    """Shape (capacity, n)."""
    payloads: Floats
    """Shape (capacity, n)."""
    key: Ints
    at: Ints
    """Number of the arrival that caused the result."""
    late: Ints
    """Stream, row, key, reason; shape (capacity, 4)."""
    late_payload: Floats
