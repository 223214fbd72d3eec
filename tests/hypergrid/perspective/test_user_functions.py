"""Functions that users add: they behave as built-in ones, are told apart by content, and fail with a cell's name."""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.core.errors import InvalidFunction, InvalidQuery, InvalidUnit, NotFound
from hypergrid.core.readings import Position, Series, Station
from hypergrid.core.result_names import value_of
from hypergrid.core.times import SECOND_NS
from hypergrid.execution import make_plan, run
from hypergrid.perspective import question_from_json
from hypergrid.perspective.functions.catalogue import list_catalogue
from hypergrid.perspective.functions.user_functions import load_entry_points
from hypergrid.query import Query
from tests.support.feeds import Row
from tests.support.networks import START_NS, table, write_archive
from tests.support.own_functions import forgotten_functions

GRID = hg.grid(x=(0, 400), y=(0, 400), step=100)
START = "2007-10-01T00:00Z"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    with forgotten_functions():
        yield


def array(values: Any, *, name: str = "air_temperature", unit: str = "degC") -> Query:  # noqa: ANN401 - of any shape
    """Return readings of stations every ten minutes."""
    held = np.asarray(values, dtype=float)
    coords: dict[str, Any] = {
        "time": pd.date_range("2007-10-01", periods=held.shape[0], freq="10min"),
        "x": ("station", 100.0 * np.arange(held.shape[1])),
        "y": ("station", 50.0 * np.arange(held.shape[1]) ** 2),
    }
    data = xr.DataArray(held, dims=("time", "station"), coords=coords, name=name, attrs={"units": unit})
    return hg.base(data)


def found(query: Query) -> Any:  # noqa: ANN401 - an array
    return value_of(query.compute()).to_numpy()


