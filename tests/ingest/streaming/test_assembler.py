"""The assembler against a dictionary of slices, whatever way arrivals are cut into batches."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hypergrid.core.clock_errors import ClockError, ClockErrors
from ingest.deployment.deployment_file import Column, SliceOrder
from ingest.streaming.assembler import MOST_STREAMS, STALLED, Assembler, EmittedRows, StateUnusable
from ingest.streaming.spool_decoder import ClockTicks, Dictionary, RowBatch, concatenate_batches
from tests.support.no_clock import no_ticks

SLICE_S = 10.0
NS = 10**9
T, RH = Column("t", "air_temperature"), Column("rh", "relative_humidity")


def rows(
    came_s: list[float],
    time_s: list[float],
    station: list[int],
    *,
    value: NDArray[np.float64] | None = None,
    counter: list[int] | None = None,
) -> RowBatch:
    """Return rows of two readings each."""
    size = len(came_s)
    order = np.argsort(came_s, kind="stable")
    came_ns = np.round(np.array(came_s, np.float64) * NS).astype(np.int64)[order]
    values = np.arange(2.0 * size) if value is None else value
    return RowBatch(
        tuple(("net", str(one)) for one in range(max(station, default=0) + 1)),
        (("net", T), ("net", RH)),
        np.arange(1, size + 1),
        came_ns,
        came_ns,
        np.round(np.array(time_s, np.float64) * NS).astype(np.int64)[order],
        np.array(station, np.int32)[order],
        np.full(size, -1, np.int64) if counter is None else np.array(counter, np.int64)[order],
        np.arange(1, size + 1) * 2,
        np.tile(np.array([0, 1], np.int32), size),
        values.reshape(-1, 2)[order].ravel(),
        np.full(2 * size, 2, np.uint8),
    )


def workload(seed: int, *, stations: int, minutes: int, retried: float) -> RowBatch:
    """Return rows of stations that begin at different times, some of them silent or late for a while."""
    random = np.random.default_rng(seed)
    found = []
    for station in range(stations):
        times = np.arange(random.uniform(0, 60), 60 * minutes, SLICE_S) + random.normal(0, 0.5)
        delay = random.uniform(0, 5) + random.exponential(1.0, len(times))
        delay += (random.random(len(times)) < retried) * random.uniform(20, 400, len(times))
        if station % 5 == 4:
            # It keeps its readings, and sends them together.
            begin = random.integers(0, len(times) // 2)
            silent = slice(begin, begin + len(times) // 4)
            delay[silent] = times[silent][-1] - times[silent] + 1
        found += [(time + late, time, station) for time, late in zip(times, delay, strict=True)]
    came_s, time_s, station_of = zip(*sorted(found), strict=True)
    return rows(list(came_s), list(time_s), list(station_of))


def clock_of(seq: list[int], clock_s: list[float], is_end: list[bool]) -> ClockTicks:
    return ClockTicks(
        np.array(seq, np.int64), np.round(np.array(clock_s) * NS).astype(np.int64), np.array(is_end, np.bool_)
    )


def released(parts: list[EmittedRows]) -> dict[int, tuple[int, bool]]:
    """Return by record when each row was let go, and whether late."""
    found: dict[int, tuple[int, bool]] = {}
    for part in parts:
        for seq, closed_ns, late in zip(
            part.rows.seq.tolist(), part.closed_ns.tolist(), part.late.tolist(), strict=True
        ):
            assert seq not in found
            found[seq] = (closed_ns, late)
    return found


def _check_order(came: RowBatch, closings: dict[int, int], slice_ns: int) -> None:
    """See that a slice closes after those below it, or is one that all stations brought which are awake."""
    first_below, latest_ns = {}, -(2**62)
    for key in sorted(closings):
        first_below[key] = latest_ns
        latest_ns = max(latest_ns, closings[key])
    for key, closed_ns in closings.items():
        if closed_ns < first_below[key]:
            before = came.came_ns <= closed_ns
            awake = set(came.origin[before & (came.came_ns > closed_ns - 60 * NS)].tolist())
            brought = set(came.origin[before & (came.time_ns // slice_ns == key)].tolist())
            assert awake <= brought, "a slice that closes before its turn is whole"


def _is_passed(came: RowBatch, seq: int, key: int, slice_ns: int) -> bool:
    """Return whether every station heard in the minute before a row had brought a later slice than its own."""
    before = came.seq < seq
    now_ns = came.came_ns[came.seq == seq][0]
    awake = set(came.origin[before & (came.came_ns > now_ns - 60 * NS)].tolist())
    beyond = set(came.origin[before & (came.time_ns // slice_ns > key)].tolist())
    return awake <= beyond and bool(beyond)


def oracle(came: RowBatch, found: dict[int, tuple[int, bool]], slice_ns: int) -> None:
    """Keep slices in a dictionary, close them when the assembler says so, and see that it let go just what they had."""
    by_slice: dict[int, list[int]] = defaultdict(list)
    closings: dict[int, int] = {}
    for seq, time_ns in zip(came.seq.tolist(), came.time_ns.tolist(), strict=True):
        if seq in found and not found[seq][1]:
            key = time_ns // slice_ns
            assert closings.setdefault(key, found[seq][0]) == found[seq][0], "a slice closes once"
    _check_order(came, closings, slice_ns)
    for seq, came_ns, time_ns in zip(came.seq.tolist(), came.came_ns.tolist(), came.time_ns.tolist(), strict=True):
        key = time_ns // slice_ns
        if seq not in found:
            assert key not in closings or closings[key] >= came_ns
            continue
        closed_ns, late = found[seq]
        if late:
            assert closed_ns == came_ns
            # A slice that no row was in is passed without a closing: then all stations awake had gone beyond it.
            closed = min((at for one, at in closings.items() if one >= key), default=closed_ns) <= came_ns
            assert closed or _is_passed(came, seq, key, slice_ns)
        else:
            by_slice[key].append(seq)
            assert came_ns <= closed_ns
    for key, seqs in by_slice.items():
        assert all(found[seq][0] == closings[key] for seq in seqs)


@pytest.mark.parametrize("cuts", [1, 7, 40])
@pytest.mark.parametrize("stations", [1, 3, 30])
def test_every_row_is_let_go_once_with_its_slice_or_late(stations: int, cuts: int) -> None:
    came = workload(stations, stations=stations, minutes=20, retried=0.02)
    assembler = Assembler(SLICE_S, 120.0)
    bounds = np.linspace(0, len(came), cuts + 1).astype(int)
    parts = []
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        parts.append(assembler.process(came.take(np.arange(start, stop)), no_ticks()))
        assembler = Assembler.from_bytes(b"".join(assembler.to_chunks()))
        assert assembler.counts.readings == assembler.counts.released + assembler.held_readings
    oracle(came, released(parts), assembler.slice_ns)
    assert len(assembler) < len(came)
    parts.append(assembler.process(came.take(np.arange(0)), clock_of([len(came) + 1], [1e5], [True])))
    assert len(assembler) == 0
    found = released(parts)
    assert sorted(found) == came.seq.tolist()
    # What was let go is what came, value by value.
    whole = concatenate_batches([Dictionary().encode(part.rows) for part in parts])
    order = np.argsort(whole.seq)
    assert np.array_equal(whole.take(order).value, came.value)
    assert np.array_equal(whole.take(order).time_ns, came.time_ns)


def test_results_do_not_depend_on_how_arrivals_are_cut() -> None:
    came = workload(5, stations=12, minutes=30, retried=0.03)
    ticks = clock_of([200, 201, 900], [came.came_ns[199] / NS, came.came_ns[199] / NS + 500, 0.0], [False] * 3)
    outcomes = []
    for cuts in (1, 5, 33):
        assembler = Assembler(SLICE_S, 100.0)
        bounds = np.linspace(0, len(came), cuts + 1).astype(int)
        parts = []
        for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
            mine = (ticks.seq > start) & (ticks.seq <= stop)
            clock = ClockTicks(ticks.seq[mine], ticks.clock_ns[mine], ticks.is_end[mine])
            parts.append(assembler.process(came.take(np.arange(start, stop)), clock))
        outcomes.append(released(parts))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("seed", range(100))
def test_in_order_of_time_no_slice_closes_before_an_older_one(seed: int) -> None:
    """Whatever arrives and however it is cut; later rows are amendments, and no row is lost."""
    random = np.random.default_rng(seed)
    came = workload(seed, stations=int(random.integers(2, 9)), minutes=8, retried=float(random.uniform(0, 0.2)))
    cuts = np.sort(random.integers(0, len(came), 12))
    # Not at the beginning of 1970, before which slices have negative numbers.
    came = replace(came, time_ns=came.time_ns + 1000 * NS, came_ns=came.came_ns + 1000 * NS)
    assembler, closed, found = Assembler(SLICE_S, 100.0, order="time"), -1, []
    for start, stop in zip([0, *cuts], [*cuts, len(came)], strict=True):
        # A stream may end, and go on later.
        ends = random.random() < 0.1 and stop > start
        ticks = clock_of([stop], [came.came_ns[stop - 1] / NS], [True]) if ends else no_ticks()
        found.append(assembler.process(came.take(np.arange(start, stop)), ticks))
        if random.random() < 0.2:
            assembler = Assembler.from_bytes(b"".join(assembler.to_chunks()))
    found.append(assembler.process(came.take(np.arange(0)), clock_of([len(came) + 1], [1e6], [True])))
    for part in found:
        numbers = part.rows.time_ns // assembler.slice_ns
        whole = np.unique(numbers[~part.late])
        assert whole.min(initial=closed + 1) > closed
        # In a batch, too: a slice closes no later than those after it.
        first_ns = [part.closed_ns[~part.late & (numbers == number)].min() for number in whole]
        assert np.all(np.diff(first_ns) >= 0)
        closed = int(whole.max(initial=closed))
        assert np.all(numbers[part.late] <= closed)
    assert sorted(released(found)) == came.seq.tolist()
    assert assembler.order == "time"


@settings(max_examples=40)
@given(st.data())
def test_any_arrivals(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 120))
    stations = data.draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
    time_s = data.draw(st.lists(st.integers(0, 3000), min_size=size, max_size=size))
    gaps = data.draw(st.lists(st.integers(0, 60), min_size=size, max_size=size))
    came = rows(np.cumsum(gaps).astype(float).tolist(), [float(one) for one in time_s], stations)
    assembler = Assembler(SLICE_S, 100.0)
    half = data.draw(st.integers(0, size))
    parts = [assembler.process(came.take(np.arange(half)), no_ticks())]
    resumed = Assembler.from_bytes(b"".join(assembler.to_chunks()))
    rest = came.take(np.arange(half, size))
    other, more = resumed.process(rest, no_ticks()), assembler.process(rest, no_ticks())
    assert other.rows.seq.tolist() == more.rows.seq.tolist()
    assert b"".join(resumed.to_chunks()) == b"".join(assembler.to_chunks())
    parts += [more, assembler.process(came.take(np.arange(0)), clock_of([size + 1], [1e6], [True]))]
    found = released(parts)
    assert sorted(found) == came.seq.tolist()
    oracle(came, found, assembler.slice_ns)


def test_a_row_of_an_empty_slice_that_was_passed_is_late() -> None:
    came = rows([0.0] * 64 + [1.0, 61.0], [0.0] * 64 + [20.0, 10.0], [0] * 66)
    assembler = Assembler(SLICE_S, 100.0)
    parts = [assembler.process(came, no_ticks())]
    parts.append(assembler.process(came.take(np.arange(0)), clock_of([67], [1e6], [True])))
    found = released(parts)
    assert found[66] == (61 * NS, True)
    oracle(came, found, assembler.slice_ns)


def test_a_message_that_comes_again_is_held_once() -> None:
    came = rows([1, 2, 3, 4], [1, 1, 2, 2], [0, 0, 1, 1], value=np.array([1.0, 2, 1, 2, 3, np.nan, 3, np.nan]))
    assembler = Assembler(SLICE_S)
    assembler.process(came, no_ticks())
    assert (assembler.counts.duplicates, assembler.held_readings) == (4, 4)
    # Another value is no duplicate: it replaces, in the order of arrival.
    other = rows([5], [1], [0], value=np.array([1.0, 7]))
    assembler.process(replace(other, seq=np.array([5])), no_ticks())
    let_go = assembler.process(came.take(np.arange(0)), clock_of([6], [9], [True]))
    assert let_go.rows.seq.tolist() == [1, 3, 5]
    assert assembler.counts.duplicates == 4


def test_a_device_that_sends_again_means_the_first_time() -> None:
    came = rows([1, 4, 9], [1, 3, 8], [0, 0, 0], value=np.array([1.0, 2, 1, 2, 1, 2]), counter=[7, 7, 8])
    assembler = Assembler(SLICE_S)
    assembler.process(came.take(np.arange(1)), no_ticks())
    assembler = Assembler.from_bytes(b"".join(assembler.to_chunks()))
    assembler.process(came.take(np.arange(1, 3)), no_ticks())
    let_go = assembler.process(came.take(np.arange(0)), clock_of([6], [9], [True]))
    assert let_go.rows.time_ns.tolist() == [1 * NS, 8 * NS]
    assert assembler.counts.duplicates == 2


def test_a_silent_station_and_one_whose_clock_stands_still_stop_nobody() -> None:
    times = np.arange(0.0, 20_000.0, SLICE_S)
    came_s = [*(times + 1), *(times[:50] + 2), *(times + 3)]
    # Station 1 is silent after 50 slices, the clock of station 2 stands still after 60.
    time_s = [*times, *times[:50], *np.minimum(times, 600.0)]
    came = rows(came_s, time_s, [0] * len(times) + [1] * 50 + [2] * len(times))
    assembler = Assembler(SLICE_S, 100.0)
    for part in np.array_split(np.arange(len(came)), 20):
        assembler.process(came.take(part), no_ticks())
    assert STALLED < len(times)
    assert len(assembler) < 60
    assert assembler.counts.last_slice > len(times) - 30


def test_a_tick_closes_slices_when_nobody_speaks() -> None:
    times = np.arange(0.0, 1000.0, SLICE_S)
    fewer = times[:-5]
    came = rows([*(times + 1), *(fewer + 2)], [*times, *fewer], [0] * len(times) + [1] * len(fewer))
    assembler = Assembler(SLICE_S, 100.0)
    assembler.process(came, no_ticks())
    held = len(assembler)
    assert held == 5
    assembler.process(came.take(np.arange(0)), clock_of([9999], [1030], [False]))
    assert len(assembler) == held
    let_go = assembler.process(came.take(np.arange(0)), clock_of([10_000], [5000], [False]))
    assert len(assembler) == 0
    assert set(let_go.closed_ns.tolist()) == {5000 * NS}


@pytest.mark.parametrize("set_s", [0.0, 3.2e8, -3.2e8, 5000.0])
@pytest.mark.parametrize("ticks", [False, True])
def test_who_sets_the_clock_of_the_machine_does_not_end_idleness(set_s: float, ticks: bool) -> None:  # noqa: FBT001
    times = np.arange(0.0, 4000.0, SLICE_S)
    # Station 1 is silent after 100 slices; the clock was set before, and set right again.
    speaks = [(time, station) for time in times for station in (0, 1) if station == 0 or time < 1000]
    station, came_ns = [one for _, one in speaks], [round((time + 1) * NS) for time, _ in speaks]
    came = rows([float(n) for n in range(len(speaks))], [time for time, _ in speaks], station)
    came_ns = [at + round(set_s * NS) * (500 <= time < 520) for at, (time, _) in zip(came_ns, speaks, strict=True)]
    came = replace(came, came_ns=np.array(came_ns, np.int64))
    silent = no_ticks()
    if ticks:
        silent = ClockTicks(came.seq, came.came_ns + NS // 2, np.zeros(len(came), np.bool_))
    outcomes = []
    for cuts in (1, 30):
        assembler, parts = Assembler(SLICE_S, 100.0), []
        for part in np.array_split(np.arange(len(came)), cuts):
            clock = ClockTicks(silent.seq[part], silent.clock_ns[part], silent.is_end[part]) if ticks else silent
            parts.append(assembler.process(came.take(part), clock))
            assembler = Assembler.from_bytes(b"".join(assembler.to_chunks()))
        assert len(assembler) < 60
        assert assembler.counts.last_slice > len(times) - 30
        outcomes.append(released(parts))
    assert outcomes[0] == outcomes[1]


def test_more_stations_than_streams_share_some() -> None:
    count = MOST_STREAMS + 100
    came = rows([float(one) for one in range(count)], [5.0] * count, list(range(count)))
    assembler = Assembler(SLICE_S, 1e6)
    assembler.process(came, no_ticks())
    let_go = assembler.process(came.take(np.arange(0)), clock_of([count + 1], [1e6], [True]))
    assert len(let_go.rows) == count


def test_state_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = b"".join(Assembler(SLICE_S).to_chunks())
    monkeypatch.setattr("ingest.streaming.assembler.VERSION", 99)
    with pytest.raises(StateUnusable, match="of version 99; got version 4"):
        Assembler.from_bytes(kept)


DECLARED = tuple(("net", str(number)) for number in range(23))
DAY_S = 86_400.0


def sending(stations: range, times: NDArray[np.float64]) -> RowBatch:
    """Return a row of each station in each slice, which comes a second or some after its time."""
    time_s = np.repeat(times, len(stations))
    station = np.tile(np.array(stations), len(times))
    return rows((time_s + 1 + station / 10).tolist(), time_s.tolist(), station.tolist())


@pytest.mark.parametrize("cuts", [1, 9, 60])
def test_declared_stations_that_never_send_are_not_waited_for(cuts: int) -> None:
    # Stations 5, 11 and 22 never send; a station may be silent for a day before it is given up.
    came = sending(range(23), np.arange(0.0, 6000.0, SLICE_S))
    came = came.take(~np.isin(came.origin, (5, 11, 22)))
    assembler = Assembler(SLICE_S, DAY_S, expected=DECLARED)
    held, parts = [], []
    for part in np.array_split(np.arange(len(came)), cuts):
        parts.append(assembler.process(came.take(part), no_ticks()))
        assembler = Assembler.from_bytes(b"".join(assembler.to_chunks()))
        held.append(len(assembler))
    # At most the last slices, which nobody knows to be complete.
    assert held[-1] <= 3 * 20
    assert max(held[cuts // 8 :]) <= 3 * 20 + len(came) // cuts
    assert assembler.counts.late == 0
    found = released(parts)
    assert set(found) | set(assembler._held.seq.tolist()) == set(came.seq.tolist())  # noqa: SLF001
    whole = Assembler(SLICE_S, DAY_S, expected=DECLARED).process(came, no_ticks())
    assert released([whole]) == found, "however arrivals are cut"


def test_the_first_slices_wait_for_declared_stations_that_come_a_little_later() -> None:
    # As one file a station is received: each comes whole, after the one before.
    times = np.arange(0.0, 2000.0, SLICE_S)
    time_s, station = np.tile(times, 20), np.repeat(np.arange(20), len(times))
    came = rows((np.arange(len(time_s)) * 0.005).tolist(), time_s.tolist(), station.tolist())
    assembler = Assembler(SLICE_S, DAY_S, expected=DECLARED)
    assembler.process(came, no_ticks())
    assert (len(assembler), assembler.counts.late) == (len(came), 0)
    # Nobody speaks: the clock alone gives the three up that never came. Then nothing holds what the others end.
    let_go = assembler.process(came.take(np.arange(0)), clock_of([10_000], [200.0], [False]))
    assert assembler.counts.late == 0
    assert len(let_go.rows) >= 20 * (len(times) - 2)


def test_a_station_that_comes_for_the_first_time_weeks_later_gets_slices_and_amendments() -> None:
    hour_s, weeks_s = 3600.0, 21 * DAY_S
    others = sending(range(20), np.arange(0.0, weeks_s + 2 * DAY_S, hour_s))
    # Station 21 sends what it kept of three old slices, and then what it reads.
    old = rows([weeks_s + 0.5] * 3, [hour_s, 2 * hour_s, 3 * hour_s], [21] * 3)
    now_s = np.arange(weeks_s, weeks_s + 2 * DAY_S, hour_s)
    new = rows((now_s + 1.05).tolist(), now_s.tolist(), [21] * len(now_s))
    names = Dictionary()
    came = concatenate_batches([names.encode(one) for one in (others, old, new)])
    came = came.take(np.argsort(came.came_ns, kind="stable"))
    came = replace(came, seq=np.arange(1, len(came) + 1))
    assembler = Assembler(hour_s, 30 * DAY_S, expected=DECLARED)
    let_go = assembler.process(came, no_ticks())
    of_new = let_go.rows.origin == let_go.rows.origins.index(("net", "21"))
    late_s = (let_go.rows.time_ns[let_go.late & of_new] // NS).tolist()
    assert set(late_s) >= {3600, 7200, 10800}, "closed slices are amended"
    assert np.count_nonzero(of_new & ~let_go.late) >= 10, "open slices take it up"
    assert not (let_go.late & ~of_new).any()
    assert len(let_go.rows) + len(assembler) == len(came)
    assert len(assembler) < 40 * 21, "a new station is waited for until its 32nd row"


def interval_workload(seed: int, errors_s: list[float]) -> tuple[RowBatch, dict[str, tuple[ClockError, ...]]]:
    """Return rows of stations in order of time, each later than its stamp by a delay of its own, and clock errors."""
    random = np.random.default_rng(seed)
    sent = []
    for station in range(len(errors_s)):
        times = np.sort(random.uniform(0, 1200, 100))
        sent += [(time + float(delay), time, station) for delay in [random.uniform(0, 3)] for time in times]
    came_s, time_s, station_of = zip(*sorted(sent), strict=True)
    errors = {str(number): (ClockError(None, error_s),) for number, error_s in enumerate(errors_s) if error_s}
    return rows(list(came_s), list(time_s), list(station_of)), errors


def emit_all(came: RowBatch, errors: ClockErrors, *, order: SliceOrder, cuts: int) -> dict[int, tuple[int, bool]]:
    assembler, parts = Assembler(SLICE_S, 1e6, order=order), []
    bounds = np.linspace(0, len(came), cuts + 1).astype(int)
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        parts.append(assembler.process(came.take(np.arange(start, stop)), no_ticks(), errors))
        assembler = Assembler.from_bytes(b"".join(assembler.to_chunks()))
        assert assembler.counts.readings == assembler.counts.released + assembler.held_readings
    parts.append(assembler.process(came.take(np.arange(0)), clock_of([len(came) + 1], [1e5], [True]), errors))
    assert len(assembler) == 0
    assert not assembler._clocks.by_number
    return released(parts)


def close_slices(came: RowBatch, emitted: dict[int, tuple[int, bool]], slice_ns: int) -> dict[int, int]:
    """Return when each slice was closed, from the rows that were emitted with it."""
    own = dict(zip(came.seq.tolist(), (came.time_ns // slice_ns).tolist(), strict=True))
    return {own[seq]: closed_ns for seq, (closed_ns, late) in emitted.items() if not late}


@pytest.mark.parametrize("order", ["whole", "time"])
@pytest.mark.parametrize("seed", range(12))
def test_no_slice_closes_before_a_row_that_may_belong_to_it_by_its_clock(seed: int, order: SliceOrder) -> None:
    errors_s = [0.0, 25.0, 4.0, float(np.random.default_rng(seed).uniform(0, 60))]
    came, errors = interval_workload(seed, errors_s)
    outcomes = [emit_all(came, errors, order=order, cuts=cuts) for cuts in (1, 9)]
    assert outcomes[0] == outcomes[1]
    # Every row is emitted once, value by value as it came, and with the slice of its stamp.
    assert sorted(outcomes[0]) == came.seq.tolist()
    slice_ns = round(SLICE_S * NS)

    def find_early(emitted: dict[int, tuple[int, bool]]) -> int:
        """Count the slices that closed before a row came that may belong to them."""
        closings, early = close_slices(came, emitted, slice_ns), set()
        for seq, station, time_ns, came_ns in zip(came.seq, came.origin, came.time_ns, came.came_ns, strict=True):
            bound_ns = round(errors_s[station] * NS)
            for key in range((time_ns - bound_ns) // slice_ns, (time_ns + bound_ns) // slice_ns + 1):
                if not emitted[int(seq)][1] and closings.get(key, came_ns) < came_ns:
                    early.add(key)
        return len(early)

    assert find_early(outcomes[0]) == 0
    assert find_early(emit_all(came, {}, order=order, cuts=1)) > 10
    closings = close_slices(came, outcomes[0], slice_ns)
    rows_of = {seq: key for seq, key in zip(came.seq.tolist(), (came.time_ns // slice_ns).tolist(), strict=True)}
    assert all(outcomes[0][seq][0] == closings[key] for seq, key in rows_of.items() if not outcomes[0][seq][1])
    assert sum(late for _, late in outcomes[0].values()) < len(came) // 20


def test_a_row_later_than_all_slices_it_may_belong_to_is_an_amendment_once() -> None:
    came = rows([*range(0, 600, 10), 610.0], [*range(0, 600, 10), 5.0], [0] * 61)
    emitted = emit_all(came, {"0": (ClockError(None, 12.0),)}, order="whole", cuts=3)
    assert emitted[61] == (610 * NS, True)
    assert sorted(emitted) == list(range(1, 62))
