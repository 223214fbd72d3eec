"""What takes long to load waits until it is used."""

import subprocess
import sys

import pytest

import hypergrid as hg

LATE = (
    "bokeh", "matplotlib", "numba", "rasterio", "scipy.interpolate", "scipy.ndimage", "scipy.optimize", "scipy.signal",
    "scipy.stats",
)  # fmt: skip


@pytest.mark.parametrize(
    "module", ["hypergrid", "hypergrid.cli.main", "hypergrid.cli.commands, queries.web.serving, viz.site"]
)
def test_what_takes_long_to_load_waits_until_it_is_used(module: str) -> None:
    program = f"import sys, {module}; print(*(name for name in {LATE!r} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


FOUNDATION = ("icechunk", "numba", "pandas", "pint", "pyarrow", "scipy", "xarray", "zarr")


@pytest.mark.parametrize("module", ["hypergrid", "hypergrid.core.errors", "hypergrid.core.units"])
def test_what_one_module_needs_not_is_not_loaded_for_it(module: str) -> None:
    # Each process of a stream imports a module or two of the package: workers of Spark, receivers, committers.
    program = f"import sys, {module}; print(*(name for name in {FOUNDATION!r} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_a_worker_of_a_stream_loads_neither_units_nor_what_only_queries_and_netcdf_need() -> None:
    late = ("hypergrid.execution", "hypergrid.interpolation", "numba", "pint", "scipy", "xarray")
    program = f"import sys, ingest.spark.source; print(*(name for name in {late!r} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_the_first_small_map_loads_no_search_trees() -> None:
    # They take as long as all else of it.
    program = (
        "import sys, numpy as np, xarray as xr, hypergrid as hg\n"
        "places = {'x': ('station', np.arange(9.0) ** 2), 'y': ('station', np.arange(9.0))}\n"
        "times = {'time': np.array(['2007-10-01'], 'M8[ns]')}\n"
        "readings = xr.DataArray(np.arange(9.0)[None], dims=('time', 'station'), coords={**places, **times})\n"
        "fitted = hg.variogram('exponential', psill=1.0, range_m=30.0)\n"
        "grid = hg.grid(x=0.0, y=0.0, step=5.0, shape=(9, 9))\n"
        "hg.base(readings).interpolate('ordinary_kriging', grid=grid, variogram=fitted).compute()\n"
        "print(*(name for name in sys.modules if name in ('scipy.linalg', 'scipy.spatial')))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["scipy.linalg"]


def test_each_public_name_and_each_module_is_there_when_it_is_asked_for() -> None:
    assert set(hg.__all__) <= set(dir(hg))
    assert all(getattr(hg, name) is not None for name in hg.__all__)
    assert hg.topology.Grid is hg.Grid
    with pytest.raises(AttributeError, match="'hypergrid' has no attribute 'open_archive'"):
        _ = hg.open_archive
