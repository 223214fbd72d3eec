"""Plain CSV: headers, stations, times in zones, quotes."""

import numpy as np
import pytest

from hypergrid.core.times import parse_instant
from ingest.formats import FORMATS, Parsed, ReadOptions, Unreadable
from ingest.formats.base import TextForm

FORMAT = FORMATS["csv"]


def parse(data: bytes, options: ReadOptions | None = None) -> Parsed:
    layout = FORMAT.layout(data, "pass-7.csv", options or ReadOptions())
    return FORMAT.parse(data[layout.data_start :], layout, last=True)


def test_rows_have_stations_instants_and_values() -> None:
    parsed = parse(b"station,time,a,b\n2,2007-10-01T00:00:00Z,1.5,\n1,2007-10-01T00:00:00.25Z,NaN,-2e1\n")
    assert [parsed.stations[code] for code in parsed.code] == ["2", "1"]
    assert parsed.time_ns.tolist() == [1191196800 * 10**9, 1191196800 * 10**9 + 250_000_000]
    np.testing.assert_array_equal(parsed.values["a"], [1.5, np.nan])
    np.testing.assert_array_equal(parsed.values["b"], [np.nan, -20.0])


def test_without_a_station_column_the_file_names_the_station() -> None:
    assert parse(b"time,a\n2007-10-01,1\n").stations == ("pass-7",)


@pytest.mark.parametrize("layout", ["wide", "long", "across"])
def test_arrivals_are_read_from_their_column(layout: str) -> None:
    rows = {
        "wide": b"time,station,T,came\n2007-10-01,1,1.5,01.10.2007 00:00:02.0000017\n2007-10-02,1,2,\n",
        "long": b"time,parameter,value,came\n2007-10-01,T,1.5,01.10.2007 00:00:02.0000017\n2007-10-02,T,2,later\n",
        "across": b"time,A,B,came\n2007-10-01,1.5,,01.10.2007 00:00:02.0000017\n2007-10-02,2,3,soon\n",
    }[layout]
    form = TextForm(arrival_column="came", arrival_format="%d.%m.%Y %H:%M:%S.%f", across="T" * (layout == "across"))
    parsed = parse(rows, ReadOptions(timezone="+02:00", text=form))
    # Whole microseconds; one that cannot be read is unknown and costs no reading.
    arrived_ns = parse_instant("2007-09-30T22:00:02.000001Z")
    assert parsed.arrival_ns is not None
    assert sorted(set(parsed.arrival_ns.tolist())) == [0, arrived_ns]
    assert (not parsed.bad, set(parsed.values)) == (True, {"T"} if layout == "wide" else {""})
    assert sum(np.isfinite(values).sum() for values in parsed.values.values()) == (3 if layout == "across" else 2)


def test_the_format_of_arrivals_is_inferred() -> None:
    text = b"time,T,came\n01.02.2007 00:00,1.5,1170288002500\n13.02.2007 00:00,2,1171324802500\n"
    parsed = parse(text, ReadOptions(text=TextForm(arrival_column="came")))
    assert parsed.arrival_ns is not None
    assert (parsed.arrival_ns - parsed.time_ns).tolist() == [2_500_000_000] * 2
    # Of ambiguous dates, arrivals have the form of the times.
    text = b"time,T,came\n2007-02-01,1.5,01/02/2007 00:00\n2007-02-02,2,02/02/2007 00:00\n"
    with pytest.raises(Unreadable, match="set arrival_format"):
        parse(text, ReadOptions(text=TextForm(arrival_column="came")))


@pytest.mark.parametrize(
    ("text", "zone", "instant"),
    [
        ("2007-10-01T12:00:00Z", "Europe/Zurich", "2007-10-01T12:00Z"),
        ("2007-10-01 12:00:00+02:00", "UTC", "2007-10-01T10:00Z"),
        ("2007-10-01T12:00", "UTC", "2007-10-01T12:00Z"),
        ("2007-10-01", "UTC", "2007-10-01"),
        # summer and winter
        ("2007-10-01 12:00:00", "Europe/Zurich", "2007-10-01T10:00Z"),
        ("2007-12-01 12:00:00", "Europe/Zurich", "2007-12-01T11:00Z"),
        ("2007-10-01 12:00:00.5", "+02:00", "2007-10-01T10:00:00.5Z"),
        ("2007-10-28 02:30:00", "+02:00", "2007-10-28T00:30Z"),
        # the end of a day
        ("2007-10-01T24:00", "UTC", "2007-10-02"),
        ("2007-12-31 24:00:00", "Europe/Zurich", "2007-12-31T23:00Z"),
        ("2008-02-28T24:00:00.0Z", "Europe/Zurich", "2008-02-29"),
        ("2007-10-01 24:00:00+02:00", "UTC", "2007-10-01T22:00Z"),
        # the day before the clock jumps, from 02:00 to 03:00
        ("2007-03-24 24:00", "Europe/Zurich", "2007-03-24T23:00Z"),
    ],
)
def test_times_are_read_in_their_zone(text: str, zone: str, instant: str) -> None:
    parsed = parse(f"time,a\n{text},1\n".encode(), ReadOptions(timezone=zone))
    assert parsed.bad == ()
    assert parsed.time_ns.tolist() == [parse_instant(instant)]


