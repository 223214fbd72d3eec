"""Conditions and episodes against a slow look at one value after the other."""

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery, InvalidUnit, NotFound
from hypergrid.core.times import SECOND_NS
from queries.standing.conditions import (
    Episode,
    Missing,
    Rate,
    SurfaceRows,
    Threshold,
    apply_hysteresis,
    condition_from_json,
    find_episodes,
    find_standing_places,
    reconcile,
)

STEP_NS = 60 * SECOND_NS


def rows_of(value: np.ndarray) -> SurfaceRows:
    starts = np.arange(len(value), dtype=np.int64) * STEP_NS
    return SurfaceRows(starts, starts + STEP_NS, value)


@pytest.mark.parametrize("seed", range(20))
def test_hysteresis_equals_a_slow_look(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((30, 4)) < 0.2, np.nan, rng.integers(0, 10, (30, 4)).astype(float))
    before = rng.random(4) < 0.5
    above = bool(rng.random() < 0.5)
    level, clear = (6.0, 4.0) if above else (3.0, 5.0)
    found = apply_hysteresis(
        values, before, above=level if above else None, below=None if above else level, clear=clear
    )
    for place in range(4):
        state = bool(before[place])
        for time, value in enumerate(values[:, place]):
            if above:
                state = True if value > level else False if value <= clear else state
            else:
                state = True if value < level else False if value >= clear else state
            assert found[time, place] == state


@pytest.mark.parametrize("seed", range(10))
def test_rates_and_silences_equal_a_slow_look(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((20, 3)) < 0.3, np.nan, rng.normal(0, 5, (20, 3)))
    rows = rows_of(values)
    rate = Rate(above=1.0, per_ns=3600 * SECOND_NS, over_ns=2 * STEP_NS).measure(rows)
    silence = Missing(3 * STEP_NS).measure(rows)
    for place in range(3):
        last = 0
        for time in range(20):
            expected = np.nan if time < 2 else (values[time, place] - values[time - 2, place]) * 30
            assert rate[time, place] == pytest.approx(expected, nan_ok=True)
            last = last if np.isnan(values[time, place]) else time + 1
            assert silence[time, place] == (time + 1 - last) * 60
    assert np.array_equal(Missing(3 * STEP_NS).judge(silence, rows, np.zeros(3, bool)), silence > 180)


def test_levels_take_units_and_changes_of_temperature_are_differences() -> None:
    assert Threshold(above="86 degF", clear=28).convert_levels("degC").above == pytest.approx(30)
    assert Rate(above="9 K").convert_levels("degC").above == pytest.approx(9)
    with pytest.raises(InvalidUnit, match="'above' of the condition 'threshold'"):
        Threshold(above="3 m").convert_levels("degC")


@pytest.mark.parametrize(
    ("document", "error", "words"),
    [
        ({"kind": "threshold"}, InvalidQuery, "needs 'above' or 'below'; got neither"),
        ({"kind": "threshold", "above": 1, "below": 0}, InvalidQuery, "got both"),
        ({"kind": "treshold", "above": 1}, NotFound, "did you mean 'threshold'"),
        ({"kind": "threshold", "over": 1}, NotFound, "unknown key of the threshold condition"),
        ({"kind": "missing"}, InvalidQuery, "needs 'after'"),
        ({"above": 1}, InvalidQuery, "a JSON object with a 'kind'"),
        ([], InvalidQuery, "a JSON object with a 'kind'"),
    ],
)
def test_conditions_that_say_nothing_clear_are_refused(document: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        condition_from_json(document)


def test_hysteresis_on_the_wrong_side_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="needs 'clear' at or below 'above', 5; got 6"):
        Threshold(above=5, clear=6).convert_levels("degC")


def test_documents_come_back() -> None:
    for document in (
        {"kind": "threshold", "above": 30, "clear": "28 degC"},
        {"kind": "rate", "below": -3, "per": "1h", "over": "20min"},
        {"kind": "missing", "after": "30min"},
        {"kind": "dead"},
        {"kind": "silent", "after": "30min"},
    ):
        assert condition_from_json(document).to_json() == document


@pytest.mark.parametrize("seed", range(60))
def test_judging_rows_again_in_any_pieces_gives_the_same_episodes(seed: int) -> None:
    """Rows change at random and are judged from the first that changed: the episodes are those of one look at all."""
    rng = np.random.default_rng(seed)
    places = ("a", "b")
    values = np.full((24, 2), np.nan)
    told: list[Episode] = []
    raised = withdrawn = cleared = 0
    for _ in range(12):
        changed = np.sort(rng.choice(24, 3, replace=False))
        values[changed] = rng.integers(0, 10, (3, 2))
        first = int(changed[0])
        starts = np.arange(24, dtype=np.int64) * STEP_NS
        before = find_standing_places(told, places, int(starts[first]))
        state = apply_hysteresis(values[first:], before, above=6.0, below=None, clear=4.0)
        found = find_episodes(starts[first:], state, before, places)
        told, changes = reconcile(told, found, int(starts[first]))
        raised += sum(change.happening == "raised" for change in changes)
        withdrawn += sum(change.happening == "withdrawn" for change in changes)
        cleared += sum(change.happening == "cleared" for change in changes)
        whole = apply_hysteresis(values, np.zeros(2, bool), above=6.0, below=None, clear=4.0)
        at_once = find_episodes(starts, whole, np.zeros(2, bool), places)
        expected = sorted(
            (one.place, one.onset_ns, one.cleared_ns or 0) for listed in at_once.values() for one in listed
        )
        assert sorted((one.place, one.onset_ns, one.cleared_ns or 0) for one in told) == expected
    assert raised
    assert raised - withdrawn >= len([one for one in told if one.cleared_ns is None])