class TestConvert:
    def test_behaves_as_a_built_in_one(self) -> None:
        @hg.convert_function("degrees_above", unit="K", takes="degC", long_name="Degrees above a limit")
        def degrees_above(values: Any, limit: float = 20.0) -> Any:  # noqa: ANN401
            """What is above a limit."""
            return np.maximum(values - limit, 0)

        query = array([[19, 21], [np.nan, 25]]).convert("degrees_above", limit=18)
        result = query.compute()
        np.testing.assert_array_equal(result["value"], [[1, 3], [np.nan, 7]])
        assert result["value"].attrs == {
            "units": "K", "long_name": "Degrees above a limit", "coverage_content_type": "physicalMeasurement",
            "ancillary_variables": "degrees_above_count degrees_above_count_possible",
        }  # fmt: skip
        assert "convert degrees_above(limit=18)" in query.explain()
        used = json.loads(result.attrs["hypergrid_functions"])["convert degrees_above"]
        assert "degrees_above content " in used
        again = Query(question_from_json(json.loads(json.dumps(query.to_json()))), query.lookup)
        assert again.token == query.token
        np.testing.assert_array_equal(found(again), result["value"])
        assert degrees_above(30.0) == 10.0, "the decorator gives the function back"

    def test_takes_parameters_with_units(self) -> None:
        limit = hg.Parameter("limit", "number", "from where on", unit="variable")
        hg.convert_function("above", parameters=[limit])(lambda values, limit: values - limit)
        assert found(array([[5.0]]).convert("above", limit="273.15 K")).tolist() == [[5.0]]
        with pytest.raises(InvalidQuery, match=r"step 1 \(convert 'above'\).*needs the parameter 'limit'"):
            array([[5.0]]).convert("above").plan()
        with pytest.raises(InvalidUnit, match="'limit' of above"):
            array([[5.0]]).convert("above", limit="3 m").plan()
        with pytest.raises(NotFound, match="did you mean 'limit'"):
            array([[5.0]]).convert("above", limits=3).plan()

    def test_refuses_another_unit_than_it_takes(self) -> None:
        hg.convert_function("celsius_only", takes="degC")(lambda values: values)
        with pytest.raises(InvalidUnit, match=r"celsius_only needs values in 'degC'; got 'K'; convert them with scale"):
            array([[280.0]], unit="K").convert("celsius_only").plan()

    def test_makes_a_unit_of_the_source_s(self) -> None:
        hg.convert_function("squared", unit=lambda unit: f"{unit}2")(lambda values: values**2)
        assert array([[2.0]], name="depth", unit="m").convert("squared").compute()["value"].attrs["units"] == "m2"
        with pytest.raises(InvalidUnit, match="unknown unit '%2'"):
            array([[2.0]], name="relative_humidity", unit="%").convert("squared").plan()

    def test_of_missing_values_warns_of_nothing_and_may_write_into_them(self) -> None:
        @hg.convert_function("rooted")
        def rooted(values: Any) -> Any:  # noqa: ANN401
            values[values < 0] = np.nan
            np.nanmean(np.full(3, np.nan))
            return np.log(np.sqrt(values)) / np.where(values == 7, 0, 1)

        source = array([[-1.0, np.nan, 1.0]])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(found(source.convert("rooted")), [[np.nan, np.nan, 0.0]])
        np.testing.assert_array_equal(found(source), [[-1.0, np.nan, 1.0]])

    @pytest.mark.parametrize(
        ("body", "says"),
        [
            (lambda values: values[:3], r"one number for each value: it gave shape \(3,\), needed is \(6,\)"),
            (lambda values: 3.0, r"it gave shape \(\), needed is \(6,\)"),
            (lambda values: values.astype(str), "must give real numbers; got ndarray of dtype <U32"),
            (lambda values: values + 1j, "dtype complex128"),
            (lambda values: [[1], [1, 2]], "makes no array"),
            (lambda values: None, "gave nothing .None.; end it with 'return"),
            (lambda values: values / (values - 5), f"gave inf for 5; .*in the cell {START} at station '1'"),
            (lambda values: values - np.nanmax(values), "from that value alone: 4 gave -6 among others and 0 alone"),
            (lambda values: np.random.default_rng().normal(size=values.shape), "chance has no place here"),
            (lambda values: {}["a"], f"raised KeyError: 'a' .in the cell {START} at station '0'"),
            (lambda values: [int(v) for v in values], "cannot convert float NaN to integer .*00:10Z at station '1'"),
        ],
    )
    def test_that_fails_names_step_and_cell(self, body: Callable[..., Any], says: str) -> None:
        hg.convert_function("ok")(lambda values: values)
        hg.convert_function("broken")(body)
        query = array([[4, 5], [6, np.nan], [8, 10]]).convert("ok").convert("broken")
        with pytest.raises(InvalidFunction, match=rf"^step 2 \(convert 'broken'\): convert function 'broken'.*{says}"):
            query.compute()
        with pytest.raises(InvalidFunction, match="^step 2 .*2007-10-01T00:[01]0Z at station"):
            query.compute()

    def test_that_fails_names_a_cell_of_a_map_and_the_step_of_an_inner_query(self) -> None:
        hg.convert_function("broken")(lambda values: 1 / np.where(values > 100, 0.0, 1.0))
        plane = array([[0.0, 50.0, 150.0]]).interpolate("inverse_distance", grid=GRID)
        query = plane.merge("difference", plane.convert("broken"))
        with pytest.raises(
            InvalidFunction, match=r"^step 2 \(merge 'difference'\): step 2 \(convert 'broken'\)"
        ) as met:
            query.compute()
        first = int(np.argmax(found(plane).ravel() > 100))
        assert f"at x {first % 4 * 100}, y {first // 4 * 100})" in str(met.value)

    def test_that_fails_on_readings_names_the_reading(self, tmp_path: Path) -> None:
        hg.convert_function("broken")(lambda values: values / np.where(values == 3, 0.0, 1.0))
        with pytest.raises(
            InvalidFunction, match=r"gave inf for 3; .*in the reading of 2007-10-01T00:04Z at station 'a'"
        ):
            archive(tmp_path).convert("broken").aggregate("mean", time="10min").compute()


def archive(folder: Path) -> Query:
    """Return the readings 1, 2, 3, … of one station, two minutes apart, for twenty minutes."""
    series = Series("air_temperature", "a", interval_s=120.0)
    stamps = [START_NS + 120 * i * SECOND_NS for i in range(10)]
    rows = [Row(0, stamp, stamp, float(i + 1), 2) for i, stamp in enumerate(stamps)]
    stations = [Station("a", "a", (Position(None, 7.17, 45.86, 2000.0),))]
    return write_archive(folder / "ar", stations=stations, readings=[table([series], rows)])["air_temperature"]


