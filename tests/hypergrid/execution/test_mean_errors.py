"""Variances of means and sums of interpolated estimates, asked for as a user does."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, InvalidTime
from hypergrid.execution.running import mean_errors
from hypergrid.execution.running.mean_errors import (
    find_cells_below,
    find_space_shares,
    find_time_shares,
    refuse_mixed,
)
from hypergrid.interpolation import WEIGHTS
from hypergrid.perspective import Interpolate, question_from_json
from hypergrid.perspective.build.uncertainty_spec import split_aggregates

Floats = NDArray[np.float64]
MODEL = hg.variogram("exponential", psill=1.0, range_m=500.0, nugget=0.1, nugget_is="measurement error")
GRID = hg.grid(x=0, y=0, step="100m", shape=(6, 5))


def readings(slices: int = 24, *, seed: int = 0, holes: float = 0.15) -> xr.DataArray:
    rng = np.random.default_rng(seed)
    values = rng.normal(10, 2, (slices, 9))
    values[rng.random(values.shape) < holes] = np.nan
    coords: dict[str, Any] = {
        "time": pd.date_range("2007-10-01", periods=slices, freq="10min"),
        "x": ("station", rng.uniform(0, 500, 9)),
        "y": ("station", rng.uniform(0, 600, 9)),
    }
    return xr.DataArray(values, coords, ("time", "station"), "air_temperature", {"units": "degC"})


def kriged(data: xr.DataArray | None = None, **more: object) -> hg.Query:
    given = {"grid": GRID, "variogram": MODEL, **more}
    return hg.base(readings() if data is None else data).interpolate("ordinary_kriging", **given)  # type: ignore[arg-type]


def variance(query: hg.Query, correlation_time: str | None = None) -> Floats:
    return query.with_variance(correlation_time=correlation_time).compute()["variance"].to_numpy()


@settings(max_examples=30, deadline=None)
@given(
    chain=st.lists(
        st.sampled_from([
            {"time": "30min"}, {"time": "1h"}, {"x": "200m", "y": "300m"}, {"time": "20min", "x": "200m"},
            {"y": "200m"},
        ]),
        min_size=1, max_size=3,
    ),
    function=st.sampled_from(["mean", "sum"]),
    coverage=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_shares_times_slices_and_cells_are_the_aggregates(
    chain: list[dict[str, str]], function: str, coverage: float, seed: int
) -> None:
    data = readings(seed=seed)
    data[np.random.default_rng(seed).random(24) < 0.3] = np.nan
    query = kriged(data)
    slices = query.compute()["value"].to_numpy().reshape(24, -1)
    try:
        for cells in chain:
            query = query.aggregate(function, min_coverage=coverage, **cells)  # type: ignore[arg-type]
            query.surface()
    except InvalidQuery:
        return  # Cells that are no unions of those below.
    wanted = query.compute()["value"].to_numpy()
    surface = query.plan().surface
    _, aggregates = split_aggregates(surface)
    below, covers = find_cells_below(aggregates, np.arange(surface.topology.space.count))
    present = np.isfinite(slices).all(axis=1)
    in_time = find_time_shares(aggregates, present)
    in_space = find_space_shares(aggregates, covers, np.ones(len(below), dtype=bool))
    try:
        refuse_mixed(aggregates, in_time, in_space)
    except InvalidQuery:
        assert any("time" in cells and "x" in cells for cells in chain)
        return
    known = np.where(present[:, None], slices[:, below], 0.0)
    found = (in_time.weights @ known) @ in_space.weights.T.toarray()
    filled = np.isfinite(wanted.reshape(found.shape))
    np.testing.assert_allclose(found[filled], wanted.reshape(found.shape)[filled], rtol=1e-9)


def test_a_mean_over_time_lies_between_its_ends_and_a_sum_is_many_means() -> None:
    query = kriged()
    mean = query.aggregate("mean", time="1h")
    bracket = mean.with_variance().compute()
    low, high = bracket["variance_low"].to_numpy(), bracket["variance"].to_numpy()
    np.testing.assert_allclose(low, variance(mean, "0s"), rtol=1e-12)
    middle = variance(mean, "40min")
    assert (low < middle).all()
    assert (middle < high).all()
    total = variance(query.aggregate("sum", time="1h"), "40min")
    np.testing.assert_allclose(total, 36 * middle, rtol=1e-9)
    assert "pessimistic" in bracket["variance"].attrs["temporal_correlation"]
    assert "optimistic" in bracket["variance_low"].attrs["temporal_correlation"]
    assert bracket["variance"].attrs["units"] == "(degC)2"


def from_two_sides() -> hg.Query:
    """A daily mean between two stations, of which one reports in the morning, the other in the afternoon.

    The estimate is that of one side, then of the other: where the field slopes, their errors have opposite signs.
    """
    values = np.full((24, 2), np.nan)
    values[:12, 0], values[12:, 1] = 1.0, 2.0
    coords = {
        "time": pd.date_range("2007-10-01", periods=24, freq="1h"),
        "x": ("station", [0.0, 1000.0]),
        "y": ("station", [0.0, 0.0]),
    }
    data = xr.DataArray(values, coords, ("time", "station"), "air_temperature", {"units": "degC"})
    between = hg.grid(x=450, y=-50, step="100m", shape=(1, 1))
    return kriged(data, grid=between, variogram=hg.variogram("gaussian", psill=1.0, range_m=4000.0)).aggregate(
        "mean", time="1day"
    )


def test_where_stations_change_the_greatest_variance_may_be_of_some_hours() -> None:
    query = from_two_sides()
    bracket = query.with_variance().compute()
    low, high = bracket["variance_low"].item(), bracket["variance"].item()
    ends = variance(query, "0s").item(), variance(query, "180000day").item()
    hours = [variance(query, f"{number}h").item() for number in (1, 2, 4, 6, 8, 12, 24, 48)]
    # Alike slices leave 0.0075, and eight hours 0.0193.
    assert max(hours) > 2 * max(ends)
    assert low == pytest.approx(ends[0], rel=1e-12)
    assert low <= min(hours)
    assert max(hours) <= high * 1.01
    assert high <= max(hours) * 1.01
    told = bracket["variance"].attrs["temporal_correlation"]
    assert "0 s (independent slices) over 15min to 230h and infinite" in told
    assert "stations change" in told


def test_where_stations_do_not_change_the_two_ends_bound_the_variance() -> None:
    mean = kriged(readings(holes=0.0)).aggregate("mean", time="1h")
    bracket = mean.with_variance().compute()
    np.testing.assert_allclose(bracket["variance"], variance(mean, "180000day"), rtol=1e-6)
    assert "fully correlated, the pessimistic end" in bracket["variance"].attrs["temporal_correlation"]
    assert "stations change" not in bracket["variance"].attrs["temporal_correlation"]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    holes=st.floats(0.0, 0.7),
    model=st.sampled_from(["gaussian", "exponential"]),
    nugget=st.sampled_from([0.0, 0.1]),
    bursts=st.integers(1, 12),
    minutes=st.floats(1.0, 20_000.0),
)
def test_every_correlation_time_lies_within_the_bracket(
    seed: int, holes: float, model: str, nugget: float, bursts: int, minutes: float
) -> None:
    rng = np.random.default_rng(seed)
    data = readings(seed=seed, holes=0.0)
    gone = np.repeat(rng.random((24, 9)) < holes, bursts, axis=0)[:24]
    given = hg.variogram(model, psill=1.0, range_m=1500.0, nugget=nugget + 1e-6, nugget_is="measurement error")
    query = kriged(data.where(~gone), variogram=given).aggregate("mean", time="2h", min_coverage=0.2)
    bracket = query.with_variance().compute()
    at = variance(query, f"{round(minutes * 60)}s")
    known = np.isfinite(bracket["variance"].to_numpy())
    assert (np.isfinite(at) == known).all()
    assert (at <= bracket["variance"].to_numpy() * 1.01)[known].all()
    assert (at >= bracket["variance_low"].to_numpy() / 1.01)[known].all()


def test_two_correlation_times_are_two_queries_with_two_variances() -> None:
    mean = kriged().aggregate("mean", time="1h")
    asked = [mean.with_variance(correlation_time=time) for time in (None, "20min", "6h", "estimate")]
    assert len({query.token for query in asked}) == 4
    assert (asked[1].compute()["variance"] < asked[2].compute()["variance"]).all()


def test_the_layer_that_an_interpolation_uses_is_part_of_its_content() -> None:
    plain, low, high = (
        Interpolate("external_drift_kriging", (), layers=layers)
        for layers in ((), (("elevation", "a"),), (("elevation", "b"),))
    )
    assert len({repr(operator.content()) for operator in (plain, low, high)}) == 3
    remembering = [replace(plain, error_correlation=memory) for memory in (None, 0.0, 3600.0, "estimate")]
    assert len({repr(operator.content()) for operator in remembering}) == 4


def test_one_query_with_two_elevations_has_two_answers() -> None:
    rng = np.random.default_rng(8)
    x = y = np.arange(-50.0, 700.0, 50.0)
    grounds = [
        xr.DataArray(rng.uniform(0, 300, (len(y), len(x))), {"y": y, "x": x}, ("y", "x"), attrs={"units": "m"})
        for _ in range(2)
    ]
    asked = [
        hg.base(readings(), layers={"elevation": ground}).interpolate(
            "external_drift_kriging", grid=GRID, variogram=MODEL, drift=["elevation"]
        )
        for ground in grounds
    ]
    assert asked[0].token != asked[1].token
    WEIGHTS.clear()
    first, second = (query.with_variance().compute() for query in asked)
    WEIGHTS.clear()
    alone = asked[1].with_variance().compute()
    for name in ("value", "variance"):
        assert float(abs(first[name] - second[name]).min()) > 0
        np.testing.assert_array_equal(second[name], alone[name])


def test_means_of_single_slices_and_single_cells_have_the_variance_of_the_estimate() -> None:
    query = kriged()
    points = variance(query)
    np.testing.assert_allclose(variance(query.aggregate("mean", time="10min"), "6h"), points, rtol=1e-9)
    np.testing.assert_allclose(variance(query.aggregate("mean", x="100m", y="100m")), points, rtol=1e-9)


def test_means_of_means_are_the_mean_of_all_where_nothing_is_missing() -> None:
    query = kriged(readings(holes=0.0))
    once = query.aggregate("mean", time="all").aggregate("mean", x="all", y="all")
    stepwise = (
        query.aggregate("mean", x="100m", y="300m")
        .aggregate("mean", time="1h")
        .aggregate("mean", time="all")
        .aggregate("mean", x="all", y="all")
    )
    np.testing.assert_allclose(variance(once, "2h"), variance(stepwise, "2h"), rtol=1e-9)


def test_independent_slices_divide_the_variance_of_a_region() -> None:
    query = kriged(readings(holes=0.0))
    region = query.aggregate("mean", x="all", y="all")
    each, both = variance(region), variance(region.aggregate("mean", time="all"), "0s")
    np.testing.assert_allclose(both, each.sum(axis=0, keepdims=True) / 24**2, rtol=1e-9)
    assert each.max() < variance(query).min()


@pytest.mark.parametrize("support", ["point", "block"])
@pytest.mark.parametrize("meaning", ["micro-scale", "measurement error"])
def test_simulated_fields_scatter_as_the_variance_says(support: str, meaning: str) -> None:
    model = hg.variogram("exponential", psill=1.0, range_m=500.0, nugget=0.2, nugget_is=meaning)
    data = readings(6)
    query = kriged(data, variogram=model, support=support, variance_of="noise-free", quadrature=2)
    made = hg.simulate(query, count=1500, seed=1, correlation_time="30min")
    assert made.dims == ("realisation", "time", "y", "x")
    value = query.compute()["value"]
    assert float(abs(made.mean("realisation") - value).max()) < 0.15
    np.testing.assert_allclose(made.var("realisation").to_numpy(), variance(query), rtol=0.2)
    mean = made.mean(("time", "y", "x")).var("realisation")
    asked = query.aggregate("mean", time="all").aggregate("mean", x="all", y="all")
    assert float(mean) == pytest.approx(variance(asked, "30min")[0, 0, 0], rel=0.12)
    np.testing.assert_array_equal(made[:2], hg.simulate(query, count=2, seed=1, correlation_time="30min"))


def test_what_is_missing_has_no_variance() -> None:
    data = readings(holes=0.0)
    data[:4] = np.nan
    query = kriged(data).aggregate("mean", time="1h", min_coverage=0.5)
    result = query.with_variance(correlation_time="1h").compute()
    assert np.isnan(result["value"][0]).all()
    np.testing.assert_array_equal(np.isnan(result["variance"]), np.isnan(result["value"]))
    nowhere = readings(holes=1.0)
    empty = kriged(nowhere).aggregate("mean", time="1h").with_variance().compute()
    assert np.isnan(empty["variance"]).all()


def test_blocks_of_cells_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    query = kriged().aggregate("mean", time="1h").aggregate("mean", x="200m", y="200m", min_coverage=0)
    whole = query.with_variance().compute()
    monkeypatch.setattr(mean_errors, "KEPT_BYTES", 0)
    *_, last = query.with_variance().refine(order="coarse_to_fine")
    for name in ("value", "variance", "variance_low"):
        np.testing.assert_allclose(last.dataset()[name], whole[name], rtol=1e-12)


def test_an_estimated_correlation_is_used_where_it_can_be_trusted_and_told() -> None:
    rng = np.random.default_rng(4)
    data = readings(1000, holes=0.0)
    for number in range(1, 1000):
        data[number] = 10 + 0.9 * (data[number - 1] - 10) + 0.4 * data[number].values * rng.normal(0, 0.1, 9)
    mean = kriged(data).aggregate("mean", time="1day")
    found = mean.with_variance(correlation_time="estimate").compute()
    assert "estimated from leave-one-out residuals" in found["variance"].attrs["temporal_correlation"]
    assert "variance_low" not in found
    short = kriged(data[:20]).aggregate("mean", time="all").with_variance(correlation_time="estimate").compute()
    assert "variance_low" in short
    assert "correlation in time" in short.attrs["comment"]
    few = kriged(data[:2]).aggregate("mean", time="all").with_variance(correlation_time="estimate").compute()
    assert "could not be estimated" in few.attrs["comment"]


def test_the_json_form_says_the_correlation() -> None:
    question = kriged().aggregate("mean", time="1h").with_variance(correlation_time="6h").question
    document = json.loads(json.dumps(question.to_json()))
    assert document["variance"] == {"correlation_time": "6h"}
    assert question_from_json(document).correlation_time == "6h"
    with pytest.raises(InvalidQuery, match="needs true, false, or"):
        question_from_json({**document, "variance": {"correlation_time": 6}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q: q.aggregate("max", time="1h").with_variance(), "a max of interpolated values is not known"),
        (lambda q: q.convert("scale", factor=2.0).with_variance(), "ends with convert after it"),
        (lambda q: q.with_variance(correlation_time="6h"), "leave it out"),
        (lambda q: q.aggregate("mean", x="all").with_variance(correlation_time="6h"), "leave it out"),
    ],
)
def test_a_variance_that_is_not_known_is_refused(change: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidQuery, match=message):
        change(kriged()).plan()


def test_a_mean_of_local_estimates_has_no_known_variance() -> None:
    with pytest.raises(InvalidQuery, match="leave out neighbours"):
        kriged(neighbours=4).aggregate("mean", time="1h").with_variance().plan()
    assert (variance(kriged(neighbours=9).aggregate("mean", time="1h"), "0s") > 0).all()


@pytest.mark.parametrize("text", ["soon", "-6h", "0 parsecs"])
def test_a_correlation_time_is_a_duration(text: str) -> None:
    with pytest.raises(InvalidTime):
        kriged().aggregate("mean", time="1h").with_variance(correlation_time=text).plan()


def test_wrong_use_of_simulate_is_refused() -> None:
    with pytest.raises(InvalidQuery, match="last step is interpolate"):
        hg.simulate(kriged().aggregate("mean", time="1h"), count=1, seed=1)
    with pytest.raises(InvalidQuery, match="needs correlation_time for a surface of 24 time cells"):
        hg.simulate(kriged(), count=1, seed=1)
    with pytest.raises(InvalidQuery, match="kriging from all stations"):
        hg.simulate(kriged(neighbours=3), count=1, seed=1, correlation_time="0s")
    with pytest.raises(InvalidQuery, match="a whole number above zero; got 0"):
        hg.simulate(kriged(), count=0, seed=1, correlation_time="0s")
