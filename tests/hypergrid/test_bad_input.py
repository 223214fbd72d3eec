"""What cannot be answered is refused with its step, and its cell where one is known; before running where it can be."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hypergrid as hg
from hypergrid.cli.main import app
from hypergrid.core.errors import (
    HyperGridError,
    InvalidFunction,
    InvalidQuery,
    InvalidTime,
    InvalidUnit,
    NotFound,
)
from hypergrid.core.readings import Position, Series, Station
from hypergrid.core.times import SECOND_NS
from hypergrid.query import OpenArchive, Query
from tests.support.feeds import Row
from tests.support.networks import START_NS, table, write_archive

GRID = {"lon": 7.17, "lat": 45.86, "step": "10arcsec", "shape": [3, 4]}
FINER = {**GRID, "step": "5arcsec"}
FAR = {"type": "Polygon", "coordinates": [[[100, 10], [101, 10], [101, 11], [100, 10]]]}
MAPPED = {"op": "interpolate", "method": "inverse_distance", "grid": GRID}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> OpenArchive:
    """Return six hours of readings every two minutes, of two variables at two stations, and maxima of one of them."""
    folder = tmp_path_factory.mktemp("bad") / "archive"
    stations = [Station(name, name, (Position(None, 7.17 + 0.005 * i, 45.86, 2400.0),)) for i, name in enumerate("ab")]
    parts = []
    for variable in ("air_temperature", "relative_humidity"):
        kinds = [("a", "sample"), ("b", "sample"), ("a", "max")] if variable == "air_temperature" else [("a", "sample")]
        series = [
            Series(
                variable, name, interval_s=120.0, statistic=statistic, stamp="end" if statistic == "max" else "instant"
            )
            for name, statistic in kinds
        ]
        rows = [
            Row(number, 0, START_NS + k * 120 * SECOND_NS, 5.0 + k % 7, 2)
            for number in range(len(series))
            for k in range(1, 181)
        ]
        parts.append(table(series, rows))
    return write_archive(folder, stations=stations, readings=parts)


@pytest.fixture(autouse=True)
def _functions() -> Iterator[None]:
    @hg.convert_function("raises")
    def raises(values: Any) -> Any:  # noqa: ANN401
        """Divide by nothing."""
        return 1 // 0 + values

    @hg.convert_function("shortens")
    def shortens(values: Any) -> Any:  # noqa: ANN401
        """Lose values."""
        return values[:1]

    @hg.aggregate_function("lists")
    def lists(values: Any) -> Any:  # noqa: ANN401
        """Give more than one number."""
        return values[:2]

    @hg.merge_function("joins")
    def joins(first: Any, second: Any) -> Any:  # noqa: ANN401
        """Put one after the other."""
        return np.concatenate([first, second])

    yield
    for name in ("raises", "shortens", "lists", "joins"):
        hg.forget_function(name)


def aggregate(time: object, function: str = "mean", **params: object) -> dict[str, Any]:
    return {"op": "aggregate", "function": function, "time": time, "params": params}


def asked(*steps: dict[str, Any], variable: str = "air_temperature", **more: object) -> dict[str, Any]:
    return {"variable": variable, "steps": list(steps), **more}


def merge(function: str, *others: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"op": "merge", "function": function, "with": list(others), **more}


TEN = aggregate("10min")

BEFORE: dict[str, tuple[dict[str, Any], type[HyperGridError], str]] = {
    # What is known before running: the query, the error, what it says.
    "merge of other time cells": (
        asked(TEN, merge("difference", asked(aggregate("20min")))),
        InvalidQuery,
        r"^step 2 \(merge 'difference'\): .*different time cells: .* 10min from .* 20min from ",
    ),
    "merge of windows and cells": (
        asked(TEN, merge("difference", asked(aggregate({"length": "20min", "step": "10min"})))),
        InvalidQuery,
        r"^step 2 .*different time cells: .* x 20min every 10min",
    ),
    "merge of other grids": (
        asked(TEN, MAPPED, merge("difference", asked(TEN, {**MAPPED, "grid": FINER}))),
        InvalidQuery,
        r"^step 3 .*different cells in space: .* 3 x 4 cells of 0.00277778 x .* 3 x 4 cells of 0.00138889 x ",
    ),
    "merge of a map and stations": (
        asked(TEN, MAPPED, merge("difference", asked(TEN))),
        InvalidQuery,
        r"^step 3 .*different cells in space: .* has 2 series \(a, b\)",
    ),
    "merge of readings": (
        asked(merge("difference", asked())),
        InvalidQuery,
        r"^step 1 .*readings with clocks of their own",
    ),
    "merge in a merge": (
        asked(TEN, merge("difference", asked(TEN, merge("ratio", asked(aggregate("1h")))))),
        InvalidQuery,
        r"^step 2 \(merge 'difference'\): step 2 \(merge 'ratio'\): its sources have different time cells",
    ),
    "cell across a climatology's": (
        asked(aggregate("1day", min_coverage=0), merge("anomaly", asked(aggregate("hour_of_day")))),
        InvalidQuery,
        r"^step 2 .*the cell 2007-10-01T00:00Z to 2007-10-02T00:00Z lies in several cells of hour_of_day",
    ),
    "window longer than the data": (
        asked(aggregate({"length": "30day", "step": "1day"})),
        InvalidQuery,
        r"^step 1 \(aggregate 'mean'\): time cells of 30day are longer than the 6h that there are",
    ),
    "window longer than the cells": (
        asked(TEN, aggregate("2day", "max", min_coverage=0.5)),
        InvalidQuery,
        r"^step 2 \(aggregate 'max'\): time cells of 2day are longer than the .* the 50% that",
    ),
    "length of zero": (asked(aggregate("0min")), InvalidTime, r"^step 1 .*must be above zero.*got '0min'"),
    "negative length": (asked(aggregate("-5min")), InvalidTime, r"^step 1 .*must be above zero.*got '-5min'"),
    "window of zero": (asked(aggregate({"length": "0s", "step": "5min"})), InvalidTime, r"^step 1 .*above zero"),
    "negative instants": (
        asked({"op": "interpolate", "method": "linear", "time": "-5min"}),
        InvalidTime,
        r"^step 1 \(interpolate 'linear'\): .*above zero",
    ),
    "grid of zero": (asked(TEN, {**MAPPED, "grid": {**GRID, "step": 0}}), InvalidQuery, r"^step 2 .*step above zero"),
    "negative cells": (
        asked(TEN, MAPPED, {"op": "aggregate", "function": "mean", "lat": "-10arcsec"}),
        InvalidQuery,
        r"^step 3 .*cells of 'lat' need a length above zero; got '-10arcsec'",
    ),
    "time zone that does not exist": (
        asked(aggregate({"step": "1day", "zone": "Europe/Zuerich"})),
        NotFound,
        r"^step 1 .*unknown time zone 'Europe/Zuerich'; did you mean 'Europe/Zurich'",
    ),
    "zones elsewhere": (
        asked(TEN, MAPPED, {"op": "aggregate", "function": "mean", "zones": {"far": FAR}}),
        InvalidQuery,
        r"^step 3 .*none of the 1 zones \(far\) lies on the grid, which is within 7.17 to .* zones are around 100",
    ),
    "zones of a path": (
        asked(TEN, MAPPED, {"op": "aggregate", "function": "mean", "zones": "/etc/hostname"}),
        InvalidQuery,
        r"^step 3 of query \(aggregate\): zones are given as GeoJSON itself; .* there as \{\"file\": ",
    ),
    "quantile above 1": (asked(aggregate("1h", "quantile", q=1.2)), InvalidQuery, r"^step 1 .*from 0 to 1 .*got 1.2"),
    "quantile below 0": (asked(aggregate("1h", "quantile", q=-0.1)), InvalidQuery, r"^step 1 .*0 to 1 .*got -0.1"),
    "quantile of nothing": (asked(aggregate("1h", "quantile")), InvalidQuery, r"^step 1 .*needs the parameter 'q'"),
    "units of a parameter": (
        asked({"op": "convert", "function": "valid_range", "params": {"low": "3 mm", "high": 5}}),
        InvalidUnit,
        r"^step 1 \(convert 'valid_range'\): 'low' of valid_range: 'mm' does not convert to 'degC'",
    ),
    "units of a merge": (
        asked(TEN, merge("difference", asked(TEN, variable="relative_humidity")), select={"station": "a"}),
        InvalidUnit,
        r"^step 2 \(merge 'difference'\): '%' does not convert to 'degC'",
    ),
    "units of a formula": (
        asked(TEN, merge("dew_point", asked(TEN, variable="relative_humidity"))),
        InvalidUnit,
        r"^step 2 .*'degC' does not convert to '%'.*dew_point takes relative humidity \[%\], then air temp",
    ),
    "mean of maxima": (
        asked(TEN, select={"statistic": "max"}),
        InvalidQuery,
        r"^step 1 \(aggregate 'mean'\): a mean of max values is not the mean of the readings",
    ),
    "function that does not exist": (
        asked(TEN, {"op": "convert", "function": "scael"}),
        NotFound,
        r"^step 2 of query \(convert\): unknown convert function 'scael'; did you mean 'scale'",
    ),
}

RUNNING: dict[str, tuple[dict[str, Any], str]] = {
    # What only the values tell.
    "raises": (
        asked(TEN, {"op": "convert", "function": "raises"}),
        r"^step 2 \(convert 'raises'\): .*raised ZeroDivisionError.* \(in the cell 2007-10-01T00:00Z at station 'a'\)$",
    ),
    "raises on a map": (
        asked(TEN, MAPPED, {"op": "convert", "function": "raises"}),
        r"^step 3 .* \(in the cell 2007-10-01T00:00Z at lon 7.17, lat 45.86\)$",
    ),
    "raises on a reading": (
        asked({"op": "convert", "function": "raises"}, TEN),
        r"^step 1 .* \(in the reading of 2007-10-01T00:02Z at station 'a'\)$",
    ),
    "wrong shape": (
        asked(TEN, {"op": "convert", "function": "shortens"}),
        r"^step 2 .*gave shape \(1,\), needed is \(\d+,\) \(in the cells from 2007-10-01T00:00Z at station 'a'\)$",
    ),
    "wrong shape of a cell": (
        asked(aggregate("1h", "lists")),
        r"^step 1 .*one number for the values of a cell; it gave shape \(2,\) \(in the cell 2007-10-01T00:00Z at ",
    ),
    "wrong shape of a merge": (
        asked(TEN, merge("joins", asked(TEN))),
        r"^step 2 \(merge 'joins'\): .*gave shape \(\d+,\), needed is \(\d+,\) \(in the cells from 2007-10-01T00:00Z ",
    ),
}


@pytest.mark.parametrize("name", BEFORE)
def test_is_refused_before_running(archive: OpenArchive, name: str) -> None:
    document, kind, says = BEFORE[name]
    with pytest.raises(kind, match=says) as found:
        archive.query(document).plan()
    assert type(found.value) is kind


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("strategy", ["top_down", "bottom_up"])
def test_of_a_user_s_function_names_step_and_cell(archive: OpenArchive, name: str, strategy: Any) -> None:  # noqa: ANN401
    document, says = RUNNING[name]
    query = archive.query(document)
    assert query.plan().cells
    with pytest.raises(InvalidFunction, match=says):
        query.compute(strategy=strategy)


FLUENT: dict[str, tuple[Callable[[Query], Query], str]] = {
    "merge of other time cells": (
        lambda base: base.aggregate("mean", time="10min").merge("difference", base.aggregate("mean", time="20min")),
        "merge of other time cells",
    ),
    "length of zero": (lambda base: base.aggregate("mean", time="0min"), "length of zero"),
    "mean of maxima": (lambda base: base.select(statistic="max").aggregate("mean", time="10min"), "mean of maxima"),
    "quantile above 1": (lambda base: base.aggregate("quantile", time="1h", q=1.2), "quantile above 1"),
}


@pytest.mark.parametrize("name", FLUENT)
def test_the_fluent_form_says_the_same(archive: OpenArchive, name: str) -> None:
    make, same = FLUENT[name]
    _, kind, says = BEFORE[same]
    with pytest.raises(kind, match=says):
        make(archive["air_temperature"]).plan()


@pytest.mark.parametrize("name", [*BEFORE, *RUNNING])
def test_the_command_line_says_it_and_writes_nothing(archive: OpenArchive, name: str, tmp_path: Path) -> None:
    document = (BEFORE.get(name) or RUNNING[name])[0]
    (tmp_path / "query.json").write_text(json.dumps(document))
    out = tmp_path / "out.nc"
    command = ["query", str(tmp_path / "query.json"), "--archive", str(archive.path), "-o", str(out)]
    result = CliRunner().invoke(app, command)
    # Its `main` prints the error, and ends with 1 or 2.
    assert isinstance(result.exception, HyperGridError)
    assert str(result.exception).startswith("step ")
    assert not out.exists()
