"""Neighbours by a tree: those of all pairs, a radius by the spacing, and memory that does not grow with pairs."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from hypergrid.core.geodesy import RADIUS_M
from ingest.deployment.quality_settings import BuddyCheck, VariableTests
from ingest.quality.flagging import skipped_series
from ingest.quality.spatial import Places, nearest_neighbours, network_spacing_m


def _places(count: int, seed: int, degrees: float = 1.0) -> Places:
    rng = np.random.default_rng(seed)
    return Places(
        7.0 + degrees * rng.random(count),
        46.0 + degrees * rng.random(count),
        500.0 + 800.0 * rng.random(count),
        np.arange(count) // 2,
        np.arange(count) % 2 // 2,
        np.full(count, 2.0),
    )


def test_neighbours_are_those_of_all_pairs() -> None:
    places = _places(80, 3)
    east, north = np.radians(places.lon), np.radians(places.lat)
    half = np.sin((north[:, None] - north) / 2) ** 2
    half += np.cos(north)[:, None] * np.cos(north) * np.sin((east[:, None] - east) / 2) ** 2
    near = 2 * RADIUS_M * np.arcsin(np.sqrt(half)) <= 25_000.0
    near &= (places.station[:, None] != places.station) & (
        np.abs(places.elevation_m[:, None] - places.elevation_m) <= 300.0
    )
    np.testing.assert_array_equal(places.neighbours(25_000.0, 300.0).toarray() > 0, near)


def test_the_nearest_are_of_other_stations_and_in_order() -> None:
    places = _places(30, 4)
    found = nearest_neighbours(places, 6)
    assert (found >= 0).all()
    assert (places.station[found] != places.station[:, None]).all()
    away = np.hypot(
        (places.lon[found] - places.lon[:, None]) * np.cos(np.radians(46.5)), places.lat[found] - places.lat[:, None]
    )
    assert (np.diff(away, axis=1) > -0.01).all()


@pytest.mark.parametrize(("apart_km", "radius_km"), [(2.0, 10.0), (15.0, 40.0), (40.0, 80.0), (300.0, 160.0)])
def test_the_radius_follows_the_spacing(apart_km: float, radius_km: float) -> None:
    row, column = np.divmod(np.arange(49), 7)
    lat = 46.0 + row * apart_km / 111.2
    lon = 7.0 + column * apart_km / (111.2 * np.cos(np.radians(lat)))
    places = Places(lon, lat, np.full(49, 500.0), np.arange(49), np.zeros(49, np.int64), np.full(49, 2.0))
    assert network_spacing_m(lon, lat) == pytest.approx(1000.0 * apart_km, rel=0.05)
    assert places.radius_m(None, 5) == 1000.0 * radius_km
    assert places.radius_m(12.0, 5) == 12_000.0
    if apart_km < 100.0:
        assert np.median(np.diff(places.neighbours(places.radius_m(None, 5)).indptr)) >= 5


def test_skipped_series_have_one_reason_each() -> None:
    places = _places(20, 5, degrees=0.1)
    places.elevation_m[:] = 500.0
    places.lon[0], places.elevation_m[1], places.lon[2] = np.nan, np.nan, 40.0
    skipped = skipped_series(VariableTests(buddy_check=BuddyCheck(least_spread=1.0)), places)
    assert {reason: np.flatnonzero(rows).tolist() for reason, rows in skipped.items()} == {
        "no_position": [0],
        "no_elevation": [1],
        "isolated": [2],
    }


def test_a_summit_above_its_neighbours_is_isolated() -> None:
    """It was counted as tested: neighbours of other elevations were counted, which the buddy check does not ask."""
    places = _places(20, 5, degrees=0.1)
    places.elevation_m[:] = 500.0
    places.elevation_m[3] = 2500.0
    tests = VariableTests(buddy_check=BuddyCheck(least_spread=1.0))
    assert np.flatnonzero(skipped_series(tests, places)["isolated"]).tolist() == [3]


def test_eleven_thousand_stations_need_little_memory() -> None:
    """A matrix of all pairs took 4.7 GB."""
    script = textwrap.dedent("""
        import numpy as np
        from ingest.quality import spatial
        from ingest.deployment.quality_settings import BuddyCheck
        from ingest.quality.temporal import Line
        from tests.bench.resident import peak_above, reset_peak
        n = 11_000
        rng = np.random.default_rng(1)
        places = spatial.Places(5 + 10 * rng.random(n), 45 + 8 * rng.random(n), 300 + 200 * rng.random(n),
                                np.arange(n), np.zeros(n, np.int64), np.full(n, 2.0))
        index = np.repeat(np.arange(n, dtype=np.int32), 6)
        line = Line(index, np.tile(np.arange(6) * 600 * 10**9, n), rng.normal(10, 1, 6 * n))
        before = reset_peak()
        flag = spatial.buddy_check(line, BuddyCheck(least_spread=2.0, per_m=-0.0065), places)
        print(peak_above(before) / 2**20, (flag != 2).mean())
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603
    megabytes, evaluated = (float(part) for part in done.stdout.split())
    assert evaluated > 0.9
    assert megabytes < 300.0
