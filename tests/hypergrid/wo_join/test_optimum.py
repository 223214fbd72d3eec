"""The optimum and the smallest fixed window, against oracles that try every size."""

import doctest
import math
import time
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from hypergrid.core.errors import TooLarge
from hypergrid.core.readings import Readings, Series
from tests.support import stream_oracles as oracle
from tests.support.stream_loads import small_load
from tests.support.streams import fixed_window, generator
from tests.support.streams import optimum as optimum_module
from tests.support.streams.arrivals import Arrivals, of_readings
from tests.support.streams.fixed_window import smallest_window
from tests.support.streams.generator import Load, Source
from tests.support.streams.loads import query_load
from tests.support.streams.optimum import count_results, every_result, intermediate, needed_each, optimum
from tests.support.streams.replay import motes, sample_network

SAMPLE = Path(__file__).parents[3] / "station_data" / "sample"
MOTES = Path(__file__).parents[4] / "shared" / "data" / "ulb_wsn" / "R1.txt"


def tuples_of(arrivals: Arrivals) -> list[tuple[int, int]]:
    return list(zip(arrivals.stream.tolist(), arrivals.key.tolist(), strict=True))


def refuses(arrivals: Arrivals) -> None:
    with pytest.raises(ValueError, match="no key in common"):
        smallest_window(arrivals, 0.9)


@pytest.mark.parametrize("seed", range(40))
def test_every_result_is_the_brute_force_join(seed: int) -> None:
    arrivals = small_load(seed)
    expected = oracle.join(tuples_of(arrivals), arrivals.streams)
    found = every_result(arrivals)
    assert list(zip(found.completed.tolist(), map(tuple, found.rows.tolist()), strict=True)) == [
        (one.completed, one.rows) for one in expected
    ]
    assert count_results(arrivals) == len(expected)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("form", ["inner", "assembling"])
def test_the_course_is_the_smallest(seed: int, form: Literal["inner", "assembling"]) -> None:
    arrivals = small_load(seed, most_streams=4)
    expected = np.array(oracle.optimal_course(tuples_of(arrivals), arrivals.streams, form=form))
    found = optimum(arrivals, form=form)
    assert np.array_equal(found.held, expected)
    assert found.mean == pytest.approx(expected.mean(axis=1))
    assert found.peak.tolist() == expected.max(axis=1).tolist()
    assert np.all(found.mean_in_any_order <= found.mean + 1e-12)
    thinned = optimum(arrivals, form=form, every=3)
    assert thinned.at.tolist() == list(range(2, len(arrivals), 3))
    assert np.array_equal(thinned.held, expected[:, 2::3])
    assert np.array_equal(thinned.mean, found.mean)


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_letting_go_needs_less(seed: int) -> None:
    arrivals = small_load(seed, most_streams=4)
    tuples = tuples_of(arrivals)
    rows, held = arrivals.rows().tolist(), np.zeros(arrivals.streams)
    for now in range(len(tuples)):
        waiting = {
            (stream, row)
            for result in oracle.join(tuples, arrivals.streams)
            for stream, row in enumerate(result.rows)
            if result.completed > now
        }
        for (stream, _), row in list(zip(tuples, rows, strict=True))[: now + 1]:
            held[stream] += (stream, row) in waiting
    assert optimum(arrivals).mean_in_any_order == pytest.approx(held / len(tuples))


