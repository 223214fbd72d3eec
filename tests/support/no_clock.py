"""A stream without ticks of its clock."""

import numpy as np

from ingest.streaming.spool_decoder import ClockTicks


def no_ticks() -> ClockTicks:
    return ClockTicks(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))
