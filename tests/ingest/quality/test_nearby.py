"""A few readings at a time have the flags of all at once, and little is read for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.archive import Archive, Writer
from hypergrid.core.flags import FAIL, GOOD, MISSING, NOT_EVALUATED, SUSPECT, TESTS
from hypergrid.core.readings import Position, Readings, Series, Station, concatenate
from hypergrid.core.times import Window
from hypergrid.core.units import KNOWN_VARIABLES
from ingest.deployment.quality_overrides import DEFAULTS, QualityOverrides
from ingest.deployment.quality_settings import (
    AttenuatedSignal,
    BuddyCheck,
    Climatology,
    Exempt,
    FlatLine,
    Gap,
    GrossRange,
    Normal,
    RateOfChange,
    SpatialConsistency,
    Spike,
    VariableTests,
)
from ingest.quality import flagging, incremental
from ingest.quality.flagging import QualityFlagger
from ingest.quality.incremental import IncrementalFlagger

STEP_NS = 60 * 10**9
START_NS = int(np.datetime64("2021-06-20T16:00", "ns").astype(np.int64))
COUNT = 5
STATIONS = {
    str(n): Station(str(n), str(n), (Position(None, 7.0 + 0.01 * (n % 3), 46.0 + 0.01 * (n // 3), 1000.0 + 10 * n),))
    for n in range(COUNT)
}
AIR, WIND = KNOWN_VARIABLES["air_temperature"], KNOWN_VARIABLES["wind_speed"]
Floats = NDArray[np.float64]


def _readings(variable: str, series: NDArray[np.int64], stamps: NDArray[np.int64], value: Floats) -> Readings:
    names = tuple(Series(variable, str(n)) for n in range(COUNT))
    flag = np.where(np.isnan(value), MISSING, NOT_EVALUATED).astype(np.uint8)
    return Readings(names, series.astype(np.int32), stamps, value, flag, stamps)


def _minutes(value: Floats, *, first: int = 0, station: int = 0) -> Readings:
    stamps = START_NS + (first + np.arange(len(value))) * STEP_NS
    return _readings("air_temperature", np.full(len(value), station), stamps, np.asarray(value, np.float64))


def _of_its_own(readings: Readings) -> Readings:
    """Return readings that name no series but their own: others are new to the archive when they come."""
    present, index = np.unique(readings.index, return_inverse=True)
    return replace(readings, series=tuple(readings.series[n] for n in present), index=index.astype(np.int32))


@dataclass
class _Stock:
    """An archive in which everything is written by one commit, as quick as it gets, and what is read of it."""

    archive: Archive
    quality: QualityOverrides
    looks: list[tuple[str, Window, int]] = field(default_factory=list)
    """Variable, window and series of each reading from the archive."""
    revised: int = 0

    def store(self, *parts: Readings, before: Readings | None = None) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
        """Store one part after the other; return flags and tests of the air temperature by station and time."""
        with self.archive.latest().commit(batch=str(len(self.archive.latest().snapshots)), message="", now_ns=1) as w:
            if before is not None:
                QualityFlagger(self.quality, STATIONS, 60.0).store(w, WIND, before, lambda _: None)
            for part in parts:
                self.looks.clear()
                inspector = QualityFlagger(self.quality, STATIONS, 60.0)
                inspector.store(w, AIR, _of_its_own(part), lambda _: None)
                self.revised = inspector.revised
        return self.flags()

    def flags(self) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
        found = self.archive.latest().read("air_temperature", tests=True)
        order = np.lexsort((found.time_ns, np.array([int(found.series[n].station) for n in found.index])))
        return found.flag[order], found.tests_or_none_set()[order]


class _Stocks:
    def __init__(self, folder: Path, looks: list[tuple[str, Window, int]]) -> None:
        self._folder, self._looks, self._made = folder, looks, 0

    def __call__(self, tests: VariableTests) -> _Stock:
        self._made += 1
        archive = Archive.create(self._folder / str(self._made), name="n", slice_s=60, variables=[AIR, WIND], now_ns=0)
        wind = VariableTests(gross_range=GrossRange(fail=(0.0, 100.0)))
        return _Stock(
            archive, QualityOverrides(variables=(("air_temperature", tests), ("wind_speed", wind))), self._looks
        )


@pytest.fixture
def stocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Stocks:
    looks: list[tuple[str, Window, int]] = []
    read = Writer.read

    def told(
        self: Writer, variable: str, *, window: Window | None = None, series: tuple[Series, ...] | None = None
    ) -> Readings:
        assert window is not None
        looks.append((variable, window, COUNT if series is None else len(tuple(series))))
        return read(self, variable, window=window, series=series)

    monkeypatch.setattr(Writer, "read", told)
    return _Stocks(tmp_path, looks)


@pytest.fixture
def nearby_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but the first batch be judged as a whole."""
    whole = IncrementalFlagger.judge_all

    def first(self: IncrementalFlagger, new: Readings, *, reach_ns: int) -> incremental.FlaggingContext:
        assert self.writer.extent(self.variable) is None
        return whole(self, new, reach_ns=reach_ns)

    monkeypatch.setattr(IncrementalFlagger, "judge_all", first)