@pytest.mark.parametrize("seed", range(20))
def test_the_thesis_curve_is_the_greatest_need_of_each_bin(seed: int) -> None:
    arrivals = small_load(seed, most_streams=4)
    tuples = tuples_of(arrivals)
    starts_s, needed = needed_each(arrivals, bin_s=0.05)
    expected = np.zeros_like(needed)
    for result in oracle.join(tuples, arrivals.streams):
        column = int(arrivals.arrival_ns[result.completed]) // 50_000_000 - round(starts_s[0] / 0.05)
        sizes = oracle.needed_buffers(tuples, arrivals.streams, result)
        expected[:, column] = np.maximum(expected[:, column], sizes)
    assert np.array_equal(needed, expected)
    assert starts_s[-1] == pytest.approx(int(arrivals.arrival_ns[-1]) // 50_000_000 * 0.05)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("accuracy", [0.5, 0.9, 0.995, 1.0])
def test_the_smallest_window_of_tuples(seed: int, accuracy: float) -> None:
    arrivals = small_load(seed, most_streams=4)
    tuples, results = tuples_of(arrivals), count_results(arrivals)
    if not results:
        refuses(arrivals)
        return
    found = smallest_window(arrivals, accuracy)
    size = next(
        size
        for size in range(1, len(arrivals) + 1)
        if oracle.windowed(tuples, arrivals.streams, [size] * arrivals.streams) >= accuracy * results - 1e-9
    )
    assert found.sizes.tolist() == [size] * arrivals.streams
    assert found.accuracy == oracle.windowed(tuples, arrivals.streams, [size] * arrivals.streams) / results
    counts = np.cumsum([arrivals.stream == number for number in range(arrivals.streams)], axis=1)
    assert found.mean == pytest.approx(np.minimum(counts, size).mean(axis=1))


@pytest.mark.parametrize("seed", range(30))
def test_sizes_of_their_own_cannot_be_lowered(seed: int) -> None:
    arrivals = small_load(seed, most_streams=4)
    tuples, results = tuples_of(arrivals), count_results(arrivals)
    if not results:
        refuses(arrivals)
        return
    found = smallest_window(arrivals, 0.9, each=True)
    given = found.sizes.tolist()
    assert oracle.windowed(tuples, arrivals.streams, given) == round(found.accuracy * results)
    assert found.accuracy >= 0.9
    assert max(given) <= smallest_window(arrivals, 1.0).sizes[0]
    for stream in range(arrivals.streams):
        lower = [size - (number == stream) for number, size in enumerate(given)]
        assert min(lower) == 0 or oracle.windowed(tuples, arrivals.streams, lower) < 0.9 * results


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("each", [False, True])
def test_the_smallest_window_of_time(seed: int, each: bool) -> None:  # noqa: FBT001
    arrivals = small_load(seed, most_streams=4)
    results = oracle.join(tuples_of(arrivals), arrivals.streams)
    if not results:
        refuses(arrivals)
        return
    columns = [arrivals.arrival_ns[arrivals.stream == number] for number in range(arrivals.streams)]
    ages = [
        [int(arrivals.arrival_ns[one.completed] - column[row]) for column, row in zip(columns, one.rows, strict=True)]
        for one in results
    ]

    def share(sizes: list[int]) -> float:
        fits = [all(age <= size for age, size in zip(each, sizes, strict=True)) for each in ages]
        return sum(fits) / len(fits)

    found = smallest_window(arrivals, 0.9, kind="time", each=each)
    sizes = found.sizes.tolist()
    assert share(sizes) == pytest.approx(found.accuracy)
    assert found.accuracy >= 0.9
    if each:
        for stream, size in enumerate(sizes):
            assert size == 0 or share([s - (number == stream) for number, s in enumerate(sizes)]) < 0.9
    else:
        assert share([size - 1 for size in sizes]) < 0.9
    held = [
        [int(((column <= now) & (column >= now - size)).sum()) for now in arrivals.arrival_ns]
        for column, size in zip(columns, sizes, strict=True)
    ]
    # Tuples that arrive at one instant are counted when they come; there are none here.
    assert len(np.unique(arrivals.arrival_ns)) == len(arrivals)
    assert found.mean == pytest.approx(np.mean(held, axis=1))
    assert found.peak.tolist() == np.max(held, axis=1).tolist()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("number", [2, 3])
def test_intermediate_streams_are_those_of_the_pipeline(seed: int, number: Literal[2, 3]) -> None:
    sources = tuple(Source(int(k), 1 + (seed % 2), 0.02) for k in np.random.default_rng(seed).integers(1, 7, 6))
    firsts = Source(3, 1 + (seed % 2), 0.02, dependent_scrambling_factor=4 + (seed % 2))
    arrivals = Load((firsts, *sources[1:3], firsts, *sources[4:]), keys=7, seed=seed).arrivals()
    assert arrivals.second is not None
    columns = (arrivals.stream, arrivals.key, arrivals.second)
    tuples = list(zip(*(column.tolist() for column in columns), strict=True))
    results, inner = oracle.query(number, tuples)
    last = intermediate(arrivals, ((0, 1, 2), (3, 4, 5)), on_second=number == 3)
    for which in (0, 1):
        assert last.payload[last.stream == which].tolist() == [one.completed for one in inner[which + 1]]
    found = every_result(last)
    assert len(found) == len(results) > 0
    assert sorted(last.payload[found.completed].tolist()) == [one.completed for one in results]
    assert np.array_equal(last.arrival_ns, arrivals.arrival_ns[last.payload.astype(int)])
    pairs = [inner[1][one].rows + inner[2][two].rows for one, two in found.rows.tolist()]
    assert sorted(pairs) == sorted(one.rows for one in results)


def test_an_optimum_follows_congestion_and_burst() -> None:
    arrivals = query_load(1, seed=3).arrivals()
    found = optimum(arrivals)
    seconds = arrivals.arrival_ns[found.at] / 1e9
    before, congested = seconds < 10, (seconds > 38) & (seconds < 40)
    # The second stream is then 30 s behind: what the others sent is held, 7/8 of 1500 tuples more than before.
    for stream in (0, 2):
        grown = found.held[stream, congested].mean() - found.held[stream, before].mean()
        assert grown == pytest.approx(1312, abs=500)
    after_burst = found.held[2, seconds > 92].mean() - found.held[2, (seconds > 70) & (seconds < 80)].mean()
    assert after_burst == pytest.approx(3500, abs=700)
    starts_s, needed = needed_each(arrivals)
    assert len(starts_s) == 120
    # A buffer holds at least what a result needs, but for the tuple that has just come.
    assert np.all(needed.max(axis=1) <= found.peak + 1)


def test_millions_of_tuples_take_seconds() -> None:
    for streams, keys in ((3, 400_000), (23, 50_000)):
        arrivals = Load((Source(60, 1, 0.02, regular=True),) * streams, keys=keys).arrivals()
        began = time.process_time()
        found = optimum(arrivals, every=1000)
        assert time.process_time() - began < 10
        assert len(found.at) == len(arrivals) // 1000
        # Each waits for tuples of the others that are up to 60 places late.
        assert 25 < found.mean.mean() < 100


def test_replayed_motes() -> None:
    if not MOTES.is_file():
        pytest.skip("the recorded arrivals ../shared/data/ulb_wsn are not here")
    arrivals = motes(MOTES)
    assert (len(arrivals), arrivals.streams) == (7563, 19)
    assert np.all(np.diff(arrivals.arrival_ns) >= 0)
    # The first line of the file: node 20, the 19th that sends, sequence 1, 21,21 degrees.
    first = arrivals.take(slice(1))
    assert (first.stream[0], first.key[0], first.payload[0]) == (18, 1, 21.21)
    assert first.arrival_ns[0] == 1_163_438_041_250_000_000
    groups = oracle.group(tuples_of(arrivals), 19)
    assert len(groups) == 406
    assert count_results(arrivals) == sum(all(one.rows) for one in groups.values())
    assert oracle.multiplicity(arrivals.key[arrivals.stream == 3].tolist()) == 1


def test_replayed_sample_network() -> None:
    arrivals = sample_network(SAMPLE)
    lines = (SAMPLE / "arrivals.csv").read_text().splitlines()[1:]
    assert (len(arrivals), arrivals.streams) == (len(lines), 24)
    assert np.all(np.diff(arrivals.arrival_ns) >= 0)
    station, stamp, _ = lines[0].split(",")
    assert (arrivals.stream[0], arrivals.key[0]) == (int(station) - 1, int(stamp) // 120)
    # pass-meteo-1.txt: 1191196835 at -1.797 degC.
    row = np.flatnonzero((arrivals.stream == 0) & (arrivals.key == 1191196835 // 120))
    assert arrivals.payload[row].tolist() == [-1.797]
    held = optimum(arrivals, form="assembling").mean
    assert np.all((held > 0) & (held < len(arrivals)))


def test_replay_of_nothing(tmp_path: Path) -> None:
    for absent in (lambda: motes(tmp_path / "R1.txt"), lambda: sample_network(tmp_path)):
        with pytest.raises(LookupError, match="give where the recording lies"):
            absent()


def test_readings_arrive_as_a_stream_a_series() -> None:
    series = tuple(Series("air_temperature", name) for name in "ab")
    columns = (np.array([0, 1, 0], np.int32), np.array([5, 250, 130]), np.array([1.0, 2.0, 3.0]))
    readings = Readings(series, *columns, np.array([1, 1, 1], np.uint8), np.array([900, 300, 400]))
    arrivals = of_readings(readings, 120)
    assert arrivals.streams == 2
    assert arrivals.stream.tolist() == [1, 0, 0]
    assert arrivals.key.tolist() == [2, 1, 0]
    assert arrivals.payload.tolist() == [2.0, 3.0, 1.0]
    with pytest.raises(ValueError, match="at least 1 ns"):
        of_readings(readings, 0)


def test_examples_run() -> None:
    for module in (fixed_window, generator, optimum_module):
        assert doctest.testmod(module).attempted > 0
        assert doctest.testmod(module).failed == 0


def test_questions_that_cannot_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = Load((Source(), Source()), keys=4).arrivals()
    apart = Arrivals(2, apart.stream, apart.key + 10 * apart.stream, apart.payload, apart.arrival_ns)
    assert count_results(apart) == len(every_result(apart)) == 0
    assert optimum(apart).peak.tolist() == [0, 0]
    with pytest.raises(ValueError, match="no key in common"):
        smallest_window(apart, 0.99)
    for accuracy in (0.0, 1.1, math.nan):
        with pytest.raises(ValueError, match="above 0 and up to 1"):
            smallest_window(apart, accuracy)
    with pytest.raises(ValueError, match="at least one arrival"):
        optimum(apart.take(slice(0)))
    monkeypatch.setattr(optimum_module, "MOST_RESULTS", 99)
    twos = Load((Source(1, 2),) * 40, keys=4).arrivals()
    assert count_results(twos) == 4 * 2**40
    with pytest.raises(TooLarge, match="4,398,046,511,104 results, above the 99"):
        every_result(twos)
