"""Where each number of a join's state stands. All state is in arrays, so that compiled loops and snapshots share it.

`per` has a row of integers for each stream, `whole` one row for the join. Keys are int64 between `FLOOR` and `CEILING`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Narrow = NDArray[np.int32]
Floats = NDArray[np.float64]

FLOOR = -(2**62)
"""Below every key."""
CEILING = 2**62
"""Above every key."""
NONE = -1
"""No slot, entry or stream."""

EPOCH = 4096
"""Tuples of a stream after which a monitor forgets the epoch before this one: it tells of one to two epochs."""
WARM = 32
"""Tuples of a stream before its monitored parameters are believed; until then nothing is dropped on its account."""
RATED = 128
"""The last tuples of a stream that its rate is measured on (a power of two)."""
FINE = 5
"""Bits of a disorder that its histogram tells apart: widths of buckets are at most 1/32 of the disorder."""
BUCKETS = 1920
"""Buckets of that histogram, up to a disorder of 2^62."""

# Columns of `per`: what the monitors know of a stream …
COUNT, GREATEST, LAST = 0, 1, 2
"""Tuples so far (the physical index of the last), greatest key, last arrival [ns]."""
DISPLACED, DISPLACED_BEFORE, REPEATED, REPEATED_BEFORE, WORST, WORST_BEFORE = 4, 5, 6, 7, 8, 9
"""Greatest displacement [tuples], repetition [tuples] and disorder [key units], of this epoch and the one before."""
FIRST_RECORD, END_RECORD, SHORT = 10, 11, 12
"""The ring of running maxima: first, one beyond the last, and whether a search met its end."""
QUANTILE, ABOVE, COUNTED = 13, 14, 15
"""Histogram of disorder: the quantile's bucket, tuples above it, tuples in all."""
STILL = 16
"""Tuples since the greatest key grew."""
RANKED, BELOW = 17, 18
"""Keys in the sorted list of the greatest ones, and how many smaller ones were dropped from it."""
# … and what the join does with it.
LINE, SWEPT, HELD, PEAK = 19, 20, 21, 22
"""Keys below LINE the stream brings no more; its tuples below SWEPT are dropped; tuples held, and most ever held."""
ASLEEP, AWAY, OLDEST, NEWEST, REACHED, BOUND, LATE = 23, 24, 25, 26, 27, 28, 29
"""Asleep or not; last key in quarantine or FLOOR; ends of its queue; the record that LINE stands at; tuples it may
hold; tuples that came late or into quarantine."""
RETURNS = 30
"""How many tuples in a row came from far behind their stream."""

KNOWN_DISPLACED, KNOWN_DISORDER = 32, 33
"""Scrambling factor [tuples] and greatest disorder [key units] known beforehand, -1 where monitored."""
GUARD, TURN, GUARDED = 31, 34, 35
"""The key above which no tuple is displaced further than any of this epoch; the number of tuples at which one more may
lie above the quantile; the number of tuples until which GUARD holds."""
KNOWN_REPEATED = 36
"""Multiplicity [tuples] known beforehand, -1 where monitored."""
COLUMNS = 37

# Columns of an entry …
AFTER, SIZE, WATCH, TAILS = 0, 1, 2, 3
"""Next entry of the bucket or of the free list; tuples of any stream; the stream whose absence was last seen to prevent
a result, which is asked first (probe order by last failure); where the last tuples of the streams begin."""
WHOLE = -1
"""The size of an entry that is whole: all that may come of its key came, its results are given, its tuples dropped."""
# … and of a slot.
NEXT, OWNER, ORDINAL, YOUNGER = 0, 1, 2, 3
"""Next tuple of the ring or of the free list; the entry; the how manieth of its key in its stream, from 0; the next
tuple of the stream by arrival."""

