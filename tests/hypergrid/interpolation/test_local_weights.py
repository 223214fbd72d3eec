"""Weights and neighbours that local kriging keeps: the same estimates, made once for each set of reporting stations."""

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.interpolation import variogram
from hypergrid.interpolation.local import field as local
from hypergrid.interpolation.local.field import LocalField, held_bytes, projected_bytes
from hypergrid.interpolation.local.neighbourhood import Neighbourhood, NeighbourSelection, TargetChunk
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.weight_cache import WEIGHTS, WeightCache

Floats = NDArray[np.float64]
MODEL = variogram("exponential", psill=1.5, range_m=400.0, nugget=0.1)
STATIONS, TARGETS = 30, 200


@pytest.fixture(autouse=True)
def forget() -> None:
    """Begin with nothing kept."""
    WEIGHTS.clear()


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the searches for neighbours: their widths."""
    made: list[int] = []
    search = Neighbourhood.make_chunk

    def counted(around: Neighbourhood, targets: Targets, width: int) -> TargetChunk:
        made.append(width)
        return search(around, targets, width)

    monkeypatch.setattr(Neighbourhood, "make_chunk", counted)
    return made


def network(seed: int = 0, *, slices: int = 40, holes: float = 0.2) -> tuple[Stations, Floats, Targets]:
    rng = np.random.default_rng(seed)
    values = rng.normal(10.0, 3.0, (slices, STATIONS))
    values[rng.random(values.shape) < holes] = np.nan
    places = rng.uniform(0, 1000, (STATIONS, 2))
    return Stations(places, tuple(map(str, range(STATIONS)))), values, Targets(rng.uniform(0, 1000, (TARGETS, 2)))


def field_of(stations: Stations, values: Floats, neighbours: int = 8) -> LocalField:
    return LocalField(KrigingSystem.of(stations, MODEL), values, NeighbourSelection(neighbours))


def test_slice_by_slice_is_what_all_slices_are() -> None:
    stations, values, targets = network()
    whole = field_of(stations, values)
    for what in (LocalField.estimate, LocalField.variance, LocalField.counts_at):
        single = np.concatenate([what(field_of(stations, line[None]), targets) for line in values])
        np.testing.assert_allclose(single, what(whole, targets), rtol=0, atol=1e-11)


def test_the_same_stations_are_solved_once_and_give_the_same_digits_again(chunks: list[int]) -> None:
    stations, values, targets = network(1, slices=1)
    first = field_of(stations, values).estimate(targets)
    assert len(chunks) == 1
    # Other places of the same content, as the next query has them.
    again = Targets(targets.positions_m.copy())
    np.testing.assert_array_equal(field_of(stations, values).estimate(again), first)
    np.testing.assert_allclose(field_of(stations, values + 1.0).estimate(again), first + 1.0, atol=1e-12)
    assert len(chunks) == 1
    WEIGHTS.clear()
    np.testing.assert_array_equal(field_of(stations, values).estimate(targets), first)
    assert len(chunks) == 2


def test_another_station_that_is_silent_needs_no_other_neighbours(chunks: list[int]) -> None:
    stations, _, targets = network(2)
    for silent in range(12):
        values = np.ones((1, STATIONS))
        values[0, silent] = np.nan
        np.testing.assert_allclose(field_of(stations, values).estimate(targets), 1.0, rtol=1e-12)
    assert len(chunks) == 1


def test_where_few_report_they_alone_are_looked_at(chunks: list[int]) -> None:
    stations, values, targets = network(3, slices=1, holes=0.0)
    values[0, 5:] = np.nan
    few = KrigingField(KrigingSystem.of(stations.take_stations(np.arange(5)), MODEL), values[:, :5])
    np.testing.assert_allclose(field_of(stations, values).estimate(targets), few.estimate(targets), atol=1e-11)
    assert chunks == [5]


def test_what_differs_in_anything_but_values_is_kept_apart() -> None:
    stations, values, targets = network(4, slices=1)
    moved = Stations(stations.positions_m + [0.0, 50.0] * np.arange(STATIONS)[:, None] / STATIONS, stations.names)
    other = variogram("exponential", psill=1.5, range_m=300.0, nugget=0.1)
    fields = [
        field_of(stations, values),
        field_of(stations, values, 9),
        field_of(moved, values),
        LocalField(KrigingSystem.of(stations, other), values, NeighbourSelection(8)),
        LocalField(KrigingSystem.of(stations, MODEL), values, NeighbourSelection(8, 150.0)),
        LocalField(KrigingSystem.of(stations, MODEL), values, NeighbourSelection(8, octants=1)),
    ]
    found = [field.estimate(targets) for field in fields]
    for number, (field, kept) in enumerate(zip(fields, found, strict=True)):
        WEIGHTS.clear()
        np.testing.assert_array_equal(field.estimate(targets), kept)
        assert not any(np.array_equal(kept, one, equal_nan=True) for one in found[:number])


def test_a_large_job_keeps_nothing_and_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    stations, values, targets = network(5, slices=3)
    expected = field_of(stations, values).estimate(targets)
    small = WeightCache(allowed_bytes=4 * projected_bytes(TARGETS, 8) - 4)
    monkeypatch.setattr(local, "WEIGHTS", small)
    np.testing.assert_allclose(field_of(stations, values).estimate(targets), expected, rtol=0, atol=1e-11)
    assert small.statistics().entries == 0


def test_nothing_is_kept_where_it_is_not_wanted() -> None:
    stations, values, targets = network(10, slices=2)
    field, kept = field_of(stations, values), field_of(stations, values)
    field.expect(TARGETS, 2, cache=None)
    found = field.estimate(targets)
    assert WEIGHTS.statistics().entries == 0
    np.testing.assert_allclose(kept.estimate(targets), found, rtol=0, atol=1e-11)
    assert WEIGHTS.statistics().entries > 0


def test_kept_weights_take_what_is_projected() -> None:
    stations, values, targets = network(6, slices=1)
    field = field_of(stations, values)
    field.estimate(targets)
    before = WEIGHTS.statistics().held_bytes
    silent = values.copy()
    silent[0, np.flatnonzero(np.isfinite(values[0]))[0]] = np.nan
    field_of(stations, silent).estimate(targets)
    assert 0 <= WEIGHTS.statistics().held_bytes - before - projected_bytes(TARGETS, 8) <= 64
    assert WEIGHTS.statistics().held_bytes <= held_bytes(TARGETS, TARGETS, 8, STATIONS, 2)


def test_a_slice_of_a_large_job_is_done_as_large_jobs_are() -> None:
    stations, values, targets = network(7, slices=1)
    plain, part = field_of(stations, values), field_of(stations, values)
    assert not plain._is_large(targets, 1)
    part.expect(200 * TARGETS, 10_000)
    assert part._is_large(targets, 1)
    np.testing.assert_allclose(part.estimate(targets), plain.estimate(targets), rtol=0, atol=1e-11)
    # Each way keeps weights of its own: digits do not tell what was asked before.
    assert WEIGHTS.statistics().entries >= 3
    # What has all slices of the job knows how many masks they have.
    whole = field_of(stations, np.ones((10_000, STATIONS)))
    whole.expect(TARGETS, 10_000)
    assert not whole._is_large(targets, 1)


def test_threads_find_the_same() -> None:
    stations, values, targets = network(8)
    expected = field_of(stations, values).estimate(targets)
    apart: list[float] = []

    def work() -> None:
        for number in range(0, len(values), 2):
            found = field_of(stations, values[number : number + 2]).estimate(Targets(targets.positions_m))
            apart.append(float(np.abs(found - expected[number : number + 2]).max()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(apart) == 4 * len(values) // 2
    assert max(apart) < 1e-11


@pytest.mark.parametrize("kind", [LocalField, KrigingField])
def test_a_network_takes_other_values(kind: type[LocalField] | type[KrigingField]) -> None:
    stations, values, targets = network(9)
    system, near = KrigingSystem.of(stations, MODEL), (NeighbourSelection(8),) if kind is LocalField else ()
    begun = kind(system, values[:3], *near)
    begun.estimate(targets)
    other = begun.replace_values(values[3:])
    assert isinstance(other, kind)
    fresh = kind(system, values[3:], *near)
    np.testing.assert_array_equal(other.estimate(targets), fresh.estimate(targets))
    np.testing.assert_array_equal(other.counts, fresh.counts)
    assert begun.estimate(targets).shape == (3, TARGETS)