def _choose(rng: np.random.Generator, *among: float | None) -> float | None:
    return among[rng.integers(len(among))]


def _tests(rng: np.random.Generator) -> VariableTests:
    """Any set of tests that reach for up to an hour."""

    def some(share: float) -> bool:
        return bool(rng.random() < share)

    def one(*among: float) -> float:
        return among[rng.integers(len(among))]

    exempt = [Exempt(most=one(7.0, 8.0))] if some(0.3) else []
    exempt += [Exempt("sun", most=5.0)] if some(0.3) else []
    exempt += [Exempt("wind_speed", most=0.5)] if some(0.3) else []
    flat = FlatLine(
        hours=one(0.2, 0.5),
        fail_hours=_choose(rng, None, 1.0),
        readings=one(2, 6),
        tolerance=one(0.0, 0.0, 0.3),
        within_hours=one(0.1, 0.3, 1.0),
        exempt=tuple(exempt),
    )
    near = {"least_spread": 0.6, "per_m": -0.0065, "threshold": 3.0}
    return VariableTests(
        gross_range=GrossRange(fail=(-50.0, 50.0), suspect=(-10.0, 25.0)),
        climatology=Climatology((Normal(suspect=(-5.0, 20.0)),)) if some(0.2) else None,
        spike=Spike(suspect=2.0, fail=6.0, per_hour=1.0, within_hours=one(0.1, 0.5)) if some(0.8) else None,
        flat_line=flat if some(0.8) else None,
        rate_of_change=RateOfChange(suspect=3.0, per_hour=2.0, within_hours=one(0.1, 0.5)) if some(0.8) else None,
        # No deviation of values of two digits is exactly the threshold.
        attenuated_signal=AttenuatedSignal(hours=one(0.2, 0.4), suspect=0.1537, readings=one(2, 5))
        if some(0.3)
        else None,
        gap=Gap(hours=0.2, flag=("none", "suspect", "fail")[rng.integers(3)]) if some(0.7) else None,
        buddy_check=BuddyCheck(neighbours=one(2, 3), minutes=one(5, 10), **near) if some(0.6) else None,
        spatial_consistency=SpatialConsistency(neighbours=3, minutes=one(5, 15), **near) if some(0.4) else None,
    )


def _values(rng: np.random.Generator, size: int) -> Floats:
    """Waves, rounded, with still stretches, spikes, stations that are off, impossible values and missing ones."""
    grain = (0.01, 0.1, 0.5)[rng.integers(3)]
    value = 8.0 + 4.0 * np.sin(np.arange(size) / 40.0) + rng.normal(0.0, 0.15, (COUNT, size))
    value = np.round(value / grain) * grain
    for _ in range(rng.integers(1, 6)):
        series, first = rng.integers(COUNT), rng.integers(size)
        value[series, first : first + rng.integers(3, 80)] = value[series, first]
    for _ in range(rng.integers(0, 6)):
        value[rng.integers(COUNT), rng.integers(size)] += rng.choice([12.0, -12.0, 4.0, 80.0])
    for off in (9.0, -200.0, np.nan):
        series, first = rng.integers(COUNT), rng.integers(size)
        value[series, first : first + rng.integers(0, 40)] += off
    return value


