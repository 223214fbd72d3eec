"""Readings of several windows that are read at once are those that each window has."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.readings import Readings
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.perspective.sources import archive_source
from hypergrid.perspective.sources.archive_source import ArchiveSource
from tests.support.continuous_archives import random_sources


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many readings each read of an archive has."""
    counts: list[int] = []
    read = Archive.read

    def note(self: Archive, *args: Any, **options: Any) -> Readings:  # noqa: ANN401 - those of `read`
        readings = read(self, *args, **options)
        counts.append(len(readings))
        return readings

    monkeypatch.setattr(Archive, "read", note)
    return counts


def draw_windows(source: ArchiveSource, seed: int, count: int) -> list[Window]:
    rng = np.random.default_rng(seed)
    assert source.extent is not None
    first, minute = source.extent.start_ns, 60 * SECOND_NS
    starts = first + np.sort(rng.integers(-20, 260, count)) * minute
    return [Window(int(start), int(start + rng.integers(1, 40) * minute)) for start in starts]


def check_read(source: ArchiveSource, windows: list[Window], wanted: list[Readings], unread: tuple[int, ...]) -> None:
    for window, readings in zip(windows, wanted, strict=True):
        given = source.read(window, unread)
        assert given.series == readings.series
        for name in ("index", "time_ns", "value", "flag", "arrival_ns"):
            np.testing.assert_array_equal(getattr(given, name), getattr(readings, name))


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
@pytest.mark.parametrize("unread", [(), (0,)])
def test_windows_that_are_read_ahead_are_read_once(
    tmp_path: Path, seed: int, unread: tuple[int, ...], reads: list[int]
) -> None:
    made, _ = random_sources(tmp_path / "a", seed, hours=4)
    source = ArchiveSource(made.store, made.store.variables["air_temperature"])
    assert {item.stamp for item in made.store.series("air_temperature")} >= {"end"}
    windows = draw_windows(source, seed, 30)
    wanted = [source._read_stored(window, unread) for window in windows]
    assert sum(map(len, wanted)) > 100
    reads.clear()
    source.read_ahead(windows, unread)
    source.read_ahead(windows, unread)
    source.read_ahead([], unread)
    assert len(reads) == 1
    check_read(source, windows, wanted, unread)
    assert len(reads) == 1


def test_what_is_read_ahead_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[int]) -> None:
    made, _ = random_sources(tmp_path / "a", 0, hours=4)
    source = ArchiveSource(made.store, made.store.variables["air_temperature"])
    windows = sorted(set(draw_windows(source, 7, 40)), key=lambda window: window.start_ns)
    wanted = [source._read_stored(window, ()) for window in windows]
    # No chunk and its neighbour may be read in one go.
    monkeypatch.setattr(archive_source, "READINGS_AHEAD", 1)
    reads.clear()
    source.read_ahead(windows)
    assert reads == []
    monkeypatch.setattr(archive_source, "READINGS_AHEAD", 10**9)
    # Only so many are kept that later ones do not drive out those that come first.
    cache = LruCache[archive_source.ReadKey, Readings](20 * max(each.nbytes for each in wanted))
    monkeypatch.setattr(archive_source, "_READS", cache)
    source.read_ahead(windows)
    assert (len(reads), cache.statistics().evictions) == (1, 0)
    check_read(source, windows[:3], wanted[:3], ())
    assert len(reads) == 1
    check_read(source, windows, wanted, ())
    assert len(reads) > 1
