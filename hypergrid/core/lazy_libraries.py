"""Libraries that are imported on first use of one of their names.

xarray and pandas take a third of the start-up of a server, whose first answers need neither; PyKrige takes as long, and
few queries ask for its opinion.
"""

import importlib
from typing import TYPE_CHECKING

__all__ = ["pd", "pykrige", "xr"]

if TYPE_CHECKING:
    import pandas as pd
    import pykrige
    import xarray as xr
else:

    class _Library:
        """A library's public names; the import system lets one thread import it, and the others wait."""

        # `importlib.util.LazyLoader` would do, but in Python 3.11 two threads can both begin to load its module.
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> object:
            value = getattr(importlib.import_module(self._name), name)
            setattr(self, name, value)
            return value

    pd, pykrige, xr = _Library("pandas"), _Library("pykrige"), _Library("xarray")
