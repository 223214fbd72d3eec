"""Variograms fitted to the values that are interpolated."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, NotFound, SingularSystem
from hypergrid.core.tokens import token
from hypergrid.interpolation import METHODS, Field, Stations, Targets, variogram
from hypergrid.interpolation.methods import fitted_variogram
from hypergrid.interpolation.methods.conditioning import models_of
from hypergrid.interpolation.methods.fitted_variogram import (
    VariogramRequest,
    find_residuals,
    parse_model,
    resolve_variogram,
)
from hypergrid.interpolation.variograms.fit import VariogramFit, fit_variogram

Floats = NDArray[np.float64]

PLACES = Targets(np.random.default_rng(8).uniform(0, 1000.0, (30, 2)))


def network(count: int = 25) -> Stations:
    random = np.random.default_rng(1)
    heights = random.uniform(0, 1000.0, count)
    return Stations(random.uniform(0, 1000.0, (count, 2)), tuple(map(str, range(count))), {"elevation": heights})


def waves(stations: Stations, slices: int = 6) -> Floats:
    x, y = stations.positions_m.T / 250.0
    return np.array([np.sin(x + k) + np.cos(y - k) for k in range(slices)])


def field(
    stations: Stations, values: Floats, model: object, method: str = "ordinary_kriging", **given: object
) -> Field:
    row = METHODS[method]
    bound = {parameter.name: parameter.default for parameter in row.parameters}
    return row.prepare(stations, values, row.parse({**bound, **given, "variogram": model}))


def test_once_is_kriging_with_the_pooled_fit_and_says_so() -> None:
    stations = network()
    values = waves(stations)
    values[2, :7] = np.nan
    fit = fit_variogram(stations.positions_m, values).variogram
    found = field(stations, values, "fit")
    assert found.estimate(PLACES) == pytest.approx(field(stations, values, fit).estimate(PLACES), abs=1e-12)
    note = found.notes[0]  # type: ignore[attr-defined]
    assert note.startswith(f"variogram fitted to 6 slices of 25 stations: exponential psill {fit.psill:.4g}")


def test_by_slice_is_kriging_each_slice_with_its_own_fit() -> None:
    stations = network()
    values = waves(stations) * np.array([1.0, 3.0, 0.1, 1.0, 1.0, 1.0])[:, None]
    values[4, 3:] = np.nan  # three stations: the pooled variogram
    found = field(stations, values, "fit_by_slice")
    pooled = fit_variogram(stations.positions_m, values).variogram
    for number in (0, 1, 2, 4):
        row = values[number : number + 1]
        own = pooled if number == 4 else fit_variogram(stations.positions_m, row).variogram
        alone = field(stations, row, own)
        assert found.estimate(PLACES)[number] == pytest.approx(alone.estimate(PLACES)[0], abs=1e-10)
        assert found.variance(PLACES)[number] == pytest.approx(alone.variance(PLACES)[0], abs=1e-10)
    assert found.counts.tolist() == [25, 25, 25, 25, 3, 25]
    assert found.notes[0].startswith("variogram fitted by slice in 5 of 6 slices")  # type: ignore[attr-defined]


@pytest.mark.parametrize("selection", [{}, {"neighbours": 45}])
def test_a_slice_whose_own_variogram_is_singular_has_the_pooled_one_and_is_counted(selection: dict[str, Any]) -> None:
    stations = network(50)
    x, y = stations.positions_m.T / 1000.0
    values = np.random.default_rng(3).normal(0.0, 1.0, (6, 50))
    values[2] = np.sin(x) + np.cos(y)  # so smooth that a Gaussian without a nugget fits it
    alone = fit_variogram(stations.positions_m, values[2:3], model="gaussian").variogram
    with pytest.raises(SingularSystem):
        field(stations, values[2:3], alone).estimate(PLACES)
    found = field(stations, values, {"fit": "gaussian", "by": "slice"}, **selection)
    pooled = fit_variogram(stations.positions_m, values, model="gaussian").variogram
    wanted = field(stations, values[2:3], pooled, **selection)
    assert found.estimate(PLACES)[2] == pytest.approx(wanted.estimate(PLACES)[0], abs=1e-10)
    note = found.notes[0]  # type: ignore[attr-defined]
    assert note.startswith("variogram fitted by slice in 5 of 6 slices")
    assert "(in 1 of them the variogram of the slice itself gives a system without a unique solution)" in note


PLAIN = np.array(
    [[0, 0], [9e3, 2e3], [4e3, 8e3], [15e3, 12e3], [21e3, 3e3], [26e3, 15e3], [12e3, 20e3], [24e3, 22e3]]
).astype(float)


def test_a_flat_map_of_stations_that_differ_warns() -> None:
    rng = np.random.default_rng(1)
    stations = Stations(PLAIN, tuple("abcdefgh"), {})
    offsets = np.array([8.5, 9.6, 9.0, 8.7, 8.8, 9.5, 9.2, 8.6])
    flat = METHODS["ordinary_kriging"].prepare(
        stations, offsets + 0.1 * rng.normal(size=(48, 8)), {"variogram": VariogramRequest()}
    )
    drawn = flat.estimate(Targets(PLAIN + 3_000.0)).mean(axis=0)
    assert np.ptp(drawn) < 0.2 * np.ptp(offsets)
    assert "the map is nearly flat" in " ".join(flat.notes)
    noise = METHODS["ordinary_kriging"].prepare(
        stations, 9.0 + rng.normal(size=(48, 8)), {"variogram": VariogramRequest()}
    )
    assert "the map is nearly flat" not in " ".join(noise.notes)


@pytest.mark.parametrize("by", ["all", "slice"])
def test_a_fitted_nugget_can_be_measurement_error(by: str) -> None:
    stations = network()
    values = waves(stations) + np.random.default_rng(5).normal(0.0, 0.5, (6, 25))
    observable, noise_free = (
        field(stations, values, {"fit": "exponential", "by": by, "nugget_is": "measurement error"}, variance_of=what)
        for what in ("observable", "noise-free")
    )
    nuggets = [model.nugget for model in models_of(observable)]
    assert {model.nugget_is for model in models_of(observable)} == {"measurement error"}
    assert max(nuggets) > 0.05
    gap = observable.variance(PLACES) - noise_free.variance(PLACES)
    assert gap.max() == pytest.approx(max(nuggets))


def test_what_a_nugget_is_changes_the_token_only_where_it_is_given() -> None:
    plain = token(VariogramRequest("exponential"))
    assert token(parse_model({"fit": "exponential", "nugget_is": "micro-scale"})) == plain
    assert token(parse_model({"fit": "exponential", "nugget_is": "measurement error"})) != plain
    assert VariogramRequest("exponential").to_json() == {"fit": "exponential", "by": "all"}


def test_around_a_trend_it_is_fitted_to_what_is_left() -> None:
    stations = network()
    steep = waves(stations) - 0.02 * stations.covariates["elevation"]
    places = Targets(PLACES.positions_m, {"elevation": np.full(30, 500.0)})
    found = field(stations, steep, "fit", trend={"lapse_rate": -20.0})
    level = -0.02 * 500.0
    assert found.estimate(places) == pytest.approx(
        field(stations, waves(stations), "fit").estimate(PLACES) + level, abs=1e-9
    )


def test_beside_a_drift_it_is_fitted_to_what_the_drift_leaves() -> None:
    stations = network()
    plane = waves(stations) + 0.5 * stations.positions_m[:, 0]
    note = field(stations, plane, "fit", "universal_kriging").notes[0]  # type: ignore[attr-defined]
    columns = np.column_stack([np.ones(25), stations.positions_m])
    left = find_residuals(columns, plane)
    assert columns.T @ left.T == pytest.approx(np.zeros((3, 6)), abs=1e-6)
    assert f"psill {fit_variogram(stations.positions_m, left).variogram.psill:.4g} " in note


@pytest.mark.parametrize("values", [np.zeros((3, 25)), np.full((3, 25), 7.0)])
def test_values_that_do_not_vary_get_a_stated_fallback(values: Floats) -> None:
    stations = network()
    found = field(stations, values, "fit")
    assert found.estimate(PLACES) == pytest.approx(np.full((3, 30), values[0, 0]))
    note = found.notes[0]  # type: ignore[attr-defined]
    assert note.startswith("variogram not fitted (within each slice all values are equal)")


@pytest.mark.parametrize("model", ["fit", "fit_by_slice"])
@pytest.mark.parametrize("selection", [{}, {"neighbours": 2}])
@pytest.mark.parametrize(
    ("count", "value"),
    [(25, 7.0), (1, 3.0), (2, [1.0, 3.0]), (1, 0.0)],  # all equal, one station, two that differ, one without rain
)
def test_a_variogram_that_cannot_be_fitted_gives_no_variance(
    count: int, value: float, model: str, selection: dict[str, Any]
) -> None:
    stations = network(count)
    found = field(stations, np.broadcast_to(value, (2, count)).astype(float), model, **selection)
    assert np.isfinite(found.estimate(PLACES)).all()
    assert np.isnan(found.variance(PLACES)).all()
    assert any("variance is missing" in note for note in found.notes)  # type: ignore[attr-defined]


def test_a_query_whose_variogram_cannot_be_fitted_has_missing_variances_and_no_simulation() -> None:
    coords = {"time": [np.datetime64("2007-10-01", "ns")], "x": ("station", [0.0, 500.0, 900.0, 200.0]),
              "y": ("station", [0.0, 100.0, 700.0, 900.0])}  # fmt: skip
    equal = xr.DataArray(np.full((1, 4), 2.0), dims=("time", "station"), coords=coords, attrs={"units": "mm"})
    cells = hg.grid(x=0, y=0, step=100, shape=(4, 4))
    for readings in (equal, equal.isel(station=slice(0, 1))):
        query = hg.base(readings).interpolate("ordinary_kriging", grid=cells, variogram="fit")
        for asked in (query, query.aggregate("mean", x="all", y="all")):
            found = asked.with_variance().compute()
            np.testing.assert_allclose(found["value"], 2.0, rtol=1e-12)
            assert np.isnan(found["variance"]).all()
            assert "every variance is missing" in found.attrs["comment"]
        with pytest.raises(InvalidQuery, match="none can be fitted to these values"):
            hg.simulate(query, count=1, seed=1)
    scores = hg.cross_validate(hg.base(equal), "ordinary_kriging", parameters={"variogram": "fit"}).score
    assert scores.rmse < 1e-12
    assert np.isnan(scores.coverage_95)
    with pytest.raises(InvalidQuery, match="needs (values that vary|pairs of values)"):
        hg.fit_variogram(hg.base(equal))


def test_two_stations_and_none_are_no_reason_to_fail() -> None:
    two = network().take_stations(np.array([0, 1]))
    assert np.isfinite(field(two, np.array([[1.0, 3.0]]), "fit").estimate(PLACES)).all()
    none = network().take_stations(np.array([], dtype=np.intp))
    for model in ("fit", "fit_by_slice"):
        found = field(none, np.empty((2, 0)), model)
        assert np.isnan(found.estimate(PLACES)).all()
        assert found.counts.tolist() == [0, 0]


def test_another_model_can_be_fitted() -> None:
    stations = network()
    resolved = resolve_variogram(VariogramRequest("spherical"), stations, waves(stations))
    assert resolved.variogram == fit_variogram(stations.positions_m, waves(stations), model="spherical").variogram


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("fit", VariogramRequest()),
        ("fit_by_slice", VariogramRequest(by="slice")),
        ({"fit": "gaussian"}, VariogramRequest("gaussian")),
        ({"fit": "gaussian", "by": "slice"}, VariogramRequest("gaussian", "slice")),
        (
            {"fit": "gaussian", "nugget_is": "measurement error"},
            VariogramRequest("gaussian", nugget_is="measurement error"),
        ),
    ],
)
def test_forms(written: object, read: VariogramRequest) -> None:
    assert parse_model(written) == read
    assert parse_model(read.to_json()) == read
    assert parse_model(read) is read


def test_a_given_variogram_passes() -> None:
    model = variogram("spherical", psill=1.0, range_m=10.0)
    assert parse_model(model) is model
    assert parse_model(model.to_json()) == model


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ("best", InvalidQuery, "'fit' or 'fit_by_slice'; got 'best'"),
        ({"fit": "cubic"}, NotFound, "unknown variogram model 'cubic'"),
        ({"fit": "spherical", "by": "hour"}, NotFound, "unknown way to fit a variogram 'hour'"),
        ({"fit": "spherical", "model": "x"}, NotFound, "unknown key of a variogram that is fitted 'model'"),
        ({"fit": "spherical", "nugget_is": "noise"}, NotFound, "unknown meaning of a nugget .nugget_is. 'noise'"),
        ({"fit": None}, NotFound, "unknown variogram model"),
        (None, InvalidQuery, "needs the keys model"),
    ],
)
def test_bad_forms_are_refused(given: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        parse_model(given)


def test_the_same_values_are_fitted_once_and_others_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    stations, fits = network(), list[int]()

    def fit(positions_m: Floats, values: Floats, *, model: str) -> VariogramFit:
        fits.append(len(values))
        return fit_variogram(positions_m, values, model=model)

    monkeypatch.setattr(fitted_variogram, "fit_variogram", fit)
    values = waves(stations) + np.random.default_rng(17).normal(0.0, 0.1, (6, 25))
    first, second = (field(stations, values.copy(), "fit") for _ in range(2))
    assert fits == [6]
    assert second.notes == first.notes  # type: ignore[attr-defined]
    assert second.estimate(PLACES).tolist() == first.estimate(PLACES).tolist()
    others = values.copy()
    others[0, 0] = np.nan
    for changed in (others, values[:5]):
        field(stations, changed, "fit")
    field(stations, values, {"fit": "spherical"})
    assert fits == [6, 6, 5, 6]
