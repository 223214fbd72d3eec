"""Trends in elevation: what they reproduce, and what they fall back to."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, InvalidUnit, NotFound
from hypergrid.interpolation import METHODS, Field, Stations, Targets, variogram
from hypergrid.interpolation.methods.detrended import DetrendedField, DetrendedKriging
from hypergrid.interpolation.solvers.trend import MIN_SPAN_M, FittedTrend, Trend, parse_trend

Floats = NDArray[np.float64]

PROFILE, LAPSE = Trend("profile"), Trend("lapse_rate")
OK = {"variogram": variogram("exponential", psill=1.0, range_m=500.0, nugget=0.1)}


def network(count: int = 24, seed: int = 3, *, low_m: float = 500.0, high_m: float = 2500.0) -> Stations:
    random = np.random.default_rng(seed)
    heights = np.sort(random.uniform(low_m, high_m, count))
    return Stations(random.uniform(0, 2000.0, (count, 2)), tuple(f"s{i}" for i in range(count)), {"elevation": heights})


def targets(heights: Floats, seed: int = 4) -> Targets:
    return Targets(np.random.default_rng(seed).uniform(0, 2000.0, (len(heights), 2)), {"elevation": heights})


def field(
    stations: Stations, values: Floats, trend: object, method: str = "ordinary_kriging", **given: object
) -> Field:
    row = METHODS[method]
    bound = {parameter.name: parameter.default for parameter in row.parameters}
    own = OK if "variogram" in bound else {}
    return row.prepare(stations, values, row.parse({**bound, **own, **given, "trend": trend}))


def with_holes(values: Floats, seed: int = 5, share: float = 0.3) -> Floats:
    return np.where(np.random.default_rng(seed).random(values.shape) < share, np.nan, values)


@pytest.mark.parametrize("trend", ["lapse_rate", "profile", {"lapse_rate": -6.5}])
@pytest.mark.parametrize("method", ["ordinary_kriging", "inverse_distance", "nearest", "radial_basis"])
def test_a_lapse_rate_is_reproduced_exactly_everywhere(trend: object, method: str) -> None:
    stations, places = network(), targets(np.linspace(200.0, 3000.0, 40))
    levels = np.array([[10.0], [-3.0], [25.0]])
    values = with_holes(levels - 0.0065 * stations.covariates["elevation"])
    expected = levels - 0.0065 * places.covariates["elevation"]
    assert field(stations, values, trend, method).estimate(places) == pytest.approx(expected, abs=1e-9)


def test_the_triangles_of_linear_are_detrended_too() -> None:
    stations = network()
    places = Targets(stations.positions_m.mean(axis=0)[None], {"elevation": np.array([1234.0])})
    values = 5.0 + 0.002 * stations.covariates["elevation"][None]
    assert field(stations, values, "lapse_rate", "linear").estimate(places)[0, 0] == pytest.approx(5.0 + 2.468)


def test_an_inversion_is_in_the_profile_and_not_in_the_lapse_rate() -> None:
    stations, places = network(60), targets(np.linspace(600.0, 2400.0, 50))
    top_m = FittedTrend(PROFILE, stations.covariates["elevation"], np.zeros((1, 60))).knots_m[2]

    def profile(height: Floats) -> Floats:
        # Warmer by 8 K per km up to the top of the inversion, colder by 6.5 K per km above.
        return np.where(height < top_m, 0.008 * (height - top_m), -0.0065 * (height - top_m))

    values = profile(stations.covariates["elevation"])[None]
    expected = profile(places.covariates["elevation"])[None]
    off = {
        trend: float(np.abs(field(stations, values, trend).estimate(places) - expected).max())
        for trend in ("profile", "lapse_rate", None)
    }
    assert off["profile"] < 0.7
    assert off["profile"] < off["lapse_rate"] / 4
    assert off["profile"] < off[None] / 4  # type: ignore[index]


def test_beyond_the_stations_an_inversion_does_not_go_on() -> None:
    stations = network(60, low_m=1000.0, high_m=1200.0)
    heights = stations.covariates["elevation"]
    kink_m = FittedTrend(PROFILE, heights, np.zeros((1, 60))).knots_m[-2]
    # Much warmer with height up to the kink, colder above: overall warmer with height.
    values = np.where(heights < kink_m, 0.04, -0.03) * (heights - kink_m)
    trend = FittedTrend(PROFILE, heights, values[None])
    assert FittedTrend(LAPSE, heights, values[None]).coefficients[0, -1] > 0
    top, far = (trend.coefficients @ trend.columns(np.array([each])).T for each in (trend.range_m[1], 2200.0))
    assert far[0, 0] == top[0, 0]
    straight = FittedTrend(PROFILE, heights, -0.0065 * heights[None])
    ends = straight.coefficients @ straight.columns(np.array([1200.0, 2200.0])).T
    assert ends[0, 1] - ends[0, 0] == pytest.approx(-6.5)


def test_a_trend_is_nothing_at_the_mean_elevation_so_that_a_known_mean_stays_one() -> None:
    stations = network()
    heights = stations.covariates["elevation"]
    places = targets(np.array([heights.mean(), heights.mean() + 100.0]))
    values = 7.0 - 0.005 * (heights - heights.mean())[None]
    found = field(stations, values, "lapse_rate", "simple_kriging", mean=7.0).estimate(places)
    assert found[0] == pytest.approx([7.0, 6.5])


def test_slices_fall_back_and_a_note_counts_them() -> None:
    stations = network(24)
    heights = stations.covariates["elevation"]
    values = np.tile(-0.0065 * heights, (5, 1)) + np.arange(5)[:, None]
    values[1, 6:] = np.nan  # six report: a lapse rate
    values[2, 2:] = np.nan  # two report: none
    values[3] = np.nan  # nobody reports: not counted
    near = np.flatnonzero(np.abs(heights - heights[10]) < MIN_SPAN_M / 2)
    values[4, np.setdiff1d(np.arange(24), near)] = np.nan  # close together: none
    trend = FittedTrend(PROFILE, heights, values)
    assert (trend.slices, trend.straight_slices, trend.untrended_slices) == (4, 1, 2)
    assert trend.coefficients[2].tolist() == [0.0] * len(trend.coefficients[2])
    first, second = trend.notes
    assert first.startswith("trend: in 1 of 4 slices a lapse rate in place of a profile")
    assert second.startswith("trend: in 2 of 4 slices none")
    assert FittedTrend(LAPSE, heights, values[:1]).notes == ()


def test_stations_of_one_elevation_have_no_trend() -> None:
    flat = network(10, low_m=700.0, high_m=700.0)
    values = np.random.default_rng(0).normal(size=(2, 10))
    places = targets(np.array([700.0, 900.0]))
    assert field(flat, values, "profile").estimate(places) == pytest.approx(field(flat, values, None).estimate(places))
    given = field(flat, values, {"lapse_rate": -6.5}).estimate(places)
    assert given[:, 1] - field(flat, values, None).estimate(places)[:, 1] == pytest.approx(-1.3)


def test_an_estimate_is_linear_in_the_values_within_the_stations_elevations() -> None:
    stations, places = network(), targets(np.linspace(800.0, 2200.0, 12))
    random = np.random.default_rng(1)
    one, other = random.normal(size=(2, 3, 24))
    hole = random.random((3, 24)) < 0.2
    one[hole] = other[hole] = np.nan
    both = field(stations, 2.0 * one - 3.0 * other, "profile").estimate(places)
    parts = [field(stations, each, "profile").estimate(places) for each in (one, other)]
    assert both == pytest.approx(2.0 * parts[0] - 3.0 * parts[1], abs=1e-9)


def test_every_slice_is_fitted_as_it_would_be_alone() -> None:
    heights = network().covariates["elevation"]
    values = with_holes(np.random.default_rng(2).normal(size=(9, 24)))
    together = FittedTrend(PROFILE, heights, values).coefficients
    alone = [FittedTrend(PROFILE, heights, row[None]).coefficients[0] for row in values]
    assert together == pytest.approx(np.array(alone), abs=1e-12)


def test_a_lapse_rate_is_the_line_of_least_squares() -> None:
    heights = network().covariates["elevation"]
    values = with_holes(np.random.default_rng(6).normal(size=(4, 24)))
    trend = FittedTrend(LAPSE, heights, values)
    for row, found in zip(values, trend.coefficients, strict=True):
        kept = np.isfinite(row)
        slope = np.polyfit(heights[kept], row[kept], 1)[0]
        assert found[-1] == pytest.approx(slope)
        assert found[-2] == pytest.approx(slope)


def test_means_of_blocks_take_the_mean_of_the_trend() -> None:
    stations = network()
    values = 3.0 - 0.01 * stations.covariates["elevation"][None]
    parts = Targets(np.zeros((4, 2)), {"elevation": np.array([900.0, 1100.0, 1500.0, 1500.0])}, np.array([0.25, 0.75]))
    assert field(stations, values, "lapse_rate").estimate(parts)[0] == pytest.approx([3.0 - 10.5, 3.0 - 15.0])


def test_targets_outside_the_stations_elevations_are_known() -> None:
    stations = network()
    low, high = stations.covariates["elevation"][[0, -1]]
    made = field(stations, np.zeros((1, 24)), "profile")
    assert isinstance(made, DetrendedField)
    assert made.mask_outside(targets(np.array([low - 1, low, high, high + 1]))).tolist() == [True, False, False, True]
    halves = Targets(np.zeros((4, 2)), {"elevation": np.array([low, high, low, high + 1])}, np.array([0.5, 0.5]))
    assert made.mask_outside(halves).tolist() == [False, True]


def test_a_mean_over_slices_can_be_taken_before() -> None:
    stations, places = network(), targets(np.linspace(300.0, 2700.0, 15))
    values = with_holes(np.random.default_rng(9).normal(size=(7, 24)))
    values[3] = np.nan
    made = field(stations, values, "profile")
    assert isinstance(made, DetrendedKriging)
    heard = np.isfinite(made.complete).all(axis=1)
    assert heard.tolist() == [True, True, True, False, True, True, True]
    mean = made.carry(made.dual(made.complete[heard].mean(axis=0, keepdims=True)), places)
    assert mean[0] == pytest.approx(made.estimate(places)[heard].mean(axis=0), abs=1e-10)


def test_a_variance_needs_a_fixed_trend() -> None:
    stations, places = network(), targets(np.array([1000.0, 2000.0]))
    values = np.random.default_rng(0).normal(size=(1, 24))
    fixed = field(stations, values, {"lapse_rate": -6.5}).variance(places)
    assert fixed == pytest.approx(field(stations, values, None).variance(places))
    with pytest.raises(InvalidQuery, match="would leave out what is not known of the trend"):
        field(stations, values, "profile").variance(places)


def test_covariates_are_asked_for_where_there_is_a_trend() -> None:
    row = METHODS["ordinary_kriging"]
    given = {**{parameter.name: parameter.default for parameter in row.parameters}, **OK}
    assert row.covariates(row.parse({**given, "trend": "profile"})) == ("elevation",)
    assert row.covariates(row.parse({**given, "trend": "none"})) == ()
    assert "trend" not in row.parse(given)
    external = METHODS["external_drift_kriging"]
    given = {**{parameter.name: parameter.default for parameter in external.parameters}, **OK}
    assert external.covariates(external.parse({**given, "trend": "lapse_rate"})) == ("elevation",)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ("lapse", NotFound, "did you mean 'lapse_rate'"),
        (5, NotFound, "unknown trend '5'"),
        ({"rate": 1}, InvalidQuery, "one key lapse_rate"),
        ({"lapse_rate": "steep"}, InvalidUnit, "lapse_rate of a trend needs a plain number"),
        ({"lapse_rate": float("nan")}, InvalidUnit, "lapse_rate of a trend needs a plain number"),
    ],
)
def test_what_is_no_trend_is_refused(given: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        parse_trend(given)


def test_a_trend_is_written_as_it_is_read() -> None:
    for written in ("profile", "lapse_rate", {"lapse_rate": -6.5}):
        parsed = parse_trend(written)
        assert parsed is not None
        assert parsed.to_json() == written
        assert parse_trend(parsed) is parsed
    assert parse_trend("none") is None
    assert str(Trend("fixed", -6.5)) == "-6.5 per km"
