"""Progressive orders through the engine: every cell once, the same surface, honest estimates of the rest."""

import time

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Readings
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.execution import ORDERS
from hypergrid.execution.orders.orders import WALKS, Lattice, make_lattice, make_order
from hypergrid.execution.orders.walk import NEIGHBOURS, STRETCHES, WalkSettings, _estimate_by_offsets, complete
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.execution.running.progressive import TimeCellEvaluator
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.query import OpenArchive, Query
from tests.support.networks import random_archive

Floats = NDArray[np.float64]

NAMES = [*ORDERS, *WALKS]
MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)


def readings(count: int, stations: int, *, every_s: int = 600, holes: float = 0.1) -> Query:
    rng = np.random.default_rng(count + stations)
    values = np.where(rng.random((count, stations)) < holes, np.nan, rng.normal(5, 3, (count, stations)))
    coords = {
        "time": (np.arange(count) * every_s * SECOND_NS).view("datetime64[ns]"),
        **{name: ("station", rng.uniform(0, 2000, stations)) for name in ("x", "y")},
    }
    return hg.base(xr.DataArray(values, dims=("time", "station"), coords=coords, name="air_temperature"))


def mapped(slices: int = 5, side: int = 16) -> Query:
    grid = hg.grid(x=(0, 2000), y=(0, 2000), step=2000 / side)
    return readings(slices, 12).interpolate("ordinary_kriging", grid=grid, variogram=MODEL)


def hourly(days: int = 9) -> Query:
    return readings(days * 144, 1).aggregate("mean", time="1h", min_coverage=0.0)


SURFACES = {
    "map": lambda: mapped(1),
    "maps": lambda: mapped(5),
    "days by hours": hourly,
    "days by hours with a short day": lambda: hourly().clip(time=("1970-01-01T05:00", "1970-01-08T16:00")),
    "sliding hours": lambda: readings(900, 1).aggregate("mean", time={"length": "3h", "step": "1h"}),
    "hours of half-hours": lambda: readings(900, 1).aggregate("max", time="30min").aggregate("mean", time="1h"),
    "sampled": lambda: readings(900, 1).aggregate("sample", time="2h"),
    "cells that do not divide a day": lambda: readings(900, 1).aggregate("sum", time="7h"),
    "days": lambda: readings(1500, 1).aggregate("mean", time="1day"),
    "a difference": lambda: hourly().merge("difference", hourly().convert("scale", factor=2.0)),
    "one cell": lambda: readings(9, 1).aggregate("mean", time="all"),
    "stations": lambda: readings(90, 7).aggregate("mean", time="1h"),
    "instants": lambda: readings(90, 1).interpolate("linear", time="20min", max_gap="1h"),
}


@pytest.mark.parametrize("order", NAMES)
@pytest.mark.parametrize("what", SURFACES)
def test_no_cell_is_computed_twice_and_all_are_as_computed_whole(
    what: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = SURFACES[what]()
    expected = query.compute()
    lattice = make_lattice(query.plan().surface)
    calls = np.zeros(lattice.cells, dtype=int)
    surface, times = Evaluator.surface, TimeCellEvaluator.evaluate_times

    def counted_places(self: Evaluator, here: object, cells: NDArray[np.intp], **more: object) -> object:
        np.add.at(calls, cells, 1)
        return surface(self, here, cells, **more)  # type: ignore[arg-type]

    def counted_times(self: TimeCellEvaluator, here: object, cells: NDArray[np.intp]) -> object:
        np.add.at(calls, cells, 1)
        return times(self, here, cells)  # type: ignore[arg-type]

    monkeypatch.setattr(Evaluator, "surface", counted_places)
    monkeypatch.setattr(TimeCellEvaluator, "evaluate_times", counted_times)
    fractions = []
    for refinement in query.refine(order=order, seed=4, min_gain=0):
        fractions.append(refinement.fraction)
        assert np.count_nonzero(calls) == round(refinement.fraction * lattice.cells)
    assert (calls == 1).all()
    assert np.all(np.diff(fractions) > 0)
    assert refinement.complete
    assert refinement.cells == refinement.total == query.plan().cells
    assert refinement.error == 0.0
    found = refinement.dataset()
    xr.testing.assert_allclose(found, expected, rtol=1e-9)
    assert set(found.attrs) == set(expected.attrs)


def test_lattices_of_surfaces() -> None:
    expected = {
        "map": Lattice("space", 256, 16),
        "maps": Lattice("space", 256, 16),
        "days by hours": Lattice("time", 9 * 24, 24),
        "days by hours with a short day": Lattice("time", 7 * 24 + 11, 24),
        "cells that do not divide a day": Lattice("time", 22, 22),
        "days": Lattice("time", 11, 11),
        "one cell": Lattice("space", 1, 1),
        "stations": Lattice("space", 7, 7),
        # What lies around an instant tells it: all are computed at once.
        "instants": Lattice("space", 1, 1),
    }
    assert {what: make_lattice(SURFACES[what]().plan().surface) for what in expected} == expected


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(1, 25), st.integers(1, 25), st.integers(0, 24), st.integers(1, 40))
@settings(max_examples=30)
def test_orders_serve_every_cell_of_a_lattice_once(name: str, rows: int, columns: int, short: int, count: int) -> None:
    lattice = Lattice("time", rows * columns + short % columns, columns)
    order, served = make_order(name, lattice, WalkSettings()), []
    while len(cells := order.next_cells(count)):
        assert len(cells) <= count
        order.add_values(cells, np.sin(cells)[None, :])
        served.extend(cells.tolist())
    assert sorted(served) == list(range(lattice.cells))
    assert len(order.next_cells(count)) == 0