@pytest.mark.parametrize(
    ("row", "zone", "column", "reason"),
    [
        # the clock jumps from 02:00 to 03:00
        ("2007-03-25 02:30:00,1", "Europe/Zurich", "time", "local time that does not exist: in Europe/Zurich"),
        # and from 03:00 back to 02:00
        ("2007-10-28 02:30:00,1", "Europe/Zurich", "time", "local time that is ambiguous: in Europe/Zurich"),
        ("2007-02-30T00:00:00Z,1", "UTC", "time", "impossible date: '2007-02-30T00:00:00Z'"),
        ("2007-02-10 25:00,1", "UTC", "time", "impossible date: '2007-02-10 25:00'"),
        ("2007-02-10 24:01,1", "UTC", "time", "impossible date: '2007-02-10 24:01'"),
        ("2007-02-30 24:00,1", "UTC", "time", "impossible date: '2007-02-30 24:00'"),
        ("2260-12-31 24:00,1", "UTC", "time", "time out of range: an archive keeps 1900 to 2260"),
        ("2007-10-01,-1.7e308", "UTC", "a", "bad number: beyond 1e+300, above which no sum is finite"),
        ("1899-12-31T23:59:59Z,1", "UTC", "time", "time out of range: an archive keeps 1900 to 2260"),
        ("2261-01-01T00:00:00Z,1", "UTC", "time", "time out of range: an archive keeps 1900 to 2260"),
        ("0001-01-01T00:00:00Z,1", "UTC", "time", "time out of range: an archive keeps 1900 to 2260"),
        ("yesterday,1", "UTC", "time", "bad time: 'yesterday' is not ISO 8601"),
        (",1", "UTC", "time", "bad time: '' is not ISO 8601"),
        ("2007-10-01,warm", "UTC", "a", "bad number: 'warm' in a"),
        ("2007-10-01,-inf", "UTC", "a", "bad number: infinite"),
        ("2007-10-01", "UTC", "", "wrong number of fields: 2 needed, 1 found"),
        ('2007-10-01,"1', "UTC", "", "wrong number of fields: a quote that is not closed on its line"),
    ],
)
def test_a_bad_row_is_told_with_line_and_reason(row: str, zone: str, column: str, reason: str) -> None:
    data = f"time,a\n2007-10-01T00:00:00,1\n{row}\n2007-10-02T00:00:00,2\n".encode()
    parsed = parse(data, ReadOptions(timezone=zone))
    assert [(bad.line, bad.column, bad.text, bad.reason) for bad in parsed.bad] == [(2, column, row, reason)]
    assert parsed.values["a"].tolist() == [1.0, 2.0]


def test_quotes_hide_delimiters() -> None:
    parsed = parse(b'time,note,a\r\n2007-10-01,"x, y",1\r\n2007-10-02,"a ""b""",2\r\n', ReadOptions(columns=("a",)))
    assert parsed.bad == ()
    assert parsed.values["a"].tolist() == [1.0, 2.0]


def test_columns_of_text_are_no_readings() -> None:
    layout = FORMAT.layout(b"time,note,a,b\n2007-10-01,fine,1,\n", "x.csv", ReadOptions())
    assert (layout.columns, layout.ignored) == (("a", "b"), ("note",))


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"a,b\n1,2\n", "no header: a column 'time'"),
        (b"time,a,a\n", "column named twice: a"),
        (b"time,\x81\x01\n", "invalid UTF-8"),
    ],
)
def test_a_file_without_a_usable_header_is_unreadable(head: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        FORMAT.layout(head, "x.csv", ReadOptions())


def test_an_empty_station_is_refused() -> None:
    parsed = parse(b"station,time,a\n,2007-10-01,1\n1,2007-10-01,1\n")
    assert parsed.stations == ("1",)
    assert [bad.reason for bad in parsed.bad] == ["no station: the column station is empty"]
