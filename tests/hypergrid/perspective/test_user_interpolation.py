"""Interpolations that users add: selection and value of their own, with the checks of every user function."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.core.errors import InvalidFunction, InvalidQuery, NotFound
from hypergrid.core.geodesy import RADIUS_M, places_m
from hypergrid.execution import make_plan, run
from hypergrid.interpolation.points import separations
from hypergrid.perspective.functions import user_interpolation
from hypergrid.perspective.functions.user_interpolation import (
    ChosenStations,
    LookAhead,
    UserInterpolation,
    measure_offsets,
)
from tests.hypergrid.perspective.test_user_functions import GRID, START, array, found
from tests.support.own_functions import forgotten_functions

VALUES = np.random.default_rng(7).normal(size=(5, 9))
VALUES[1:3, 2:5] = np.nan


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    with forgotten_functions():
        yield


def nearest_four(east_m: Any, north_m: Any, power: float = 2.0) -> Any:  # noqa: ANN401 - as users write
    return np.argsort(np.hypot(east_m, north_m))[:4]


def by_distance(values: Any, east_m: Any, north_m: Any, power: float = 2.0) -> Any:  # noqa: ANN401
    """Mean by inverse distance."""
    distance_m = np.hypot(east_m, north_m)
    if distance_m.min() < 1e-6:
        return values[distance_m.argmin()]
    return np.average(values, axis=0, weights=distance_m**-power)


@pytest.mark.parametrize("vectorised", [False, True])
def test_equals_the_built_in_method_that_does_the_same(*, vectorised: bool) -> None:
    hg.interpolation_function("of_four", select=nearest_four, compute=by_distance, vectorised=vectorised)
    query = array(VALUES).interpolate("of_four", grid=GRID, power=3)
    built_in = array(VALUES).interpolate("inverse_distance", grid=GRID, power=3, neighbours=4)
    result, expected = query.compute(), built_in.compute()
    np.testing.assert_allclose(result["value"], expected["value"], rtol=1e-12)
    assert np.unique(result["count"]).tolist() == [4]
    assert np.unique(result["count_possible"]).tolist() == [9]
    assert "interpolate of_four(power=3)" in query.explain()
    assert "by_distance content " in result.attrs["hypergrid_functions"]


def test_all_stations_are_used_without_a_selection_and_none_where_none_is_selected() -> None:
    hg.interpolation_function("plain", compute=lambda values, east_m, north_m: values.mean())
    hg.interpolation_function(
        "eastern", select=lambda east_m, north_m: east_m > 500, compute=lambda values, east_m, north_m: values.mean()
    )
    source = array(VALUES)
    plain = source.interpolate("plain", grid=GRID).compute()
    expected = np.repeat(np.nanmean(VALUES, axis=1), GRID_CELLS).reshape(plain["value"].shape)
    np.testing.assert_allclose(plain["value"], expected)
    eastern = source.interpolate("eastern", grid=hg.grid(x=(0, 1000), y=(0, 100), step=100)).compute()
    stations_x = 100.0 * np.arange(9)
    for column, x in enumerate(eastern["x"].to_numpy()):
        used = stations_x - x > 500
        values, counts = eastern["value"][:, 0, column].to_numpy(), eastern["count"][:, 0, column].to_numpy()
        if used.any():
            np.testing.assert_allclose(values, np.nanmean(VALUES[:, used], axis=1))
        else:
            assert np.isnan(values).all()
        np.testing.assert_array_equal(counts, np.isfinite(VALUES[:, used]).sum(axis=1))


GRID_CELLS = 16


def test_selects_once_for_each_target_and_set_of_reporting_stations() -> None:
    selected: list[int] = []

    def select(east_m: Any, north_m: Any) -> Any:  # noqa: ANN401
        selected.append(len(east_m))
        return np.arange(2)

    hg.interpolation_function("of_two", select=select, compute=lambda values, east_m, north_m: values.sum())
    found(array(VALUES).interpolate("of_two", grid=GRID))
    # Two sets of stations report: all nine, and six.
    assert sorted(selected) == [6] * GRID_CELLS + [9] * GRID_CELLS


@pytest.mark.parametrize("strategy", ["auto", "bottom_up"])
def test_boxes_in_time_share_what_was_selected_ahead(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    selected: list[bytes] = []
    select = UserInterpolation.select_stations

    def counted(self: UserInterpolation, offsets_m: Any, *given: Any) -> Any:  # noqa: ANN401
        selected.append(offsets_m.tobytes())
        return select(self, offsets_m, *given)

    # Not in the function itself: its content would change from call to call, and so would the identity of the step.
    monkeypatch.setattr(UserInterpolation, "select_stations", counted)
    hg.interpolation_function("of_four", select=nearest_four, compute=by_distance)
    values = np.tile(VALUES, (40, 1))
    values[60:80, 4] = np.nan
    query = array(values).interpolate("of_four", grid=GRID).aggregate("max", time={"length": "6h", "step": "2h"})
    whole = make_plan(query.surface(), strategy=strategy)
    expected = list(run(whole))[-1].outcome
    # All nine report, or eight, or six.
    assert len(selected) == 3 * GRID_CELLS
    plan = make_plan(query.surface(), strategy=strategy, allowed_bytes=whole.projected_bytes // 3)
    assert plan.block_times is not None
    selected.clear()
    outcome = list(run(plan))[-1].outcome
    np.testing.assert_array_equal(outcome.value, expected.value)
    assert len(selected) == len(set(selected)) == 3 * GRID_CELLS


class TestLookAhead:
    """Of the selections that do not all fit, those are kept that the most slices to come refer to."""

    @staticmethod
    def count_calls(order: list[str], slices: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch) -> int:
        """Return how many selections are made, one slice after the other, where two fit."""
        each = ChosenStations.of([np.arange(3)])
        monkeypatch.setattr(user_interpolation, "SELECTION_BYTES", 2 * each.nbytes)
        made: list[str] = []
        ahead = LookAhead()
        ahead.expect({mask.encode(): np.array(numbers) for mask, numbers in slices.items()})

        def make(mask: str) -> ChosenStations:
            made.append(mask)
            return each

        for number, mask in enumerate(order):
            assert ahead.get(b"targets", mask.encode(), number, partial(make, mask)) is each
        return len(made)

    def test_those_that_never_return_make_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        order = list("abcadaeafabb")
        slices = {mask: [at for at, other in enumerate(order) if other == mask] for mask in set(order)}
        # Each of the six once: a and b stay, whatever comes between.
        assert self.count_calls(order, slices, monkeypatch) == 6
        # Without knowledge of the slices to come the oldest leave.
        assert self.count_calls(order, {}, monkeypatch) > 6

    def test_other_targets_have_selections_of_their_own(self) -> None:
        ahead, made = LookAhead(), []
        for targets in (b"some", b"others", b"others"):
            ahead.get(targets, b"mask", 0, lambda: made.append(1) or ChosenStations.of([]))  # type: ignore[func-returns-value]
        assert len(made) == 2


def test_works_around_a_trend_and_in_cross_validation() -> None:
    hg.interpolation_function("of_four", select=nearest_four, compute=by_distance)
    source = array(VALUES)
    own = hg.cross_validate(source, "of_four")
    built_in = hg.cross_validate(source, "inverse_distance", parameters={"neighbours": 4})
    assert own.score.rmse == pytest.approx(built_in.score.rmse, rel=1e-12)
    with pytest.raises(InvalidQuery, match="of_four has no variance; ask for it with a kriging method"):
        source.interpolate("of_four", grid=GRID).with_variance().plan()


def test_the_token_follows_both_functions() -> None:
    tokens = []
    for count, power in ((4, 2.0), (3, 2.0), (4, 1.0), (4, 2.0)):

        def select(east_m: Any, north_m: Any, count: int = count) -> Any:  # noqa: ANN401
            return np.argsort(np.hypot(east_m, north_m))[:count]

        def compute(values: Any, east_m: Any, north_m: Any, power: float = power) -> Any:  # noqa: ANN401
            return np.average(values, weights=(1 + np.hypot(east_m, north_m)) ** -power)

        hg.interpolation_function("own", select=select, compute=compute, parameters=[])
        tokens.append(array(VALUES).interpolate("own", grid=GRID).token)
    assert len(set(tokens)) == 3
    assert tokens[0] == tokens[-1]


@pytest.mark.parametrize(
    ("select", "compute", "says"),
    [
        (None, lambda v, e, n: v, r"must give one number|gave shape \(9,\)"),
        (None, lambda v, e, n: v.sum() / 0.0 if e[0] < -200 else 1.0, "gave (inf|-inf) for 9 stations"),
        (None, lambda v, e, n: {}["a"], f"raised KeyError: 'a' .in the cell {START} at x 0, y 0"),
        (None, lambda v, e, n: None, "gave nothing .None."),
        (lambda e, n: e, lambda v, e, n: 1.0, "select of .*must give a mask of the 9 stations, or their numbers"),
        (lambda e, n: [0, 9], lambda v, e, n: 1.0, "distinct numbers from 0 to 8; it gave 9"),
        (lambda e, n: [0, 0], lambda v, e, n: 1.0, "it gave one of them twice"),
        (lambda e, n: e[:3] > 0, lambda v, e, n: 1.0, "must give a mask of the 9 stations"),
        (lambda e, n: {}["b"], lambda v, e, n: 1.0, f"raised KeyError: 'b' .in the cell {START} at x 0, y 0"),
    ],
)
def test_that_fails_names_step_and_cell(
    select: Callable[..., Any] | None, compute: Callable[..., Any], says: str
) -> None:
    hg.interpolation_function("broken", select=select, compute=compute, parameters=[])
    query = array(VALUES).interpolate("broken", grid=GRID)
    with pytest.raises(InvalidFunction, match=rf"^step 1 \(interpolate 'broken'\): .*{says}"):
        query.compute()
    with pytest.raises(InvalidFunction, match=rf"in the cell {START} at x "):
        query.compute()


def test_of_many_slices_must_not_mix_them() -> None:
    hg.interpolation_function("mixed", compute=lambda v, e, n: v.sum(axis=0) - v.mean(), vectorised=True, parameters=[])
    with pytest.raises(InvalidFunction, match="from one column alone.*reduce along axis 0, the stations"):
        array(VALUES).interpolate("mixed", grid=GRID).compute()


def test_refuses_names_and_functions_that_cannot_work() -> None:
    with pytest.raises(InvalidFunction, match="an interpolation function needs a name of letters"):
        hg.interpolation_function("no name")(by_distance)
    with pytest.raises(InvalidFunction, match="interpolation function 'nearest' is one of HyperGrid itself"):
        hg.interpolation_function("nearest")(by_distance)
    with pytest.raises(InvalidFunction, match=r"needs a function that takes values, east_m, north_m first"):
        hg.interpolation_function("short")(lambda values: values)
    with pytest.raises(InvalidFunction, match=r"select of interpolation function 'short'.*east_m, north_m first"):
        hg.interpolation_function("short", select=lambda east_m: east_m)(by_distance)
    with pytest.raises(InvalidFunction, match="cannot have a parameter 'neighbours'"):
        hg.interpolation_function("near")(lambda values, east_m, north_m, neighbours=3: values.mean())
    hg.interpolation_function("of_four", select=nearest_four, compute=by_distance)
    with pytest.raises(NotFound, match="did you mean 'of_four'"):
        array(VALUES).interpolate("of_for", grid=GRID)


def test_the_decorator_gives_the_function_back() -> None:
    assert hg.interpolation_function("own")(by_distance) is by_distance
    assert hg.interpolation_function("other", compute=by_distance) is by_distance


class TestOffsets:
    def test_on_a_plane_are_differences(self) -> None:
        places = np.array([[3.0, 4.0], [-1.0, 2.0]])
        np.testing.assert_array_equal(measure_offsets(places, np.array([1.0, 1.0])), [[2.0, 3.0], [-2.0, 1.0]])

    def test_on_the_sphere_are_as_long_as_great_circles_and_point_there(self) -> None:
        rng = np.random.default_rng(3)
        lon, lat = rng.uniform(-180, 180, 40), rng.uniform(-89, 89, 40)
        places, target = places_m(lon, lat), places_m(np.array([20.0]), np.array([30.0]))[0]
        offsets = measure_offsets(places, target)
        np.testing.assert_allclose(np.hypot(*offsets.T), separations(target[None], places)[0], rtol=1e-9)
        # Initial bearing of a great circle, in degrees from north.
        turn = np.radians(lon - 20.0)
        here, there = np.radians(30.0), np.radians(lat)
        east = np.sin(turn) * np.cos(there)
        north = np.cos(here) * np.sin(there) - np.sin(here) * np.cos(there) * np.cos(turn)
        np.testing.assert_allclose(np.arctan2(*offsets.T), np.arctan2(east, north), atol=1e-9)

    def test_at_a_pole_and_at_the_target_itself_are_finite(self) -> None:
        pole = np.array([0.0, 0.0, RADIUS_M])
        offsets = measure_offsets(np.stack([pole, places_m(np.array([0.0]), np.array([80.0]))[0]]), pole)
        np.testing.assert_allclose(offsets[0], 0.0, atol=1e-9)
        assert np.hypot(*offsets[1]) == pytest.approx(np.radians(10.0) * RADIUS_M, rel=1e-9)