def test_days_are_rows() -> None:
    query = hourly().clip(time=("1970-01-01T05:00", "1970-01-08T16:00"))
    *_, last = query.refine(order="walk", min_gain=0)
    shown = last.estimate
    assert shown.shape == (8, 24)
    assert np.array_equal(shown.ravel()[:179], last.dataset()["value"].to_numpy()[:, 0], equal_nan=True)
    assert np.isnan(shown.ravel()[179:]).all()


@pytest.mark.parametrize("order", NAMES)
@pytest.mark.parametrize("what", ["maps", "days by hours"])
def test_estimates_are_exact_where_computed_and_finite_elsewhere(what: str, order: str) -> None:
    query = SURFACES[what]()
    whole = query.compute()["value"].to_numpy()
    first = whole[0] if what == "maps" else whole.reshape(-1, 24)
    for refinement in query.refine(order=order, min_gain=0):
        computed = refinement.picture.done.reshape(first.shape)
        assert np.isfinite(refinement.estimate).all()
        np.testing.assert_allclose(refinement.estimate[computed], first[computed], rtol=1e-9)
        assert refinement.complete or np.isnan(refinement.error) or refinement.error > 0


@pytest.mark.parametrize("order", NAMES)
@pytest.mark.parametrize("what", ["maps", "days by hours"])
def test_a_run_that_is_closed_computes_no_further_block(what: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = []
    block = Evaluator.block

    def counted(self: Evaluator, here: object, cells: object, **more: object) -> object:
        blocks.append(here)
        return block(self, here, cells, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Evaluator, "block", counted)
    monkeypatch.setattr(Evaluator, "surface", counted)
    refinements = SURFACES[what]().refine(order=order, min_gain=0)
    assert blocks == []
    refinement = next(refinements)
    before = len(blocks)
    assert 0 < refinement.fraction < 0.2
    refinements.close()  # type: ignore[attr-defined]
    assert next(refinements, None) is None
    assert len(blocks) == before
    left = refinement.dataset()
    assert left.attrs["hypergrid_fraction"] == refinement.fraction
    assert np.isfinite(left["value"].to_numpy()).sum() <= refinement.cells


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> OpenArchive:
    """Give four hours of readings with gaps, flags and stamps at the ends of their intervals."""
    return random_archive(tmp_path_factory.mktemp("archive") / "a", 0)[0]


OF_READINGS = {
    "means": lambda base: base.aggregate("mean", time="10min", min_coverage=0.5),
    "cleaned": lambda base: base.convert("valid_range", low=-5.0, high=12.0).aggregate("max", time="5min"),
    "sliding": lambda base: base.aggregate("sum", time={"length": "30min", "step": "10min"}, min_coverage=0.0),
    "means of samples": lambda base: base.aggregate("sample", time="4min").aggregate("mean", time="8min"),
    "slices": lambda base: base,
}


@pytest.mark.parametrize("order", NAMES)
@pytest.mark.parametrize("station", ["s0", "s1", "s2"])
@pytest.mark.parametrize("what", OF_READINGS)
def test_time_cells_of_readings_are_those_computed_whole_and_read_once(
    archive: OpenArchive, what: str, station: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = OF_READINGS[what](archive["air_temperature"].select(station=station))
    expected = query.compute()
    reads = []
    read = ArchiveSource.read

    def counted(self: ArchiveSource, window: Window, unread: tuple[int, ...] = ()) -> Readings:
        reads.append(window)
        return read(self, window, unread)

    monkeypatch.setattr(ArchiveSource, "read", counted)
    refinements = list(query.refine(order=order, walkers=2, min_gain=0))
    assert len(refinements) > 10
    assert len(reads) == 1
    assert refinements[-1].picture.lattice.along == "time"
    xr.testing.assert_identical(refinements[-1].dataset(), expected)


def test_the_walks_share_walkers_and_seed_are_the_users() -> None:
    def pictures(**walk: float) -> list[float]:
        return [one.fraction for one in hourly(28).refine(order="walk", min_gain=0, **walk)]  # type: ignore[arg-type]

    assert pictures(walkers=7)[0] == pytest.approx(7 / 672)
    assert any(fraction == pytest.approx(0.3, abs=1e-3) for fraction in pictures(fraction=0.3))
    first, second, other = (
        next(iter(hourly(28).refine(order="walk", seed=seed, min_gain=0))).picture.done.tolist() for seed in (1, 1, 2)
    )
    assert first == second != other


def test_what_is_wrong_is_said_before_anything_runs() -> None:
    with pytest.raises(NotFound, match="unknown order of blocks 'wal'; did you mean 'walk'"):
        hourly().refine(order="wal")
    with pytest.raises(InvalidQuery, match="at most 0.5; got 0.7"):
        hourly().refine(order="walk", fraction=0.7)


def smooth(shape: tuple[int, int], scale: tuple[float, float], seed: int) -> Floats:
    return np.asarray(ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=shape), scale))


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**31), st.floats(0, 1), st.floats(0, 0.9))
def test_a_picture_is_a_mean_of_what_is_computed(
    rows: int, columns: int, seed: int, share: float, missing: float
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, columns))
    values[rng.random(values.shape) < missing] = np.nan
    computed = rng.random(values.shape) < share
    shown = np.where(computed, values, np.nan)
    found, error = complete(shown, computed)
    assert np.array_equal(found[computed], values[computed], equal_nan=True)
    known = shown[np.isfinite(shown)]
    if len(known) and not computed.all():
        assert known.min() - 1e-12 <= found[~computed].min()
        assert found[~computed].max() <= known.max() + 1e-12
        assert np.isnan(error) if len(known) == 1 else error >= 0
    elif not computed.all():
        assert np.isnan(found).all()
        assert np.isnan(error)
    else:
        assert error == 0


