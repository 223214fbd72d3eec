"""Neighbours: the matrix products against loops over stations, as titanlib defines the checks."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.core.flags import GOOD, NOT_EVALUATED, SUSPECT
from hypergrid.core.geodesy import RADIUS_M
from ingest.deployment.quality_settings import BuddyCheck, SpatialConsistency
from ingest.quality import spatial
from ingest.quality.spatial import Places
from ingest.quality.temporal import Line

Floats = NDArray[np.float64]
MINUTE = 60 * 10**9


def _places(count: int, seed: int) -> Places:
    generator = np.random.default_rng(seed)
    return Places(
        7.0 + 0.2 * generator.random(count),
        46.0 + 0.15 * generator.random(count),
        1000.0 + 800.0 * generator.random(count),
        np.arange(count) // 2 if seed == 3 else np.arange(count),
        np.zeros(count, np.int64),
        np.full(count, 2.0),
    )


def _network(places: Places, seed: int, cells: int = 30, per_m: float = -0.0065) -> Line:
    """Readings of all stations in most cells, one or two in a cell, with some that are far off."""
    generator = np.random.default_rng(seed)
    rows = []
    for series in range(len(places.lon)):
        for cell in range(cells):
            for part in range(int(generator.choice([0, 1, 1, 1, 2]))):
                stamp = cell * 10 * MINUTE + part * 4 * MINUTE + int(generator.integers(0, 3)) * MINUTE
                field = 10.0 + np.sin(cell / 5.0) + per_m * places.elevation_m[series] + generator.normal(0.0, 0.7)
                rows.append((series, stamp, field + (generator.random() < 0.02) * generator.choice([-15.0, 12.0])))
    index, stamps, value = zip(*sorted(rows), strict=True)
    return Line(np.array(index, np.int32), np.array(stamps, np.int64), np.array(value))


def _distance(places: Places, i: int, j: int) -> float:
    one, other = np.radians([places.lat[i], places.lat[j]])
    east = np.radians(places.lon[j] - places.lon[i])
    cosine = np.sin(one) * np.sin(other) + np.cos(one) * np.cos(other) * np.cos(east)
    return float(RADIUS_M * np.arccos(min(1.0, cosine)))


def _slow(line: Line, given: BuddyCheck | SpatialConsistency, places: Places) -> NDArray[np.uint8]:
    flag = np.full(len(line), NOT_EVALUATED, np.uint8)
    cell = line.time_ns // round(given.minutes * MINUTE)
    for one in np.unique(cell):
        rows = np.flatnonzero(cell == one)
        bad: set[int] = set()
        for _ in range(round(given.iterations)):
            means = {
                j: np.mean([line.value[r] for r in rows if line.index[r] == j and r not in bad])
                for j in {int(line.index[r]) for r in rows if r not in bad}
            }
            new = set()
            for row in [r for r in rows if r not in bad]:
                i = int(line.index[row])
                near = [
                    j
                    for j in means
                    if places.station[j] != places.station[i]
                    and _distance(places, i, j) <= given.radius_km * 1000.0
                    and abs(places.elevation_m[j] - places.elevation_m[i]) <= getattr(given, "most_elevation_m", np.inf)
                ]
                if len(near) < given.neighbours:
                    continue
                value = np.array([means[j] for j in near])
                high = places.elevation_m[near] - places.elevation_m[i]
                if isinstance(given, BuddyCheck):
                    reduced = value - given.per_m * high
                    expected = reduced.mean()
                    spread = np.sqrt(reduced.var() + reduced.var() / len(near))
                else:
                    expected, spread = _line_through(value, high, given)
                far = abs(line.value[row] - expected) > given.threshold * max(given.least_spread, spread)
                flag[row] = SUSPECT if far else GOOD
                new |= {int(row)} if far else set()
            if not new:
                break
            bad |= new
    return flag


def _line_through(value: Floats, high: Floats, given: SpatialConsistency) -> tuple[float, float]:
    count = len(value)
    if high.std() < given.least_elevation_m:
        left = value - given.per_m * high
        return float(left.mean()), float(left.std(ddof=1) * np.sqrt(1.0 + 1.0 / count))
    slope, at = np.polyfit(high, value, 1)
    left = value - slope * high - at
    lever = 1.0 + 1.0 / count + high.mean() ** 2 / (count * high.var())
    return float(at), float(np.sqrt((left**2).sum() / (count - 2) * lever))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_buddies_are_those_of_the_loops(seed: int) -> None:
    places = _places(14, seed)
    line = _network(places, seed)
    given = BuddyCheck(
        radius_km=9.0, neighbours=3, threshold=3.0, least_spread=0.8, per_m=-0.0065, most_elevation_m=500
    )
    found = spatial.buddy_check(line, given, places)
    np.testing.assert_array_equal(found, _slow(line, given, places))
    assert set(found.tolist()) == {GOOD, NOT_EVALUATED, SUSPECT}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_consistency_is_that_of_the_loops(seed: int) -> None:
    places = _places(14, seed)
    line = _network(places, seed, per_m=-0.009)
    given = SpatialConsistency(
        radius_km=10.0, neighbours=4, threshold=4.0, least_spread=0.8, per_m=-0.0065, least_elevation_m=200.0
    )
    found = spatial.spatial_consistency(line, given, places)
    np.testing.assert_array_equal(found, _slow(line, given, places))
    assert {GOOD, SUSPECT} <= set(found.tolist())


def test_one_bad_station_of_sixty_is_the_one() -> None:
    places = _places(60, 5)
    generator = np.random.default_rng(5)
    value = 15.0 - 0.0065 * places.elevation_m + generator.normal(0.0, 0.5, 60)
    value[17] += 9.0
    line = Line(np.arange(60, dtype=np.int32), np.zeros(60, np.int64), value)
    buddies = spatial.buddy_check(line, BuddyCheck(least_spread=1.0, per_m=-0.0065), places)
    line_fit = spatial.spatial_consistency(line, SpatialConsistency(least_spread=1.0), places)
    assert np.flatnonzero(buddies == SUSPECT).tolist() == np.flatnonzero(line_fit == SUSPECT).tolist() == [17]


def test_without_a_position_or_an_elevation_nothing_is_evaluated() -> None:
    places = _places(12, 1)
    places.elevation_m[0], places.lon[1] = np.nan, np.nan
    line = _network(places, 1)
    line = line.take(np.isfinite(line.value))
    for found in (
        spatial.buddy_check(line, BuddyCheck(radius_km=50.0, most_elevation_m=2000, least_spread=1.0), places),
        spatial.spatial_consistency(line, SpatialConsistency(least_spread=1.0), places),
    ):
        assert set(found[line.index < 2].tolist()) <= {NOT_EVALUATED}
        assert GOOD in found[line.index >= 2]
    nowhere = Places(*(np.full(12, np.nan) for _ in range(3)), np.arange(12), np.zeros(12, np.int64), np.full(12, 2.0))
    assert set(spatial.buddy_check(line, BuddyCheck(least_spread=1.0), nowhere).tolist()) == {NOT_EVALUATED}
    assert spatial.find_isolated(nowhere, radius_m=1e9, neighbours=1).all()


def test_the_isolated_are_those_with_few_around_them() -> None:
    places = _places(10, 2)
    places.lon[4] += 3.0
    alone = spatial.find_isolated(places, radius_m=60_000.0, neighbours=3)
    assert np.flatnonzero(alone).tolist() == [4]


def test_a_network_of_far_apart_times_needs_little_memory() -> None:
    places = _places(8, 2)
    index = np.tile(np.arange(8, dtype=np.int32), 2)
    stamps = np.repeat(np.array([-(2**60), 2**61]), 8)
    order = np.lexsort((stamps, index))
    line = Line(index[order], stamps[order], 10.0 - 0.0065 * places.elevation_m[index[order]])
    found = spatial.buddy_check(line, BuddyCheck(radius_km=50.0, least_spread=1.0, per_m=-0.0065), places)
    assert set(found.tolist()) <= {GOOD, NOT_EVALUATED}
