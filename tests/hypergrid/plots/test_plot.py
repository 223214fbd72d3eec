"""Still pictures: each kind draws what it should, and refuses what it cannot draw."""

import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib import pyplot
from matplotlib.collections import QuadMesh

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Position, Station
from hypergrid.core.times import SECOND_NS
from hypergrid.core.units import unit_symbol
from hypergrid.core.version import VERSION
from hypergrid.plots import KINDS, part_shown, picture_bytes, plot


def series_result(hours: int = 72, step_s: int = 3600) -> xr.Dataset:
    times = 1_191_196_800 * SECOND_NS + np.arange(hours) * step_s * SECOND_NS
    wave = 10 + 5 * np.sin(np.arange(hours) / 24 * 2 * np.pi)
    array = xr.DataArray(
        np.stack([wave, wave + 1, wave - 2], axis=1),
        dims=("time", "station"),
        coords={
            "time": times.view("datetime64[ns]"), "station": ["a", "b", "c"],
            "lon": ("station", [7.177, 7.180, 7.182]), "lat": ("station", [45.867, 45.870, 45.868]),
        },
        name="air_temperature",
    )  # fmt: skip
    return hg.base(array).aggregate("mean", time=f"{step_s}s").compute()


def map_result() -> xr.Dataset:
    array = series_result(3)["value"].rename("air_temperature")
    model = hg.variogram("exponential", psill=1.2, range_m=250.0)
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(20, 25))
    return hg.base(array).interpolate("ordinary_kriging", grid=grid, variogram=model).compute()


def test_a_notebook_shows_the_picture_and_nothing_keeps_it() -> None:
    picture = hg.plot(map_result())
    assert picture._repr_png_().startswith(b"\x89PNG")
    # Those that this list holds live as long as the process.
    assert pyplot.get_fignums() == []
    with pytest.raises(AttributeError, match="no attribute 'plott'"):
        _ = hg.plott  # type: ignore[attr-defined]


def test_the_module_loads_without_matplotlib() -> None:
    code = "import sys, hypergrid as hg; assert 'matplotlib' not in sys.modules; print(hg.plot.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "hypergrid.plots.kinds"


STATIONS = [
    Station("a", "Col", (Position(None, 7.180, 45.870, 2400.0),)),
    Station("z", "Far", (Position(None, 0, 0, 0),)),
]


def levels_result() -> xr.Dataset:
    array = (
        series_result(3)["value"].rename("air_temperature").assign_coords(elevation=("station", [0.0, 100.0, 250.0]))
    )
    model = hg.variogram("exponential", psill=1.2, range_m=250.0)
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(4, 5), z={"edges": [0, 100, 300]})
    given = {"variogram": model, "trend": {"lapse_rate": -6.5}}
    return hg.base(array).interpolate("ordinary_kriging", grid=grid, **given).compute()


def test_a_map_of_levels_draws_one_and_says_which() -> None:
    dataset = levels_result()
    for level, words in ((0, "at 50 m (level 0 to 100 m)"), (1, "at 200 m (level 100 to 300 m)")):
        axes = plot(dataset, time=2, level=level).axes[0]
        (mesh,) = [item for item in axes.collections if isinstance(item, QuadMesh)]
        np.testing.assert_array_equal(np.asarray(mesh.get_array()), dataset["value"].values[2, level])
        assert f"Air temperature, {words}" in axes.get_title(loc="left")
    with pytest.raises(InvalidQuery, match="level 2 does not exist; the result has 2"):
        plot(dataset, level=2)
    with pytest.raises(InvalidQuery, match="level 1 does not exist; the result has 1"):
        plot(map_result(), level=1)
    assert part_shown(dataset) == "the first of 3 time cells, the lowest of 2 levels"
    assert part_shown(dataset.isel(time=[0], z=[1])) == ""


def test_bands_are_lines_that_say_their_heights() -> None:
    array = (
        series_result(3)["value"].rename("air_temperature").assign_coords(elevation=("station", [0.0, 100.0, 250.0]))
    )
    bands = hg.base(array).aggregate("max", z={"edges": [0, 100, 300]}).compute()
    axes = plot(bands).axes[0]
    assert [line.get_label() for line in axes.get_lines()] == ["band 0 to 100 m", "band 100 to 300 m"]
    np.testing.assert_array_equal(axes.get_lines()[1].get_ydata(), bands["value"].values[:, 1])
    assert "2 bands" in axes.get_title(loc="left")
    assert part_shown(bands) == ""


