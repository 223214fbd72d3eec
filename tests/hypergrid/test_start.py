"""What takes long to load waits until it is used."""

import subprocess
import sys

import pytest

LATE = ("matplotlib", "numba", "rasterio", "scipy.interpolate", "scipy.optimize", "scipy.signal", "scipy.stats")


@pytest.mark.parametrize("module", ["hypergrid", "hypergrid.__main__"])
def test_what_takes_long_to_load_waits_until_it_is_used(module: str) -> None:
    program = f"import sys, {module}; print(*(name for name in {LATE!r} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
