"""The SensorScope format: good rows as they are, bad ones with line and reason."""

from collections.abc import Callable

import numpy as np
import pytest

from ingest.formats import FORMATS, Parsed, ReadOptions

FORMAT = FORMATS["sensorscope"]
GOOD = b"7 2007 09 20 02 00 07 1190246407 5.680 5.475 NaN 86.602 26.765 -8.595 0.000 NaN 117.503\n"


def parse(data: bytes, options: ReadOptions | None = None, *, last: bool = True) -> Parsed:
    layout = FORMAT.layout(data, "pass-7.txt", options or ReadOptions())
    return FORMAT.parse(data[layout.data_start :], layout, last=last)


def test_a_row_becomes_its_station_instant_and_values() -> None:
    parsed = parse(GOOD)
    assert parsed.stations == ("7",)
    assert parsed.time_ns.tolist() == [1190246407 * 10**9]
    values = [float(parsed.values[name][0]) for name in FORMAT.columns or ()]
    np.testing.assert_equal(values, [5.68, 5.475, np.nan, 86.602, 26.765, -8.595, 0.0, np.nan, 117.503])
    assert (parsed.bad, parsed.lines) == ((), 1)


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        # cut off in a field, without newline
        (GOOD[:40], "", "cut off: the file ends after 10 of 17 fields"),
        # the same with a newline is a short row
        (GOOD[:40] + b"\n", "", "wrong number of fields: 17 needed, 10 found"),
        (GOOD.replace(b"\n", b" 1\n"), "", "wrong number of fields: 17 needed, 18 found"),
        (GOOD.replace(b"86.602", b"86,602"), "relative_humidity", "bad number: '86,602' in relative_humidity"),
        (GOOD.replace(b"86.602", b"0x10"), "relative_humidity", "bad number: '0x10' in relative_humidity"),
        (GOOD.replace(b"86.602", b"inf"), "relative_humidity", "bad number: infinite"),
        (GOOD.replace(b"86.602", b"1e999"), "relative_humidity", "bad number: infinite"),
        (GOOD.replace(b"09 20", b"02 30"), "day", "impossible date: 2007 2 30 2 0 7"),
        (GOOD.replace(b"2007 09 20 02", b"2007 09 20 24"), "day", "impossible date: 2007 9 20 24 0 7"),
        (GOOD.replace(b"1190246407", b"NaN"), "epoch", "bad number: 'NaN' in epoch, which needs an integer"),
        (GOOD.replace(b"1190246407", b"1e9"), "epoch", "bad number: '1e9' in epoch, which needs an integer"),
        (GOOD.replace(b"1190246407", b"-9999999999"), "epoch", "time out of range: an archive keeps 1900 to 2260"),
        (GOOD.replace(b"1190246407", b"999999999999999"), "epoch", "time out of range: an archive keeps 1900 to 2260"),
        (GOOD.replace(b"5.475", b"\xe9.475"), "", "invalid UTF-8"),
        (GOOD.replace(b"5.475", b"5\x00475"), "", "binary: a NUL byte"),
        (GOOD.replace(b"5.475", b"5\r475"), "", "binary: a carriage return inside a line"),
    ],
)
@pytest.mark.parametrize("also_bad", [b"", GOOD.replace(b"5.680", b"x")])
def test_a_bad_row_is_told_with_line_and_reason_and_costs_no_other(
    line: bytes, column: str, reason: str, also_bad: bytes
) -> None:
    # The second parameter forces the careful path upon the chunk; what is refused must not depend on it.
    parsed = parse(
        also_bad + GOOD + b"\n" + line if not line.endswith(b"\n") else also_bad + GOOD + b"\n" + line + GOOD
    )
    bad = parsed.bad[-1]
    assert (bad.line, bad.column, bad.reason) == (3 + bool(also_bad), column, reason)
    assert len(parsed.bad) == 1 + bool(also_bad)
    # A bad number costs its cell only.
    assert bad.rows == (column not in (FORMAT.columns or ()))
    assert len(parsed.code) == (2 if line.endswith(b"\n") else 1) + bool(also_bad) + (not bad.rows)
    refused = parsed.refused.get("air_temperature", np.zeros(len(parsed.code), bool))
    assert refused.sum() == bool(also_bad)
    assert set(parsed.values["air_temperature"][~refused].tolist()) == {5.68}


@pytest.mark.parametrize(
    "data",
    [
        GOOD.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + GOOD,
        GOOD.rstrip(b"\n"),
        b"\n  \n" + GOOD + b"\n",
        b" " + GOOD.replace(b" ", b"   ").replace(b"\n", b"  \n"),
        GOOD.replace(b" ", b"\t"),
        GOOD.replace(b"5.680", b"+5.68"),
        GOOD.replace(b"NaN", b"nan"),
    ],
)
def test_harmless_variations_are_read_alike(data: bytes) -> None:
    parsed, plain = parse(data), parse(GOOD)
    assert parsed.bad == ()
    assert parsed.time_ns.tolist() == plain.time_ns.tolist()
    for name, values in plain.values.items():
        np.testing.assert_array_equal(parsed.values[name], values)


def test_no_data_values_are_missing_however_they_are_written() -> None:
    options = ReadOptions(nodata=("-999", "NA"))
    data = GOOD.replace(b"5.680", b"-999.000").replace(b"5.475", b"NA").replace(b"NaN", b"-999")
    parsed = parse(data, options)
    assert parsed.bad == ()
    missing = [name for name, values in parsed.values.items() if np.isnan(values[0])]
    assert missing == ["air_temperature", "surface_temperature", "solar_radiation", "wind_speed"]


def test_only_wanted_columns_are_read(make_text: Callable[..., bytes]) -> None:
    parsed = parse(make_text("1", 5), ReadOptions(columns=("wind_speed",)))
    assert list(parsed.values) == ["wind_speed"]


def test_a_file_of_bad_rows_alone_has_no_rows() -> None:
    parsed = parse(b"x\n" * 1000)
    assert (len(parsed.code), len(parsed.bad), parsed.lines, parsed.stations) == (0, 1000, 1000, ())