class TestAggregate:
    def test_of_readings_gets_them_in_order_of_time(self, tmp_path: Path) -> None:
        hg.aggregate_function("rise")(lambda values, by=1.0: (values[-1] - values[0]) / by)
        query = archive(tmp_path).aggregate("rise", time="10min", by=2)
        result = query.compute()
        assert result["value"].to_numpy().tolist() == [[2.0], [2.0]]
        assert result["count"].to_numpy().tolist() == [[5], [5]]
        assert result["count_possible"].to_numpy().tolist() == [[5], [5]]
        assert "aggregate rise(by=2) over time" in query.explain()
        assert query.token != archive_like(query, by=3).token

    def test_takes_a_coverage(self, tmp_path: Path) -> None:
        hg.aggregate_function("most", min_coverage=0.8)(np.max)
        query = archive(tmp_path).convert("valid_range", low=4, high=99)
        np.testing.assert_array_equal(found(query.aggregate("most", time="10min")), [[np.nan], [10.0]])
        held = query.aggregate("most", time="10min", min_coverage=0.4)
        np.testing.assert_array_equal(found(held), [[5.0], [10.0]])

    def test_is_not_called_for_cells_without_values(self) -> None:
        sizes = []

        @hg.aggregate_function("sized", unit="1")
        def sized(values: Any) -> int:  # noqa: ANN401
            sizes.append(len(values))
            return len(values)

        result = array([[1, np.nan], [2, np.nan], [np.nan, 3]]).aggregate("sized", time="20min").compute()
        np.testing.assert_array_equal(result["value"], [[2, np.nan], [np.nan, 1]])
        assert sorted(sizes) == [1, 2]
        assert result["count"].to_numpy().tolist() == [[2, 0], [0, 1]]

    @settings(max_examples=25, deadline=None)
    @given(
        seed=st.integers(0, 2**32 - 1),
        time=st.sampled_from(["20min", "30min", "all", {"length": "40min", "step": "10min"}]),
        vectorised=st.booleans(),
    )
    def test_over_time_and_space_is_what_numpy_makes_of_all_values(
        self, *, seed: int, time: str | dict[str, str], vectorised: bool
    ) -> None:
        """A spread is neither folded nor commutes: over space and time at once it needs every value of a cell."""
        rng = np.random.default_rng(seed)
        values = np.where(rng.random((12, 4)) < 0.3, np.nan, rng.normal(size=(12, 4)))
        if vectorised:
            hg.aggregate_function("spread", vectorised=True)(lambda v: np.nanmax(v, axis=0) - np.nanmin(v, axis=0))
        else:
            hg.aggregate_function("spread")(_spread)
        try:
            plane = array(values)
            both = plane.aggregate("max", time=time), plane.aggregate("min", time=time)
            np.testing.assert_allclose(found(plane.aggregate("spread", time=time)), found(both[0]) - found(both[1]))
            maps = plane.interpolate("inverse_distance", grid=GRID)
            over: dict[str, Any] = {"time": time, "x": "200 m", "y": "all"}
            both = maps.aggregate("max", **over), maps.aggregate("min", **over)
            np.testing.assert_allclose(
                found(maps.aggregate("spread", **over)), found(both[0]) - found(both[1]), atol=1e-12
            )
            over.pop("time")
            both = maps.aggregate("max", **over), maps.aggregate("min", **over)
            np.testing.assert_allclose(
                found(maps.aggregate("spread", **over)), found(both[0]) - found(both[1]), atol=1e-12
            )
        finally:
            hg.forget_function("spread")

    @pytest.mark.parametrize("held", [1, 7, 50])
    @pytest.mark.parametrize("vectorised", [False, True])
    def test_in_parts_is_the_same_as_at_once(
        self, held: int, *, vectorised: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body: Callable[..., Any] = (lambda v: np.nanmax(v, axis=0) - np.nanmin(v, axis=0)) if vectorised else _spread
        hg.aggregate_function("spread", vectorised=vectorised)(body)
        rng = np.random.default_rng(5)
        maps = array(rng.normal(size=(12, 4))).interpolate("inverse_distance", grid=GRID)
        queries = [maps.aggregate("spread", time="40min", x="200 m"), maps.aggregate("spread", time="all")]
        whole = [found(query) for query in queries]
        monkeypatch.setattr("hypergrid.perspective.functions.user_function_calls.LARGEST", held)
        monkeypatch.setattr("hypergrid.perspective.functions.aggregate_formulas.LISTED_AT_ONCE", held)
        for query, expected in zip(queries, whole, strict=True):
            np.testing.assert_array_equal(found(query), expected)

    @pytest.mark.parametrize(
        ("body", "vectorised", "says"),
        [
            (lambda values: values, False, r"one number for the values of a cell; it gave shape \(2,\)"),
            (lambda values: "warm", False, "must give real numbers; got str"),
            (lambda values: None, False, "gave nothing"),
            (lambda values: np.inf, False, "gave inf for 2 values"),
            (lambda values: values[5], False, "raised IndexError"),
            (lambda values: np.nanmean(values, axis=1), True, r"gave shape \(2,\), needed is \(3,\)"),
            (
                lambda values: np.full(values.shape[1], np.nanmean(values)),
                True,
                "from one column alone.*reduce along axis 0",
            ),
        ],
    )
    def test_that_fails_names_step_and_cell(self, body: Callable[..., Any], *, vectorised: bool, says: str) -> None:
        hg.aggregate_function("broken", vectorised=vectorised)(body)
        # The first cell of each station but the last is empty.
        values = [[np.nan, 1], [np.nan, 2], [3, 4], [5, 6]]
        query = array(values).convert("scale", factor=2).aggregate("broken", time="20min")
        cell = "cells? (from )?2007-10-01T00:(00|20)Z at station '[01]'"
        with pytest.raises(InvalidFunction, match=rf"^step 2 \(aggregate 'broken'\).*{says}.*\(in the {cell}\)$"):
            query.compute()

    def test_names_the_very_cell_that_failed(self) -> None:
        hg.aggregate_function("broken")(lambda values: 1 / (values[0] - 5))
        query = array([[1, 2], [1, 2], [1, 5], [1, 9]]).aggregate("broken", time="20min")
        with pytest.raises(InvalidFunction, match=r"gave inf.*in the cell 2007-10-01T00:20Z at station '1'"):
            query.compute()

    @pytest.mark.parametrize("k", [0, 1])
    @pytest.mark.parametrize("times", [None, 1, 2])
    def test_names_the_very_cell_in_every_box(self, k: int, times: int | None) -> None:
        hg.aggregate_function("broken")(lambda values: 1 / (values[0] - 5))
        query = array([[1, 2], [1, 2], [1, 2], [1, 2], [1, 5], [1, 9]]).aggregate("broken", time="20min")
        plan = replace(make_plan(query.surface(), strategy=k), block_times=times)
        with pytest.raises(InvalidFunction, match=r"gave inf.*in the cell 2007-10-01T00:40Z at station '1'"):
            list(run(plan))

    def test_of_maxima_is_refused_where_it_makes_no_sense(self, tmp_path: Path) -> None:
        hg.aggregate_function("middle", of_extremes=False)(np.median)
        series = Series("air_temperature", "a", interval_s=120.0, statistic="max", stamp="end")
        rows = [Row(0, START_NS, START_NS + 120 * SECOND_NS, 1.0, 2)]
        stations = [Station("a", "a", (Position(None, 7.17, 45.86, 2000.0),))]
        opened = write_archive(tmp_path / "ar", stations=stations, readings=[table([series], rows)])
        with pytest.raises(InvalidQuery, match="a middle of max values is not the middle of the readings"):
            opened["air_temperature"].select(statistic="max").aggregate("middle", time="10min").plan()


def _spread(values: Any) -> Any:  # noqa: ANN401
    return values.max() - values.min()


def archive_like(query: Query, *, by: float) -> Query:
    """Return the query with another parameter."""
    document = query.to_json()
    document["steps"][-1]["params"]["by"] = by
    return Query(question_from_json(document), query.lookup)


class TestMerge:
    def test_of_three_sources_in_their_units(self) -> None:
        @hg.merge_function("felt", takes=("degC", "%", "m s-1"), unit="degC", long_name="Felt {temperature}")
        def felt(temperature: Any, relative_humidity: Any, wind_speed: Any) -> Any:  # noqa: ANN401
            """Made up."""
            return temperature + relative_humidity / 100 - wind_speed

        warm = array([[293.15]], unit="K")
        humid = array([[50.0]], name="relative_humidity", unit="%")
        windy = array([[3.6]], name="wind_speed", unit="km/h")
        query = warm.merge("felt", humid, windy)
        result = query.compute()
        np.testing.assert_allclose(result["value"], [[19.5]])
        assert result["value"].attrs == {
            "units": "degC", "long_name": "Felt {temperature}", "coverage_content_type": "physicalMeasurement",
            "ancillary_variables": "felt_count felt_count_possible",
        }  # fmt: skip
        assert "merge felt" in json.loads(result.attrs["hypergrid_functions"])
        again = Query(question_from_json(json.loads(json.dumps(query.to_json()))), query.lookup)
        assert again.token == query.token
        with pytest.raises(InvalidQuery, match="takes 2 other queries.*temperature, then relative humidity, then wind"):
            warm.merge("felt", humid).plan()
        with pytest.raises(InvalidUnit, match=r"felt takes temperature \[degC\], then relative humidity \[%\]"):
            warm.merge("felt", windy, humid).plan()

    def test_that_fails_names_step_and_cell(self) -> None:
        hg.merge_function("broken")(lambda one, other: one / other)
        query = array([[1.0], [2.0]]).merge("broken", array([[1.0], [0.0]]))
        with pytest.raises(
            InvalidFunction, match=r"step 1 \(merge 'broken'\).*gave inf for 2, 0; .*2007-10-01T00:10Z at station '0'"
        ):
            query.compute()

    def test_takes_parameters(self) -> None:
        @hg.merge_function("mixed", unit="degC", takes=("degC", "degC"))
        def mixed(one: Any, other: Any, share: Any = 0.5, *, beyond: Any = -100.0) -> Any:  # noqa: ANN401
            """Made up."""
            return np.where(one > beyond, share * one + (1 - share) * other, np.nan)

        cold, warm = array([[0.0], [-20.0]]), array([[10.0], [10.0]])
        np.testing.assert_allclose(found(cold.merge("mixed", warm)).ravel(), [5.0, -5.0])
        query = cold.merge("mixed", warm, share="10 %", beyond=-10)
        np.testing.assert_allclose(found(query).ravel(), [9.0, np.nan])
        assert query.token != cold.merge("mixed", warm, beyond=-10).token
        assert "merge mixed(beyond=-10, share=0.1)" in query.explain()
        again = Query(question_from_json(json.loads(json.dumps(query.to_json()))), query.lookup)
        assert again.token == query.token
        with pytest.raises(NotFound, match=r"step 1 \(merge 'mixed'\): unknown parameter of mixed 'part'"):
            cold.merge("mixed", warm, part=0.1).plan()
        with pytest.raises(NotFound, match=r"step 1 \(merge 'difference'\): unknown parameter of difference 'share'"):
            cold.merge("difference", warm, share=0.1).plan()

    def test_takes_declared_parameters_in_the_first_source_s_unit(self) -> None:
        limit = hg.Parameter("limit", "number", "where the second takes over", unit="variable")

        @hg.merge_function("below", parameters=[limit])
        def below(one: Any, other: Any, limit: Any) -> Any:  # noqa: ANN401
            """Made up."""
            return np.where(one < limit, one, other)

        query = array([[5.0], [15.0]]).merge("below", array([[1.0], [2.0]]), limit="50 degF")
        np.testing.assert_allclose(found(query).ravel(), [5.0, 2.0])
        with pytest.raises(InvalidQuery, match="below needs the parameter 'limit'"):
            array([[5.0]]).merge("below", array([[1.0]])).plan()

    @pytest.mark.parametrize("body", [lambda values: values, lambda one, other=1: one, lambda *many: many[0]])
    def test_needs_a_function_of_two_or_more_arrays(self, body: Callable[..., Any]) -> None:
        with pytest.raises(InvalidFunction, match="merge function 'm' needs a function of two or more arrays"):
            hg.merge_function("m")(body)


class TestNames:
    def test_that_are_taken_are_refused(self) -> None:
        with pytest.raises(
            InvalidFunction, match="convert function 'scale' is one of HyperGrid itself; choose another"
        ):
            hg.convert_function("scale")(lambda values: values)
        hg.convert_function("mine")(_spread)
        with pytest.raises(
            InvalidFunction, match=r"'mine' exists already, as .*:_spread; .*hg.forget_function\('mine'\)"
        ):
            hg.convert_function("mine")(lambda values: values)
        with pytest.raises(InvalidFunction, match="letters, digits and underscores; got 'a b'"):
            hg.convert_function("a b")(lambda values: values)

    def test_are_replaced_from_the_same_place_as_a_notebook_does(self) -> None:
        for factor in (2.0, 3.0):
            cell = f"@hg.convert_function('again')\ndef again(values):\n    return {factor} * values"
            exec(cell, {"__name__": "__main__", "hg": hg})  # noqa: S102 - as a notebook runs a cell
            assert found(array([[1.0]]).convert("again")).tolist() == [[factor]]

    def test_are_listed_with_the_first_line_of_their_docstring(self) -> None:
        hg.convert_function("bare")(lambda values: values)

        @hg.convert_function("described")
        def described(values: Any) -> Any:  # noqa: ANN401 - an array
            """Return the values.

            Unchanged.
            """
            return values

        listed = {entry.name: entry.summary for entry in list_catalogue()}
        assert (listed["bare"], listed["described"]) == ("Added by a user.", "Return the values.")

    def test_can_be_forgotten(self) -> None:
        hg.convert_function("mine")(lambda values: values)
        query = array([[1.0]]).convert("mine")
        hg.forget_function("mine")
        with pytest.raises(NotFound, match="unknown convert function 'mine'"):
            array([[1.0]]).convert("mine")
        with pytest.raises(NotFound, match=r"step 1 .*unknown convert function 'mine'"):
            query.compute()
        with pytest.raises(NotFound, match="unknown added function 'mine'"):
            hg.forget_function("mine")
        with pytest.raises(InvalidFunction, match="'mean' is a function of HyperGrid itself"):
            hg.forget_function("mean")

    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda: hg.convert_function("f")(lambda: 1), "takes values first"),
            (lambda: hg.convert_function("f")(3), "needs a function of values below the decorator; got 3"),
            (lambda: hg.aggregate_function("f")(lambda v, time=1: 1), "cannot have a parameter 'time'"),
            (
                lambda: hg.convert_function("f", parameters=[hg.Parameter("k", "number", "k")])(lambda v: v),
                "declares 'k', which it lacks",
            ),
            (lambda: hg.convert_function("f", parameters=[])(lambda v, k: v), "does not say what 'k' is"),
            (lambda: hg.aggregate_function("f", min_coverage=2)(lambda v: 1), "min_coverage from 0 to 1; got 2"),
            (lambda: hg.merge_function("f", takes=("m",))(lambda a, b: a), r"takes 2 sources .*; got units \('m',\)"),
            (lambda: hg.convert_function("f")(np.sqrt), r"has neither source text nor code.*give version='1'"),
        ],
    )
    def test_and_what_comes_with_them_is_checked_at_once(self, make: Callable[[], Any], says: str) -> None:
        with pytest.raises(InvalidFunction, match=says):
            make()

    def test_of_a_unit_that_is_unknown_are_refused(self) -> None:
        with pytest.raises(InvalidUnit, match="unknown unit 'furlongs per'"):
            hg.convert_function("f", unit="furlongs per")(lambda values: values)