def test_a_map_draws_every_cell_where_it_is_and_marks_the_stations_inside() -> None:
    dataset = map_result()
    figure = plot(dataset, stations=STATIONS, time=1)
    axes = figure.axes[0]
    (mesh,) = [item for item in axes.collections if isinstance(item, QuadMesh)]
    np.testing.assert_array_equal(
        np.asarray(mesh.get_array()).ravel(), dataset["value"].isel(time=1).to_numpy().ravel()
    )
    coordinates = mesh.get_coordinates()
    assert coordinates[0, 0].tolist() == [dataset["lon_bounds"][0, 0].item(), dataset["lat_bounds"][0, 0].item()]
    assert coordinates[-1, -1].tolist() == [dataset["lon_bounds"][-1, 1].item(), dataset["lat_bounds"][-1, 1].item()]
    assert [text.get_text() for text in axes.texts] == ["a"]
    assert axes.get_xlabel() == "longitude [degree east]"
    assert "Air temperature" in axes.get_title(loc="left")
    assert "2007-10-01 01:00" in axes.get_title(loc="left")
    assert any("[°C]" in other.get_ylabel() for other in figure.axes[1:])
    assert axes.get_aspect() == pytest.approx(1 / np.cos(np.radians(45.87)), rel=1e-3)


def test_a_map_with_one_missing_slice_still_draws_it() -> None:
    dataset = map_result()
    dataset["value"][0] = np.nan
    assert plot(dataset, time=0).axes


def colour_limits(dataset: xr.Dataset, **options: object) -> tuple[float, float]:
    axes = plot(dataset, **options).axes[0]
    (mesh,) = [item for item in axes.collections if isinstance(item, QuadMesh)]
    return mesh.get_clim()


def test_maps_of_one_result_share_their_colours_and_others_take_those_given() -> None:
    dataset = map_result()
    value = dataset["value"].to_numpy()
    assert value[0].max() < value.max()
    for time in range(3):
        assert colour_limits(dataset, time=time) == (value.min(), value.max())
    assert colour_limits(dataset, limits=(-5, 25)) == (-5, 25)
    assert colour_limits(series_result(72), kind="day_by_hour", limits=(0, 20)) == (0, 20)


@pytest.mark.parametrize(
    "limits", [(5,), (5, 5), (25, -5), (0, math.nan), (0, math.inf), (0, 10**400), ("a", "b"), 3, (), [[0], [1]]]
)
def test_limits_of_colours_are_two_ascending_numbers(limits: object) -> None:
    with pytest.raises(InvalidQuery, match=r"limits needs .* in ascending order; got"):
        plot(map_result(), limits=limits)


def test_directions_have_colours_that_meet() -> None:
    dataset = map_result()
    value = dataset["value"].to_numpy()
    dataset["value"].attrs |= {"units": "degree", "standard_name": "ground_slope_angle"}
    assert colour_limits(dataset) == (value.min(), value.max()), "a slope is no direction"
    of_mean = {"hypergrid_functions": '{"aggregate circular_mean": "HyperGrid 1"}'}
    assert colour_limits(dataset.assign_attrs(of_mean)) == (0, 360)
    dataset["value"].attrs["standard_name"] = "wind_from_direction"
    assert colour_limits(dataset) == (0, 360)
    axes = plot(dataset).axes[0]
    (mesh,) = [item for item in axes.collections if isinstance(item, QuadMesh)]
    assert mesh.get_cmap()(0.0) == pytest.approx(mesh.get_cmap()(1.0), abs=0.01)


def test_a_picture_names_statistic_time_method_and_source() -> None:
    means = hg.base(series_result(6)["value"].rename("air_temperature")).aggregate("mean", time="3h")
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(2, 2))
    dataset = means.interpolate("nearest", grid=grid).compute()
    picture = plot(dataset, time=1)
    when = "2007-10-01 03:00 to 2007-10-01 06:00 UTC\nnearest"
    assert picture.axes[0].get_title(loc="left") == f"Mean air temperature\n{when}"
    assert picture.texts[0].get_text() == f"HyperGrid {VERSION}"
    assert plot(dataset, variable="count", time=1).axes[0].get_title(loc="left") == f"stations used\n{when}"
    of_archive = {"hypergrid_archive": "pass", "hypergrid_snapshot": "ABCDEFGHIJK"}
    assert plot(dataset.assign_attrs(of_archive)).texts[0].get_text() == (
        f"pass · snapshot ABCDEFGH · HyperGrid {VERSION}"
    )


def test_days_by_hours_puts_every_hour_in_its_place() -> None:
    dataset = series_result(72)
    figure = plot(dataset)
    (mesh,) = [item for item in figure.axes[0].collections if isinstance(item, QuadMesh)]
    table = np.asarray(mesh.get_array()).reshape(24, 3)
    np.testing.assert_allclose(table.T.ravel(), dataset["value"].mean("station"))
    assert figure.axes[0].get_ylabel() == "hour of the day (UTC)"


def test_lines_draw_each_series() -> None:
    dataset = series_result(10)
    axes = plot(dataset).axes[0]
    assert [line.get_label() for line in axes.get_lines()] == ["station a", "station b", "station c"]
    np.testing.assert_array_equal(axes.get_lines()[1].get_ydata(), dataset["value"].to_numpy()[:, 1])
    assert axes.get_ylabel() == "Air temperature [°C]"


