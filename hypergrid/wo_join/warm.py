"""Compile the loops of joins and monitors ahead of the first stream: `python -m hypergrid.wo_join.warm`."""

from pathlib import Path

from hypergrid.core.machine_code import find_cache_folder
from hypergrid.wo_join.compiled import SOURCES
from hypergrid.wo_join.config import KnownParameters
from hypergrid.wo_join.join import WoJoin
from hypergrid.wo_join.monitors import DependentMonitor, Monitors


def is_warm() -> bool:
    """Return whether compiled code of these sources is cached, or may be at a location of numba's."""
    folder = find_cache_folder(SOURCES)
    # numba makes a folder of its own below.
    return not folder or any(Path(folder).rglob("*.nbi"))


def warm() -> None:
    """Compile every function for its argument types; returns at once if they are cached."""
    join = WoJoin(2, form="assembling", idle_s=1.0)
    join.push([0, 1, 0], [1, 1, 2], [0.0, 0.0, 0.0])
    join.advance(10**12)
    join = WoJoin.resume(join.snapshot())
    join.push([0, 1], [5, 5], [0.0, 0.0])
    join.list_min_rows()
    join.finish()
    join.lags()
    sorting = WoJoin(2, strategy="msf", idle_s=1.0)
    sorting.push([0, 1, 0], [1, 1, 2], [0.0, 0.0, 0.0])
    sorting.advance(10**12)
    published = WoJoin(2, policy="published", known=KnownParameters(scrambling_factor=(0, 0)))
    published.push([0, 1], [1, 1], [0.0, 0.0])
    published.statistics()
    monitors = Monitors(2)
    monitors.observe([0, 1], [1, 1], [0, 0])
    monitors.virtual_index(0, 1)
    monitors.lag()
    monitors.rate_hz()
    dependent = DependentMonitor()
    dependent.observe([1, 2], [1, 2])
    _ = dependent.scrambling_factor


if __name__ == "__main__":
    warm()