class TestToken:
    def source(self, folder: Path, text: str) -> str:
        """Return the token of a query with the function f of a module of some text."""
        spaces: dict[str, Any] = {"__name__": "some_module", "hg": hg, "np": np}
        path = folder / "some_module.py"
        path.write_text(text)
        __import__("linecache").checkcache(str(path))
        exec(compile(text, str(path), "exec"), spaces)  # noqa: S102 - as an import runs a module
        return array([[1.0]]).convert("f").token

    def test_follows_the_source_what_it_uses_and_the_version(self, tmp_path: Path) -> None:
        """Each line differs from the first in one thing."""
        base = "K = 2.0\ndef g(v):\n    return v\n@hg.convert_function('f')\ndef f(values):\n    return g(values) * K\n"
        variants = [
            base,
            base.replace("K = 2.0", "K = 3.0"),
            base.replace("return v\n", "return v + 1\n"),
            base.replace("* K", "* K * 1"),
            base.replace("'f')", "'f', version='2')"),
            base.replace("'f')", "'f', unit='K')"),
        ]
        tokens = [self.source(tmp_path, text) for text in variants]
        assert len(set(tokens)) == len(variants)
        assert self.source(tmp_path, base) == tokens[0]

    def test_follows_the_code_where_there_is_no_source(self) -> None:
        tokens = []
        for text in ("values * 2", "values * 3", "values * 2"):
            exec(f"hg.convert_function('f')(lambda values: {text})", {"hg": hg, "__name__": "__main__"})  # noqa: S102
            tokens.append(array([[1.0]]).convert("f").token)
        assert tokens[0] == tokens[2] != tokens[1]

    def test_follows_what_a_function_was_made_with(self) -> None:
        def make(factor: float) -> Callable[..., Any]:
            def times(values: Any) -> Any:  # noqa: ANN401
                return values * factor

            return times

        tokens = []
        for factor in (2.0, 3.0, 2.0):
            hg.convert_function("f")(make(factor))
            tokens.append(array([[1.0]]).convert("f").token)
        assert tokens[0] == tokens[2] != tokens[1]

    def test_of_other_queries_does_not_change(self) -> None:
        query = array([[1.0]]).convert("scale", factor=2).aggregate("mean", time="all")
        before = query.token
        hg.convert_function("f")(lambda values: values)
        assert query.token == before

    def test_is_known_by_version_where_there_is_no_code(self) -> None:
        tokens = []
        for version in ("1", "2"):
            hg.convert_function("f", version=version)(np.cbrt)
            tokens.append(array([[8.0]]).convert("f").token)
        assert tokens[0] != tokens[1]
        result = array([[8.0]]).convert("f").compute()
        assert result["value"].to_numpy().tolist() == [[2.0]]
        assert "version 2" in json.loads(result.attrs["hypergrid_functions"])["convert f"]