@pytest.mark.parametrize("count", [2, 72])
def test_each_named_line_looks_different_and_the_legend_lies_beside_them(count: int) -> None:
    many = xr.concat([series_result(count)] * 10, dim="station").assign_coords(station=[f"s{n}" for n in range(30)])
    figure = plot(many, kind="lines")
    axes = figure.axes[0]
    looks = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.get_lines()]
    assert len(set(looks)) == len(looks) == 30
    (legend,) = figure.legends
    figure.canvas.draw()
    assert not axes.get_window_extent().overlaps(legend.get_window_extent())
    more = xr.concat([many, many.assign_coords(station=[f"t{n}" for n in range(30)])], dim="station")
    assert not plot(more, kind="lines").legends


def test_kinds_can_be_named() -> None:
    assert sorted(KINDS) == ["day_by_hour", "lines", "map"]
    assert len(plot(map_result(), kind="lines").axes[0].get_lines()) == 500
    assert plot(series_result(72), kind="lines", title="Mine").axes[0].get_title(loc="left").startswith("Mine\n")
    hours = plot(map_result(), kind="day_by_hour")
    assert "mean of 500 cells" in hours.axes[0].get_title(loc="left")


def test_an_instant_selects_the_time_cell_that_holds_it() -> None:
    dataset = map_result()
    by_number = plot(dataset, time=1).axes[0].get_title(loc="left")
    for instant in ("2007-10-01T01:00", pd.Timestamp("2007-10-01 01:00"), np.datetime64("2007-10-01T01:00")):
        assert plot(dataset, time=instant).axes[0].get_title(loc="left") == by_number
    days = hg.base(series_result(72)["value"].rename("air_temperature")).aggregate("mean", time="1day")
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(2, 2))
    maps = days.interpolate("nearest", grid=grid).compute()
    assert "2007-10-02 00:00" in plot(maps, time="2007-10-02T17:30").axes[0].get_title(loc="left")
    with pytest.raises(InvalidQuery, match="no time cell holds 2007-10-09 00:00 UTC; .* to 2007-10-04 00:00 UTC"):
        plot(maps, time="2007-10-09")


def test_a_variable_of_the_result_is_drawn_in_the_colours_given() -> None:
    dataset = hg.base(series_result(3)["value"].rename("air_temperature")).interpolate(
        "ordinary_kriging", grid=hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(4, 5)),
        variogram=hg.variogram("exponential", psill=1.2, range_m=250.0),
    ).with_variance().compute()  # fmt: skip
    axes = plot(dataset, variable="variance", cmap="magma_r").axes[0]
    (mesh,) = [item for item in axes.collections if isinstance(item, QuadMesh)]
    np.testing.assert_array_equal(np.asarray(mesh.get_array()).ravel(), dataset["variance"][0].to_numpy().ravel())
    assert mesh.get_cmap().name == "magma_r"
    with pytest.raises(NotFound, match="'air_temperature_varience'; did you mean 'air_temperature_variance'"):
        plot(dataset, variable="air_temperature_varience")
    with pytest.raises(NotFound, match="colour map 'virids'; did you mean 'viridis'"):
        plot(dataset, cmap="virids")


def test_axes_that_are_given_are_drawn_into_and_returned() -> None:
    figure, (left, right) = pyplot.subplots(1, 2)
    assert plot(map_result(), ax=left, stations={station.id: station for station in STATIONS}) is left
    assert plot(series_result(3), ax=right) is right
    assert [text.get_text() for text in left.texts] == ["a"]
    assert all(axes.get_legend() is not None for axes in (left, right))
    figure.canvas.draw()
    pyplot.close(figure)


def test_units_are_printed_as_people_write_them() -> None:
    printed = {
        "degC": "°C",
        "W m-2": "W m⁻²",
        "m s-1": "m s⁻¹",
        "(degC)2": "(°C)²",
        "%": "%",
        "unknown": "unknown",
        "degree": "°",
    }
    assert {unit: unit_symbol(unit) for unit in printed} == printed


def test_what_cannot_be_drawn_is_refused_in_words() -> None:
    empty = series_result(3)
    empty["value"][:] = np.nan
    with pytest.raises(InvalidQuery, match="nothing to draw"):
        picture_bytes(empty)
    with pytest.raises(InvalidQuery, match="time cell 3 does not exist; the result has 3"):
        plot(map_result(), time=3)
    with pytest.raises(InvalidQuery, match="a map needs a result on a grid"):
        plot(series_result(3), kind="map")
    with pytest.raises(InvalidQuery, match="needs hourly cells"):
        plot(series_result(10, 600), kind="day_by_hour")
    with pytest.raises(NotFound, match="unknown kind of picture 'pie'"):
        plot(series_result(3), kind="pie")
