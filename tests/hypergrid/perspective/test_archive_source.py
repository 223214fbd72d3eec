"""Readings of several windows that are read at once are those that each window has."""

from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.perspective.sources import archive_source
from hypergrid.perspective.sources.archive_source import ArchiveSource
from tests.support.continuous_archives import random_sources


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
@pytest.mark.parametrize("largest", [200_000, 40])
def test_windows_that_are_read_ahead_are_read_once(
    tmp_path: Path, seed: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    made, _ = random_sources(tmp_path / "a", seed, hours=4)
    archive = made.store
    variable = archive.variables["air_temperature"]
    source = ArchiveSource(archive, variable)
    assert source.extent is not None
    assert {item.stamp for item in archive.series(variable.name)} >= {"end"}
    first, minute = source.extent.start_ns, 60 * SECOND_NS
    starts = first + np.sort(rng.integers(-20, 260, 30)) * minute
    windows = [Window(int(start), int(start + rng.integers(1, 40) * minute)) for start in starts]
    wanted = [source._read_stored(window, ()) for window in windows]
    assert sum(map(len, wanted)) > 100
    # Beyond this many at once, fewer are read.
    monkeypatch.setattr(archive_source, "MAX_CACHED_READINGS", largest)
    source.read_ahead(windows)
    source.read_ahead([])
    if largest > 1000:
        monkeypatch.setattr(Archive, "read", lambda *_, **__: pytest.fail("read again"))
    for window, readings in zip(windows, wanted, strict=True):
        given = source.read(window)
        assert given.series == readings.series
        for name in ("index", "time_ns", "value", "flag", "arrival_ns"):
            np.testing.assert_array_equal(getattr(given, name), getattr(readings, name))
