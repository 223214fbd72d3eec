"""A counter that falls is flagged, but where it was reset to near zero, or wobbles by less than asked for."""

import numpy as np

from hypergrid.core.flags import GOOD, NOT_EVALUATED, SUSPECT
from ingest.deployment.quality_settings import CounterFall
from ingest.quality.temporal import Line, counter_fall


def test_a_counter_that_falls_is_flagged() -> None:
    shown = np.array([50.0, 50.2, 49.0, 50.3, 50.2, 0.2, 0.4])
    line = Line(np.zeros(len(shown), np.int32), np.arange(len(shown)) * 600 * 10**9, shown)
    flags = counter_fall(line, CounterFall(least=0.5, near_zero=2.0))
    assert flags.tolist() == [NOT_EVALUATED, GOOD, SUSPECT, GOOD, GOOD, GOOD, GOOD]
    late = Line(line.index, line.time_ns * 60, shown)
    assert set(counter_fall(late, CounterFall(least=0.5, near_zero=2.0)).tolist()) == {NOT_EVALUATED}