def test_an_estimate_is_the_mean_of_near_cells_weighted_by_distance() -> None:
    """One cell is left; all others tell it."""
    values = smooth((9, 9), (1.0, 1.0), 1)
    computed = np.ones((9, 9), dtype=bool)
    computed[4, 4] = False
    found, _ = complete(np.where(computed, values, np.nan), computed)
    # Four at 1, and two of the four at the root of 2, which two is open: it lies between both extremes.
    sides = values[[3, 5, 4, 4], [4, 4, 3, 5]].sum()
    corners = np.sort(values[[3, 3, 5, 5], [3, 5, 3, 5]])
    low, high = (sides + corners[:2].sum() / 2) / 5, (sides + corners[2:].sum() / 2) / 5
    stretched = (values[[3, 5], [4, 4]], values[[4, 4], [3, 5]])
    wide = [min(map(np.min, stretched)), max(map(np.max, stretched))]
    assert low <= found[4, 4] <= high or wide[0] <= found[4, 4] <= wide[1]
    assert NEIGHBOURS == 6


@pytest.mark.parametrize("share", [0.02, 0.1, 0.15, 0.3, 0.7, 0.99])
@pytest.mark.parametrize("stretch", STRETCHES)
def test_estimates_by_offsets_are_those_of_all_known_cells(share: float, stretch: float) -> None:
    """Those of an oracle that measures the distance to each known cell, unless two are equally far and one is used."""
    rng = np.random.default_rng(round(1000 * share))
    values = rng.normal(size=(40, 31))
    computed = rng.random(values.shape) < share
    shown = np.where(computed & (rng.random(values.shape) < 0.9), values, np.nan)
    scale = np.array([np.sqrt(stretch), 1 / np.sqrt(stretch)])
    rest, known = np.flatnonzero(~computed), np.argwhere(np.isfinite(shown))
    found = _estimate_by_offsets(shown, rest, scale)
    apart = (np.stack(np.divmod(rest, 31), axis=1)[:, None] - known) * scale
    squares = np.square(apart).sum(axis=-1)
    near = np.argsort(squares, axis=1)[:, : NEIGHBOURS + 1]
    sorted_squares = np.take_along_axis(squares, near, axis=1)
    weights = 1 / sorted_squares[:, :NEIGHBOURS]
    expected = (weights * shown[tuple(known.T)][near[:, :NEIGHBOURS]]).sum(axis=1) / weights.sum(axis=1)
    is_clear = np.isfinite(found) & (sorted_squares[:, -1] > (1 + 1e-9) * sorted_squares[:, -2])
    np.testing.assert_allclose(found[is_clear], expected[is_clear], rtol=1e-12, atol=1e-12)
    if share >= 0.3:
        assert np.isfinite(found).mean() > 0.8
        assert is_clear.any()


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_that_are_alike_tell_one_another(axis: int) -> None:
    """Values that change along one axis only are estimated from along the other."""
    pattern = np.random.default_rng(3).normal(size=24)
    values = np.tile(pattern, (28, 1)) if axis == 0 else np.tile(pattern, (28, 1)).T
    computed = np.random.default_rng(4).random(values.shape) < 0.2
    found, error = complete(np.where(computed, values, np.nan), computed)
    places = ndimage.distance_transform_edt(~computed, return_distances=False, return_indices=True)
    nearest = values[tuple(places)]
    off, plain = (np.sqrt(np.mean(np.square(one - values)[~computed])) for one in (found, nearest))
    assert off < 0.75 * plain
    assert error < plain