def distribution(folder: Path, name: str, points: dict[str, str], **modules: str) -> None:
    """Write an installed package: its modules and its metadata."""
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{key} = {value}\n" for key, value in points.items())
    (info / "entry_points.txt").write_text(f"[hypergrid.functions]\n{lines}")


GOOD = "import hypergrid as hg\n@hg.convert_function('of_a_package')\ndef f(values):\n    return values + 1\n"


class TestEntryPoints:
    @pytest.fixture(autouse=True)
    def _modules(self) -> Iterator[None]:
        before = set(sys.modules)
        yield
        for name in set(sys.modules) - before:
            del sys.modules[name]

    def test_are_loaded_when_a_name_is_looked_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopened: None
    ) -> None:
        distribution(tmp_path, "plugin", {"all": "plugin_functions"}, plugin_functions=GOOD)
        monkeypatch.syspath_prepend(str(tmp_path))
        query = array([[1.0]]).convert("scale", factor=1)
        assert "plugin_functions" not in sys.modules
        assert found(query.convert("of_a_package")).tolist() == [[2.0]]

    @pytest.fixture
    def reopened(self) -> None:
        """Let the tables look for entry points once more, as in a new process."""
        from hypergrid.perspective.functions import user_functions  # noqa: PLC0415

        for table_ in user_functions._TABLES.values():  # noqa: SLF001
            table_.fill_later(user_functions._load_once)  # noqa: SLF001

    def test_that_are_broken_are_warned_of_by_name_and_the_others_work(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        distribution(
            tmp_path,
            "plugin",
            {"bad": "plugin_bad", "gone": "plugin_gone", "good": "plugin_good:f", "plain": "plugin_plain:f"},
            plugin_bad="1 / 0",
            plugin_good=GOOD,
            plugin_plain="def f(values):\n    return values\n",
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.warns(RuntimeWarning) as met:
            load_entry_points()
        said = sorted(str(each.message) for each in met)
        assert len(said) == 3
        assert "entry point 'bad' = 'plugin_bad' of plugin 1.0 (group 'hypergrid.functions')" in said[0]
        assert "ZeroDivisionError: division by zero" in said[0]
        assert "'gone'" in said[1]
        assert "'plain' = 'plugin_plain:f'" in said[2]
        assert "below one of HyperGrid's decorators" in said[2]
        assert found(array([[1.0]]).convert("of_a_package")).tolist() == [[2.0]]
