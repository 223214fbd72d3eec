"""The notebook of first steps runs as Jupyter runs it, from its first cell to its last; no outputs are committed."""

import ast
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg

NOTEBOOK = "station_data/notebooks/first_steps.ipynb"
SHOWS = ("_repr_png_", "_repr_html_", "__repr__")
"""What a notebook shows of an object, the first that it has."""


def read_cells(root: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads((root / NOTEBOOK).read_text("utf-8"))["cells"]
    return cells


def run_cell(code: str, names: dict[str, Any]) -> object:
    """Run a cell, and return its last expression unless it ends with a semicolon."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK, "exec"), names)
    if last is None:
        return None
    value = eval(compile(ast.Expression(last.value), NOTEBOOK, "eval"), names)
    return None if code.rstrip().endswith(";") else value


def show(value: object) -> str | bytes:
    shown = next(method() for name in SHOWS if (method := getattr(value, name, None)) is not None)
    assert isinstance(shown, str | bytes)
    return shown


@pytest.fixture(scope="module")
def shown(root: Path, five_days: Path) -> dict[str, Any]:
    """Run all cells on five days; return their names, and what each cell showed by its number."""
    names: dict[str, Any] = {"__name__": "__main__"}
    pictures = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(five_days)
        for number, cell in enumerate(read_cells(root)):
            if cell["cell_type"] == "code":
                value = run_cell("".join(cell["source"]), names)
                pictures[number] = None if value is None else show(value)
        names["written"] = xr.load_dataset("build/first_steps.nc"), pd.read_csv("build/first_steps.csv")
    plt.close("all")
    return {**names, "shown": pictures}


def test_no_output_is_committed(root: Path) -> None:
    for cell in read_cells(root):
        assert cell["cell_type"] in ("code", "markdown")
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


def test_every_cell_runs_and_shows_something(shown: dict[str, Any]) -> None:
    pictures = [picture for picture in shown["shown"].values() if picture is not None]
    assert sum(isinstance(picture, bytes) and picture.startswith(b"\x89PNG") for picture in pictures) == 2
    assert sum(isinstance(picture, str) and "<table" in picture for picture in pictures) >= 7
    assert sum(isinstance(picture, str) and "<svg" in picture for picture in pictures) == 1


def test_its_numbers_are_sound(shown: dict[str, Any]) -> None:
    result, table, compared = shown["result"], shown["table"], shown["compared"]
    assert bool(np.isfinite(result["air_temperature"]).all())
    assert -10 < float(result["air_temperature"].mean()) < 15
    assert 0 < float(result["air_temperature_variance"].min()) < float(result["air_temperature_variance"].max()) <= 1.4
    assert table["time"].min() >= pd.Timestamp("2007-10-02", tz="UTC")
    assert table["time"].max() < pd.Timestamp("2007-10-04", tz="UTC")
    assert "auto" in compared.to_pandas().index
    written, rows = shown["written"]
    np.testing.assert_array_equal(written["air_temperature"], result["air_temperature"])
    assert len(rows) == result["air_temperature"].size
    # Each degree Celsius is that of the readings.
    highest = shown["fahrenheit"].aggregate("max", time="all").compute()["value"]
    first = highest[0, highest["station"].values.tolist().index("1")]
    assert float(first) == pytest.approx(table[table["station"] == "1"]["value"].max() * 1.8 + 32)


def test_what_it_wrote_can_be_made_again(shown: dict[str, Any]) -> None:
    assert hg.again(shown["written"][0], shown["archive"]) is not None
    assert shown["archive"].query(shown["kriged"].to_json()).token == shown["kriged"].token