# Row by row nothing is left out that lies as far from the others as the rows to come: no measure of them.
@pytest.mark.parametrize("order", ["coarse_to_fine", *WALKS])
@pytest.mark.parametrize("widths", [(3.0, 1.5), (5.0, 5.0), (1.0, 1.0)])
@pytest.mark.parametrize("count", [60, 180, 300])
def test_errors_of_estimates_are_what_they_say(order: str, widths: tuple[float, float], count: int) -> None:
    """Over many fields the error that is told is that of the estimates, within a factor of 1.5."""
    ratios = []
    for seed in range(20):
        values = smooth((40, 30), widths, seed)
        serving, computed = (
            make_order(order, Lattice("space", 1200, 30), WalkSettings(seed=seed)),
            np.zeros(1200, dtype=bool),
        )
        while computed.sum() < count:
            cells = serving.next_cells(10)
            serving.add_values(cells, values.ravel()[cells][None, :])
            computed[cells] = True
        computed = computed.reshape(values.shape)
        found, error = complete(np.where(computed, values, np.nan), computed)
        ratios.append(error / np.sqrt(np.mean(np.square(found - values)[~computed])))
    assert 1 / 1.5 < np.median(ratios) < 1.5


def test_pictures_of_large_maps_are_fast() -> None:
    values = smooth((200, 200), (5.0, 5.0), 2)
    took_s = []
    for share in (0.02, 0.15, 0.5):
        computed = np.random.default_rng(1).random(values.shape) < share
        shown = np.where(computed, values, np.nan)
        tries = []
        for _ in range(5):
            begun = time.process_time()
            complete(shown, computed)
            tries.append(time.process_time() - begun)
        took_s.append(min(tries))
    # 10 to 25 ms on a quiet machine.
    assert max(took_s) < 0.15, took_s
