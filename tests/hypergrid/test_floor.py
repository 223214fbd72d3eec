"""The floor: times, tokens, units, parameters, registry, settings, errors."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypergrid.core import errors
from hypergrid.core.errors import (
    HyperGridError,
    InvalidDeployment,
    InvalidQuery,
    InvalidTime,
    InvalidUnit,
    NotFound,
)
from hypergrid.core.parameters import Parameter, bind
from hypergrid.core.registry import Registry
from hypergrid.core.settings import Settings, read_settings
from hypergrid.core.times import (
    DAY_NS,
    SECOND_NS,
    Window,
    format_duration,
    format_instant,
    format_timestamp,
    parse_duration,
    parse_instant,
)
from hypergrid.core.tokens import token
from hypergrid.core.units import KNOWN_VARIABLES, check_unit, convert, parse_number

NOON = 1_191_240_000 * SECOND_NS
"""2007-10-01T12:00Z."""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2007-10-01T12:00Z", NOON),
        ("2007-10-01T12:00", NOON),
        ("2007-10-01 12", NOON),
        ("2007-10-01T14+02:00", NOON),
        ("2007-10-01T14:00+0200", NOON),
        ("2007-10-01T06:30:00-05:30", NOON),
        ("2007-10-01T12:00:00.5Z", NOON + SECOND_NS // 2),
        ("2007-10-01T12:00:00.000000001Z", NOON + 1),
        (" 2007-10-02 ", NOON + DAY_NS // 2),
        ("2008-02-29", 1_204_243_200 * SECOND_NS),
        (datetime(2007, 10, 1, 12, tzinfo=UTC), NOON),
        (datetime(2007, 10, 1, 14, 0, 0, 1, tzinfo=timezone(timedelta(hours=2))), NOON + 1000),
        (datetime(2007, 10, 1, 12), NOON),  # noqa: DTZ001 - without a zone it is UTC
        (pd.Timestamp("2007-10-01T12:00:00.000000007"), NOON + 7),
        (np.datetime64("2007-10-01T12:00"), NOON),
        (np.datetime64("2007-10-01T12:00:00.000000003", "ns"), NOON + 3),
    ],
)
def test_instants_are_read(given: object, expected: int) -> None:
    assert parse_instant(given) == expected


@pytest.mark.parametrize(
    "given",
    ["", "now", "2007-13-01", "2007-02-29", "2007-10-01T24:01Z", "2007-10-01T12:60Z", "2007-10-01T23:59:60Z", "NaT",
     "2007-10-01T12:00+25:00", "2007-10-01T12:00+02:99", "1677-12-31", "2262-01-01", "9999-12-31", "2007-10-01T12:00ZZ",
     "2007", "20071001", "２００７-10-01", np.datetime64("NaT"), None, 5, 3.5, True, [], {}],
)  # fmt: skip
def test_what_is_no_instant_is_refused(given: object) -> None:
    with pytest.raises(InvalidTime, match=r"instant"):
        parse_instant(given)


@given(st.integers(-9_214_560_000 * SECOND_NS, 9_214_646_399 * SECOND_NS))
def test_instants_come_back(time_ns: int) -> None:
    assert parse_instant(format_instant(time_ns)) == parse_instant(format_timestamp(time_ns)) == time_ns


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(NOON, "2007-10-01T12:00Z"), (NOON + SECOND_NS, "2007-10-01T12:00:01Z"),
     (NOON + 120_000_000, "2007-10-01T12:00:00.120Z"), (NOON + 1, "2007-10-01T12:00:00.000000001Z"),
     (NOON + 100, "2007-10-01T12:00:00.000000100Z")],
)  # fmt: skip
def test_instants_are_as_short_as_they_are_exact(time_ns: int, text: str) -> None:
    assert format_instant(time_ns) == text
    assert format_timestamp(time_ns) == text.replace("12:00Z", "12:00:00Z")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10min", 600 * SECOND_NS), ("1h", 3600 * SECOND_NS), ("1.5 day", 36 * 3600 * SECOND_NS), ("250ms", 250_000_000),
     ("2 weeks", 14 * DAY_NS), ("0.1s", 100_000_000), ("123456789.123456789s", 123456789123456789)],
)  # fmt: skip
def test_durations_are_read(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "min",
        "0s",
        "-1h",
        "10 fortnights",
        "1e3s",
        "9999999999 weeks",
        "1" * 500 + "s",
        "0.1ns",
        5,
        None,
        ["1h"],
    ],
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(InvalidTime):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [("1month", "a month of the calendar.*'30day'"), ("2 years", "a year of the calendar.*'365day'"),
     ("1M", "a month of"), ("1QE", "a season of")],
)  # fmt: skip
def test_lengths_of_the_calendar_are_no_durations(text: str, said: str) -> None:
    with pytest.raises(InvalidTime, match=f"needs a fixed length, which {said}"):
        parse_duration(text)


@given(st.integers(1, 10**17))
def test_durations_come_back(length: int) -> None:
    assert parse_duration(format_duration(length)) == length


def test_windows_are_half_open() -> None:
    window = Window.parse("2007-10-01", "2007-10-02")
    assert window.stop_ns - window.start_ns == DAY_NS
    assert window.intersect(Window.parse("2007-10-02", "2007-10-03")) is None
    assert window.intersect(Window.parse("2007-10-01T12", "2007-10-03")) == Window.parse("2007-10-01T12", "2007-10-02")
    with pytest.raises(InvalidTime, match=r"2007-10-02T00:00Z to 2007-10-01T00:00Z; swap"):
        Window.parse("2007-10-02", "2007-10-01")


@dataclass(frozen=True)
class Thing:
    name: str
    size: float


def test_equal_content_has_equal_tokens() -> None:
    assert token({"b": 1, "a": [1.5, None]}) == token({"a": (1.5, None), "b": 1})
    assert token(Thing("a", 1.0)) == token(Thing("a", 1.0))
    assert token(np.arange(6).reshape(2, 3)[:, ::2]) == token(np.ascontiguousarray(np.arange(6).reshape(2, 3)[:, ::2]))
    assert len(token(None)) == 32


def test_other_content_has_other_tokens() -> None:
    contents = [
        None, True, 1, 1.0, "1", "", [], [[]], {}, [1, 2], [[1], 2], {"a": 1}, {"a": "1"}, float("nan"), 0.1 + 0.2, 0.3,
        Thing("a", 1.0), Thing("b", 1.0), np.arange(3), np.arange(3.0), np.arange(3).reshape(3, 1), np.arange(4),
        np.datetime64("2007-10-01"), {"float": (1.0).hex()}, {"array": ""},
    ]  # fmt: skip
    tokens = [token(content) for content in contents]
    assert len(set(tokens)) == len(tokens)


@pytest.mark.parametrize("content", [object(), len, {1: 2}, {1, 2}, b"x", np.array(["a"]), Thing, np.array([None])])
def test_what_has_no_stable_content_is_refused(content: object) -> None:
    with pytest.raises(TypeError, match="a token needs"):
        token(content)


def test_units_convert() -> None:
    np.testing.assert_allclose(convert([32.0, 212.0], "degF", "degC"), [0.0, 100.0], atol=1e-9)
    np.testing.assert_allclose(convert(1.0, "m s-1", "km h-1"), 3.6)
    np.testing.assert_allclose(convert(0.5, "1", "1"), 0.5)
    # What trends are given per.
    np.testing.assert_allclose(convert(1.0, "K decade-1", "K year-1"), 0.1)
    np.testing.assert_allclose(convert(36_525.0, "day", "decade"), 10.0)
    np.testing.assert_allclose(convert(1000.0, "mW cm-2", "W m-2"), 10_000.0)
    np.testing.assert_allclose(convert([1.0, np.nan], "unknown", "degC"), [1.0, np.nan])
    with pytest.raises(InvalidUnit, match="'degC' does not convert to 'kPa'"):
        convert(1.0, "degC", "kPa")
    with pytest.raises(InvalidUnit, match="'mm decade-1' does not convert to 'decade-1'"):
        convert(1.0, "mm decade-1", "decade-1")


@pytest.mark.parametrize("variable", KNOWN_VARIABLES.values(), ids=lambda variable: variable.name)
def test_every_known_variable_has_a_known_unit(variable: object) -> None:
    assert check_unit(variable.unit) == variable.unit  # type: ignore[attr-defined]


@pytest.mark.parametrize("unit", ["apples", "(", "m**9**9**9", "9**9 m", "(m**9)**9", "m" * 200, "m-1000", "[]", "'"])
def test_units_that_are_none_are_refused(unit: str) -> None:
    with pytest.raises(InvalidUnit, match="unknown unit"):
        check_unit(unit)


@pytest.mark.parametrize(
    ("given", "unit", "expected"),
    [(3, "degC", 3.0), ("-40 degF", "degC", -40.0), ("12", "degC", 12.0), (" 0.25 km ", "m", 250.0),
     (np.int64(2), "", 2.0), (np.float32(0.5), "1", 0.5), ("80 %", "", 0.8),
     ("80%", "", 0.8), ("7.%", "1", 0.07), ("35%", "%", 35.0), ("273.15 K", "degC", 0.0),
     ("5 K", "K", 5.0)],
)  # fmt: skip
def test_numbers_are_read_with_their_units(given: object, unit: str, expected: float) -> None:
    assert parse_number(given, unit, label="low") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("given", "unit"),
    [(True, ""), (None, "m"), ("", "m"), ("five", "m"), ("nan", "m"), ("1e999", "m"), (float("inf"), "m"),
     (10**400, "m"), ([], "m"), ({}, "m"), ("5 apples", "m"), ("5 degC", "m"), ("2 m", ""),
     ("%", ""), ("90%", "m"), ("2 apples", "")],
)  # fmt: skip
def test_what_is_no_number_is_refused_by_name(given: object, unit: str) -> None:
    with pytest.raises(InvalidUnit, match="low"):
        parse_number(given, unit, label="low")


def test_parameters_are_bound() -> None:
    parameters = (
        Parameter("low", "number", "lowest", unit="variable"),
        Parameter("n", "count", "how many", required=False, default=4),
    )
    assert bind("f", parameters, {"low": "50 degF"}, variable_unit="degC") == {"low": pytest.approx(10.0), "n": 4}
    with pytest.raises(NotFound, match=r"unknown parameter of f 'lw'; did you mean 'low'\?"):
        bind("f", parameters, {"lw": 1}, variable_unit="degC")
    with pytest.raises(InvalidQuery, match=r"f needs the parameter 'low' \(lowest\)"):
        bind("f", parameters, {}, variable_unit="degC")
    for wrong in (0, -1, True, 1.5, "3", 2**31, 10**400):
        with pytest.raises(InvalidQuery, match="whole number"):
            bind("f", parameters, {"low": 1, "n": wrong}, variable_unit="degC")


def test_a_registry_names_what_exists() -> None:
    shapes: Registry[int] = Registry("shape")
    shapes.add("square", 4)
    assert shapes.register("triangle")(3) == 3
    assert dict(shapes) == {"square": 4, "triangle": 3}
    assert shapes.get("circle") is None
    assert shapes.get("circle", 0) == 0
    assert [] not in shapes  # type: ignore[comparison-overlap]
    with pytest.raises(NotFound, match=r"unknown shape 'squar'; did you mean 'square'\? There are: square, triangle"):
        shapes["squar"]
    for odd in ([], {}, None, 3):
        with pytest.raises(NotFound):
            shapes[odd]  # type: ignore[index]
    with pytest.raises(ValueError, match="exists already"):
        shapes.add("square", 5)


def test_settings_come_from_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('host = "::1"\nport = 9000\n')
    assert read_settings(None, {}) == Settings()
    assert read_settings(file, {}) == Settings(host="::1", port=9000)
    assert read_settings(file, {"HYPERGRID_PORT": "1", "OTHER": "2"}) == Settings(host="::1", port=1)
    with pytest.raises(InvalidDeployment, match="'port' needs a whole number from 0 to 65535; got 'x'"):
        read_settings(None, {"HYPERGRID_PORT": "x"})
    file.write_text("prt = 1\n")
    with pytest.raises(InvalidDeployment, match="unknown setting 'prt'; there are: .*port"):
        read_settings(file, {})


def test_every_error_is_also_the_builtin_that_it_means() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HyperGridError)]
    assert len(kinds) > 10
    for kind in kinds:
        builtins = [base for base in kind.__mro__ if base.__module__ == "builtins"]
        assert kind is HyperGridError or builtins[0] not in (Exception, BaseException), kind


def test_too_large_says_both_numbers() -> None:
    error = errors.TooLarge("the query", "bytes", 2e6, 1e6, "ask for less")
    assert str(error) == "the query projects 2,000,000 bytes, above the 1,000,000 allowed; ask for less"
    assert (error.projected, error.allowed) == (2e6, 1e6)
    assert "There are: none" in str(NotFound.among(kind="thing", given="x", existing=[]))