# Places in `whole`.
CLOCK, FREE_SLOT, FREE_ENTRY, HELD_ALL, ENTRIES, GREATEST_ALL, SWEPT_ALL, DEADLINE = 0, 1, 2, 3, 4, 5, 6, 7
LEAST_LINE, NEXT_LINE, LAST_STREAM, PEAK_ALL, TAKEN = 8, 9, 10, 11, 12
"""Least line of all awake streams, the least but one, the stream of the first; peak of tuples held; tuples taken."""
WRITTEN, LATE_WRITTEN, PENDING, PENDING_DONE, SHIFT = 13, 14, 15, 16, 17
VISITS, DROPS, ADVANCES, NEEDED, TOP_SWEPT = 18, 19, 20, 21, 22
CREATED, FIRST_KEY, REACH, MOVED, DROPS_WHOLE = 23, 24, 25, 26, 27
"""DROPS_WHOLE: whether tuples are dropped once their entry is whole."""
# How the join decides, in the same row: the window in tuples or ns, the silence after which a stream is asleep [ns], of
# how many tuples one may come later than reckoned with, the key units that a clock may jump (0: judged), and bytes:
# allowed, of a tuple, of a key.
POLICY, FORM, WINDOW, IDLE, RARE, JUMP, ALLOWED, SLOT_BYTES, ENTRY_BYTES = 32, 33, 34, 35, 36, 37, 38, 39, 40
PLACES = 48

# What a call of the loop returns.
DONE, OUTPUT_FULL, SLOTS_FULL, ENTRIES_FULL, LATE_FULL, RECORDS_SHORT, RANKS_FULL, RETUNE, LIMIT = range(9)

# Policies and forms.
WINDOW_COUNT, WINDOW_TIME, PUBLISHED, PROGRESS = range(4)
INNER, ASSEMBLING = range(2)
# Why a tuple is in `late`.
CLOSED, QUARANTINED = 0, 1


class MonitorState(NamedTuple):
    """State of the monitors of n streams."""

    per: Ints
    """Numbers of each stream, shape (n, COLUMNS)."""
    records: Ints
    """Rings of running maxima: physical index, key, arrival [ns]; shape (n, a power of two, 3)."""
    rates: Ints
    """Rings of the last arrivals [ns], shape (n, RATED)."""
    spread: Narrow
    """Histograms of disorder: all that is remembered, and this epoch's; shape (n, 2, BUCKETS)."""
    ranks: Ints
    """The greatest keys of each stream in order, shape (n, capacity); capacity 0 where nobody asks for lags."""
    reaches: Floats
    """What each stream (row) holds for each other (column) beyond its scrambling factor [tuples], shape (n, n)."""


class HeldTuples(NamedTuple):
    """The tuples that a join holds: one hash table over the keys of all streams, an entry a key, a slot a tuple."""

    buckets: Narrow
    """First entry of each bucket, shape (a power of two,)."""
    keys: Ints
    """Key of each entry, shape (entries,)."""
    heads: Narrow
    """Numbers of each entry, and the last tuple of each stream in it; shape (entries, TAILS + n)."""
    links: Narrow
    """Numbers of each slot, shape (slots, 4); the tuples of one stream in one entry are a ring."""
    rows: Ints
    payloads: Floats
    arrivals: Ints
    """Arrival of each slot [ns]; one element where the policy needs none."""
    pending: Narrow
    """Entries that are closed and not yet told, shape (entries,)."""


class KnownArrays(NamedTuple):
    """Parameters that are known beforehand; the others are in `per`."""

    rate: Floats
    """[Hz], NaN where monitored; shape (n,)."""
    lag: Floats
    """[tuples], NaN where monitored; shape (n, n)."""


class Batch(NamedTuple):
    """Tuples in order of arrival, each column of shape (m,)."""

    stream: Narrow
    row: Ints
    """Number of the tuple in its stream; its complement where it is a further key of the same reading."""
    key: Ints
    payload: Floats
    arrival: Ints

    def part(self, rows: slice) -> "Batch":
        """Return some of the tuples."""
        return Batch(self.stream[rows], self.row[rows], self.key[rows], self.payload[rows], self.arrival[rows])


class OutputArrays(NamedTuple):
    """Where results and late tuples go."""

    rows: Ints
    """Shape (capacity, n)."""
    payloads: Floats
    """Shape (capacity, n)."""
    key: Ints
    at: Ints
    """Number of the arrival that brought it about."""
    late: Ints
    """Stream, row, key, reason; shape (capacity, 4)."""
    late_payload: Floats
