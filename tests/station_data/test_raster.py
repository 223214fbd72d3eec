"""The terrain's raster is the terrain."""

from pathlib import Path

import numpy as np
import pytest
import rasterio

from hypergrid.layers.raster_reader import read_raster
from station_data.network import stations
from station_data.terrain import elevation, write_terrain


def test_between_its_cells_it_is_the_terrain_and_every_station_stands_on_it(tmp_path: Path) -> None:
    layer = read_raster(write_terrain(tmp_path / "terrain.tif"), name="elevation")
    assert (layer.values.shape, layer.unit) == ((240, 240), "m")
    network = stations(100)
    found = layer.sample([(one.lon, one.lat) for one in network])
    np.testing.assert_allclose(found, [one.elevation_m for one in network], rtol=0, atol=0.13)
    west, south, east, north = layer.bounds
    places = np.random.default_rng(4).uniform((west, south), (east, north), (5000, 2))
    inner = ((places > np.array([west, south]) + 2e-4) & (places < np.array([east, north]) - 2e-4)).all(axis=1)
    error = layer.sample(places)[inner] - elevation(places[inner, 0], places[inner, 1])
    assert np.abs(error).max() < 0.1


def test_it_says_where_it_lies_and_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = (write_terrain(tmp_path / name, step_arcsec=2.0) for name in ("a.tif", "b.tif"))
    assert first.read_bytes() == second.read_bytes()
    with rasterio.open(first) as raster:
        assert (raster.crs.to_epsg(), raster.units, raster.shape) == (4326, ("m",), (60, 60))


@pytest.mark.parametrize("step", [0.0, -1.0, 61.0, float("nan")])
def test_a_step_without_cells_is_refused(tmp_path: Path, step: float) -> None:
    with pytest.raises(ValueError, match="needs a step above 0"):
        write_terrain(tmp_path / "terrain.tif", step_arcsec=step)
    assert list(tmp_path.iterdir()) == []