@dataclass(frozen=True)
class _Story:
    """What is true in the end, and how it came: minutes, some late or in another order, and amendments."""

    final: Readings
    parts: list[Readings]
    wind: Readings


def _story(rng: np.random.Generator, size: int = 130) -> _Story:
    value = _values(rng, size)
    keep = rng.random((COUNT, size)) > rng.choice([0.0, 0.03, 0.2])
    keep[rng.integers(COUNT), : rng.choice([0, 80])] = False
    keep[rng.integers(COUNT), (gap := rng.integers(size)) : gap + rng.integers(0, 40)] = False
    series, step = np.nonzero(keep)
    stamps = START_NS + step * STEP_NS + rng.integers(0, 50, len(step)) * 10**9 * rng.integers(0, 2)
    final = _readings("air_temperature", series, stamps, value[series, step])
    came = np.where(rng.random(len(step)) < 0.01, rng.choice([SUSPECT, FAIL]), final.flag).astype(np.uint8)
    final = replace(final, flag=np.where(final.flag == MISSING, MISSING, came).astype(np.uint8))
    wrong = np.flatnonzero(rng.random(len(step)) < rng.choice([0.0, 0.02]))
    first = final.value.copy()
    first[wrong] = np.where(rng.random(len(wrong)) < 0.2, np.nan, np.round(rng.normal(8.0, 4.0, len(wrong)), 1) + 0.05)
    early = _readings("air_temperature", series, stamps, first)
    untouched = np.isin(np.arange(len(step)), wrong, invert=True)
    early = replace(early, flag=np.where(untouched, final.flag, early.flag).astype(np.uint8))
    lead = rng.integers(20, 80)
    minute = np.where(step < lead, -1, (step - lead) // rng.integers(1, 4))
    late = (rng.random(len(step)) < rng.choice([0.0, 0.05])) & (minute >= 0)
    parts = [early.take_rows((minute == one) & ~late) for one in np.unique(minute)]
    if rng.random() < 0.3:
        parts = [parts[0], *(parts[1 + n] for n in rng.permutation(len(parts) - 1))]
    parts += [early.take_rows(rows) for rows in np.array_split(rng.permutation(np.flatnonzero(late)), 5)]
    parts += [final.take_rows(rows) for rows in np.array_split(rng.permutation(wrong), 4)]
    blowing = np.where(rng.random((COUNT, size // 20 + 1)) < 0.4, 0.2, 3.0).repeat(20, axis=1)
    wind = _readings("wind_speed", series, START_NS + step * STEP_NS, blowing[series, step])
    return _Story(final, [part for part in parts if len(part)], wind)


@pytest.mark.parametrize("seed", range(14))
def test_minutes_have_the_flags_of_the_whole(
    seed: int, stocks: _Stocks, monkeypatch: pytest.MonkeyPatch, nearby_alone: None
) -> None:
    rng = np.random.default_rng(seed)
    # So short that many must look further, and so far that a stretch of exempt time has an end.
    monkeypatch.setattr(incremental, "_INTERVALS", int(rng.choice([1, 2, 4, 8])))
    monkeypatch.setattr(incremental, "_FURTHEST", 20)
    monkeypatch.setattr(incremental, "_MOST_REACHES", 20)
    tests, story = _tests(rng), _story(rng)
    whole = stocks(tests).store(story.final, before=story.wind)
    pieces = stocks(tests).store(*story.parts, before=story.wind)
    np.testing.assert_array_equal(pieces[0], whole[0])
    np.testing.assert_array_equal(pieces[1], whole[1])


def _default(**other: object) -> VariableTests:
    # What the tests with a memory read is not what lies near: `test_remembered.py`.
    return replace(DEFAULTS["air_temperature"].without_memory(), **other)  # type: ignore[arg-type]


def _named(tests: NDArray[np.uint16]) -> Mapping[str, list[int]]:
    rows = {name: np.flatnonzero((tests >> np.uint16(bit)) & np.uint16(1)).tolist() for bit, name in enumerate(TESTS)}
    return {name: found for name, found in rows.items() if found}


def test_a_minute_reads_a_short_time(stocks: _Stocks, nearby_alone: None) -> None:
    rng = np.random.default_rng(1)
    stock = stocks(_default(buddy_check=None))
    value = np.round(8.0 + np.cumsum(rng.normal(0.0, 0.1, 3000)), 2)
    flag, _ = stock.store(_minutes(value[:2999]), _minutes(value[2999:], first=2999))
    assert set(flag.tolist()) == {GOOD}
    ((variable, window, series),) = stock.looks
    assert (variable, series) == ("air_temperature", 1)
    # The reach is a day, of which today is the last minute.
    assert window.stop_ns - window.start_ns <= 66 * STEP_NS


@pytest.mark.parametrize("broken", ["stuck", "impossible", "silent"])
def test_a_broken_sensor_costs_no_more(broken: str, stocks: _Stocks, nearby_alone: None) -> None:
    rng = np.random.default_rng(2)
    value = np.round(8.0 + np.cumsum(rng.normal(0.0, 0.1, 3000)), 2)
    value[1000:] = {"stuck": 7.25, "impossible": -6999.0, "silent": np.nan}[broken]
    tests = _default(buddy_check=None, flat_line=FlatLine(hours=4.0, fail_hours=24.0))
    whole, stock = stocks(tests).store(_minutes(value)), stocks(tests)
    pieces = stock.store(_minutes(value[:2998]), *(_minutes(value[n : n + 1], first=n) for n in (2998, 2999)))
    np.testing.assert_array_equal(pieces[0], whole[0])
    np.testing.assert_array_equal(pieces[1], whole[1])
    assert pieces[0][-1] == (MISSING if broken == "silent" else FAIL)
    assert len(stock.looks) == 1


def test_a_still_stretch_that_began_far_before_is_found(stocks: _Stocks, nearby_alone: None) -> None:
    value = np.r_[np.arange(100) / 10.0, np.full(241, 4.25)]
    stock = stocks(_default(buddy_check=None))
    before, _ = stock.store(_minutes(value[:340]))
    assert set(before.tolist()) == {GOOD}
    flag, tests = stock.store(_minutes(value[340:], first=340))
    assert stock.revised == 240
    assert flag.tolist() == [GOOD] * 100 + [SUSPECT] * 241
    assert _named(tests) == {"flat_line": list(range(100, 341))}
    # What ends it, from within: the two halves are too short.
    flag, _ = stock.store(_minutes(np.array([4.3]), first=200))
    assert set(flag.tolist()) == {GOOD}
    assert stock.revised == 240


def test_a_spike_at_the_joint_is_one_when_the_next_minute_came(stocks: _Stocks, nearby_alone: None) -> None:
    value = 8.0 + np.arange(80) / 100.0
    value[69] = 30.0
    stock = stocks(_default(buddy_check=None))
    _, tests = stock.store(_minutes(value[:70]))
    # A step as far as one can know.
    assert _named(tests) == {"rate_of_change": [69]}
    _, tests = stock.store(_minutes(value[70:71], first=70))
    assert _named(tests) == {"spike": [69]}
    assert stock.revised == 1
    # One that is amended is its like: neither stands out from both of its neighbours.
    _, tests = stock.store(_minutes(np.array([30.0]), first=70))
    assert _named(tests) == {"rate_of_change": [69]}


def test_a_step_that_is_seen_once_a_spike_is_none_is_told(stocks: _Stocks, nearby_alone: None) -> None:
    value = 8.0 + np.arange(100) / 100.0
    value[50] = 30.0
    stock = stocks(_default(buddy_check=None, flat_line=None))
    _, tests = stock.store(_minutes(value))
    assert _named(tests) == {"spike": [50]}
    _, tests = stock.store(_minutes(np.array([30.0]), first=49))
    assert _named(tests) == {"rate_of_change": [49, 51]}


def test_what_creeps_within_the_tolerance_is_followed_to_where_it_began(stocks: _Stocks, nearby_alone: None) -> None:
    value = np.r_[np.arange(100) / 10.0, 20.0 + np.arange(91) / 100.0]
    creeping = FlatLine(hours=1.5, readings=12, tolerance=1.0)
    stock = stocks(VariableTests(gross_range=GrossRange(fail=(-50.0, 50.0)), flat_line=creeping))
    flag, _ = stock.store(_minutes(value[:190]))
    assert set(flag.tolist()) == {GOOD}
    _, tests = stock.store(_minutes(value[190:], first=190))
    assert _named(tests) == {"flat_line": list(range(100, 191))}


def test_another_variable_is_asked_where_a_stretch_is_long_alone(stocks: _Stocks, nearby_alone: None) -> None:
    still = FlatLine(hours=1.0, readings=12, exempt=(Exempt("wind_speed", most=0.5),))
    value = np.r_[8.0 + np.arange(60) / 100.0, np.full(62, 4.25)]
    wind = _readings("wind_speed", np.zeros(122, np.int64), START_NS + np.arange(122) * STEP_NS, np.full(122, 3.0))
    stock = stocks(_default(buddy_check=None, flat_line=still))
    flag, _ = stock.store(_minutes(value[:120]), before=wind)
    assert set(flag.tolist()) == {GOOD}
    stock.store(_minutes(value[120:121], first=120))
    assert {variable for variable, _, _ in stock.looks} == {"air_temperature", "wind_speed"}
    assert _named(stock.flags()[1]) == {"flat_line": list(range(60, 121))}
    stock.store(_minutes(np.array([4.3, 4.4, 4.5, 4.6]), first=121), _minutes(np.array([4.7]), first=125))
    assert {variable for variable, _, _ in stock.looks} == {"air_temperature"}
    calm = stocks(_default(buddy_check=None, flat_line=still))
    flag, _ = calm.store(
        _minutes(value[:120]), _minutes(value[120:], first=120), before=replace(wind, value=wind.value / 10)
    )
    assert set(flag.tolist()) == {GOOD}


def test_neighbours_are_asked_where_something_changed_and_nowhere_else(stocks: _Stocks, nearby_alone: None) -> None:
    rng = np.random.default_rng(3)
    buddy = BuddyCheck(least_spread=0.5, neighbours=3, minutes=10)
    tests = _default(buddy_check=buddy, flat_line=None)
    value = np.round(8.0 + rng.normal(0.0, 0.1, (COUNT, 100)), 2)
    value[4, 95:] += 4.0
    series, step = np.divmod(np.arange(COUNT * 100), 100)
    given = _readings("air_temperature", series, START_NS + step * STEP_NS, value[series, step])
    whole, stock = stocks(tests).store(given), stocks(tests)
    last = (series == 0) & (step >= 95)
    stock.store(given.take_rows(~last))
    pieces = stock.store(given.take_rows(last))
    np.testing.assert_array_equal(pieces[0], whole[0])
    assert _named(pieces[1])["buddy_check"] == list(range(495, 500))
    # One goes: three neighbours are left, and then two, too few to tell.
    gone = np.full(1, np.nan)
    _, found = stock.store(*(_minutes(gone, first=97, station=station) for station in (0, 1)))
    assert _named(found)["buddy_check"] == list(range(495, 500))
    amended = stocks(tests)
    amended.store(given)
    hole = [_minutes(np.full(10, np.nan), first=90, station=station) for station in (0, 1)]
    _, found = amended.store(*hole)
    assert "buddy_check" not in _named(found)


def test_what_was_not_judged_is_judged_with_what_comes(stocks: _Stocks) -> None:
    value = np.r_[np.arange(50) / 10.0, np.full(50, 4.95)]
    value[20] = 40.0
    stock = stocks(_default(buddy_check=None))
    with stock.archive.commit(batch="unjudged", message="", now_ns=1) as writer:
        writer.readings(_minutes(value[:99]))
    assert set(stock.flags()[0].tolist()) == {NOT_EVALUATED}
    flag, tests = stock.store(_minutes(value[99:], first=99))
    assert set(flag.tolist()) == {GOOD, FAIL}
    assert _named(tests) == {"spike": [20]}


def test_other_tests_judge_all_within_their_reach(stocks: _Stocks) -> None:
    value = 8.0 + np.arange(100) / 100.0
    value[50] += 2.0
    stock = stocks(_default(buddy_check=None))
    flag, _ = stock.store(_minutes(value[:99]))
    assert set(flag.tolist()) == {GOOD}
    sharper = replace(stock.quality, variables=(("air_temperature", _default(buddy_check=None, spike=Spike(1.0))),))
    with stock.archive.latest().commit(batch="sharper", message="", now_ns=1) as writer:
        inspector = QualityFlagger(sharper, STATIONS, 60.0, others={"air_temperature"})
        inspector.store(writer, AIR, _minutes(value[99:], first=99), lambda _: None)
    assert inspector.revised == 1
    assert _named(stock.flags()[1]) == {"spike": [50]}


def _later(readings: Readings, steps: int) -> Readings:
    """Return readings as if they came with stamps that are so many steps later."""
    return replace(readings, time_ns=readings.time_ns + steps * STEP_NS)


@pytest.mark.parametrize("seed", range(4))
def test_old_stamps_beside_new_ones_have_the_flags_of_the_whole(
    seed: int, stocks: _Stocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(incremental, "_FURTHEST", 20)
    monkeypatch.setattr(incremental, "_MOST_REACHES", 20)
    between, length = 130, 12_000
    tests, early, late = _tests(rng), _story(rng), _story(rng)
    value = np.round(8.0 + np.sin(np.arange(length) / 40.0)[None, :] + rng.normal(0.0, 0.2, (COUNT, length)), 2)
    series, step = np.divmod(np.arange(COUNT * length), length)
    middle = _readings("air_temperature", series, START_NS + (between + step) * STEP_NS, value.ravel())
    final = concatenate([early.final, middle, _later(late.final, between + length)])
    wind = concatenate([early.wind, _later(late.wind, between + length)])
    pairs = zip_longest(early.parts, (_later(part, between + length) for part in late.parts))
    parts = [concatenate([one for one in pair if one is not None]) for pair in pairs]
    whole = stocks(tests).store(final, before=wind)
    pieces = stocks(tests).store(middle, *parts, before=wind)
    np.testing.assert_array_equal(pieces[0], whole[0])
    np.testing.assert_array_equal(pieces[1], whole[1])


def test_an_old_stamp_beside_a_new_one_reads_nothing_between(stocks: _Stocks) -> None:
    length = 30 * 1440
    value = np.round(8.0 + np.sin(np.arange(length) / 40.0), 2)
    stock = stocks(_default(buddy_check=None))
    keep = np.isin(np.arange(length), (20, length - 1), invert=True)
    given = _minutes(value)
    flag, _ = stock.store(given.take_rows(keep), given.take_rows(~keep))
    assert set(flag.tolist()) == {GOOD}
    read_ns = [window.stop_ns - window.start_ns for _, window, _ in stock.looks]
    # The reach is a day, of which an hour is read around each of the two.
    assert len(read_ns) == 2
    assert max(read_ns) <= 66 * STEP_NS


@pytest.mark.parametrize("seed", range(3))
def test_a_station_that_sends_all_it_kept_is_judged_piece_by_piece(
    seed: int, stocks: _Stocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(flagging, "_CELLS_AT_ONCE", 2 * 2048 * COUNT)
    length = 16_000
    tests, value = _tests(rng), _values(rng, length)
    for series, first in zip(rng.integers(0, COUNT, 60), rng.integers(0, length, 60), strict=True):
        value[series, first : first + 40] = value[series, first]
    series, step = np.divmod(np.arange(COUNT * length), length)
    final = _readings("air_temperature", series, START_NS + step * STEP_NS, value.ravel())
    kept = (series == 2) & (step % 5 == 0)
    whole = stocks(tests).store(final)
    stock = stocks(tests)
    pieces = stock.store(final.take_rows(~kept), final.take_rows(kept))
    np.testing.assert_array_equal(pieces[0], whole[0])
    np.testing.assert_array_equal(pieces[1], whole[1])
    assert max(window.stop_ns - window.start_ns for _, window, _ in stock.looks) < 3 * 2048 * STEP_NS
