"""Any table written in any dialect reads back equal, with nothing declared but what nobody can tell."""

import csv
import io
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.formats import FORMATS, Layout, Parsed, ReadOptions, recognise
from ingest.formats.base import BLANKS, TextForm, Unreadable
from ingest.formats.csv_sniffer import read_head

FORMAT = FORMATS["csv"]
EPOCHS = {"epoch_s": 1, "epoch_ms": 1000}
STAMPS = {
    # columns of the time, and what is written into them
    "iso": (("time",), ("%Y-%m-%dT%H:%M:%SZ",)),
    "blank": (("Timestamp",), ("%Y/%m/%d %H:%M:%S",)),
    "german": (("Datum", "Uhrzeit"), ("%d.%m.%Y", "%H:%M:%S")),
    "short": (("Datum", "Zeit"), ("%d.%m.%y", "%H:%M:%S")),
    "american": (("Date", "Time"), ("%m/%d/%Y", "%I:%M:%S %p")),
    "month": (("date",), ("%d-%b-%Y %H:%M:%S",)),
    "parts": (("year", "month", "day", "hour", "min", "sec"), ("%Y", "%m", "%d", "%H", "%M", "%S")),
    "day of year": (("Year", "DOY", "Hour", "Min", "Sec"), ("%Y", "%j", "%H", "%M", "%S")),
    "compact": (("DateTime",), ("%Y%m%d%H%M%S",)),
    "zoned": (("time",), ("%Y-%m-%d %H:%M:%S+00:00",)),
    "epoch_s": (("epoch",), None),
    "epoch_ms": (("ts",), None),
}
START = datetime(2007, 10, 13, 0, 0, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Dialect:
    delimiter: str
    decimal: str
    stamp: str
    above: tuple[str, ...]
    units: bool
    end: str
    encoding: str
    long: bool


@st.composite
def dialects(draw: st.DrawFn) -> Dialect:
    delimiter = draw(st.sampled_from([",", ";", "\t", "|", BLANKS]))
    decimal = "." if delimiter == "," else draw(st.sampled_from([".", ","]))
    without = ("iso", "german", "parts", "epoch_s", "compact")
    stamps = [name for name in STAMPS if delimiter != BLANKS or name in without]
    long = draw(st.booleans())
    return Dialect(
        delimiter,
        decimal,
        draw(st.sampled_from(stamps)),
        draw(st.sampled_from([(), ("# made by a logger",), ("Logger CR1000, serial 1",), ("",), ("# a", "# b", "")])),
        not long and draw(st.booleans()),
        draw(st.sampled_from(["\n", "\r\n"])),
        draw(st.sampled_from(["utf-8", "utf-8-sig", "cp1252"])),
        long,
    )


def stamp_cells(dialect: Dialect, moment: datetime) -> list[str]:
    _, patterns = STAMPS[dialect.stamp]
    if patterns is None:
        return [str(round(moment.timestamp()) * EPOCHS[dialect.stamp])]
    return [moment.strftime(pattern) for pattern in patterns]


def written(dialect: Dialect, moments: list[datetime], stations: list[str], values: np.ndarray) -> bytes:
    """Write it by Python's own means, a cell after the other."""
    names = ["Tempé" if dialect.encoding == "cp1252" else "Temp", "RH"]

    def number(value: float) -> str:
        return (
            "" if np.isnan(value) and dialect.delimiter != BLANKS else repr(float(value)).replace(".", dialect.decimal)
        )

    head, body = [*STAMPS[dialect.stamp][0]], []
    for row, moment in enumerate(moments):
        cells = stamp_cells(dialect, moment)
        if dialect.long:
            body += [[stations[row], *cells, name, number(values[row, n])] for n, name in enumerate(names)]
        else:
            body.append([stations[row], *cells, *map(number, values[row])])
    head = ["station", *head, *(("variable", "value") if dialect.long else names)]
    rows = [head] + ([["", *[""] * len(STAMPS[dialect.stamp][0]), "degC", "%"]] if dialect.units else []) + body
    out = io.StringIO()
    for line in dialect.above:
        out.write(line + dialect.end)
    if dialect.delimiter == BLANKS:
        for cells in rows if not dialect.units else [rows[0], *rows[2:]]:
            out.write("  ".join(cells) + dialect.end)
    else:
        csv.writer(out, delimiter=dialect.delimiter, lineterminator=dialect.end).writerows(rows)
    return out.getvalue().encode(dialect.encoding)


def read(data: bytes, options: ReadOptions, *, chunks: int = 1) -> tuple[Layout, list[Parsed]]:
    layout = FORMAT.layout(data, "x.csv", options)
    cuts = [layout.data_start]
    for part in range(1, chunks):
        end = data.find(b"\n", layout.data_start + part * (len(data) - layout.data_start) // chunks) + 1
        cuts.append(max(cuts[-1], end or len(data)))
    cuts.append(len(data))
    return layout, [FORMAT.parse(data[a:b], layout, last=b == len(data)) for a, b in pairwise(cuts)]


@settings(max_examples=60, deadline=None)
@given(
    dialect=dialects(),
    seconds=st.lists(st.integers(0, 40 * 86_400), min_size=16, max_size=40, unique=True),
    cells=st.lists(st.floats(-1000, 1000, allow_subnormal=False), min_size=80, max_size=80),
    missing=st.sets(st.integers(4, 79), max_size=20),
    chunks=st.integers(1, 3),
)
def test_a_table_reads_back_equal(
    dialect: Dialect, seconds: list[int], cells: list[float], missing: set[int], chunks: int
) -> None:
    # Days beyond the twelfth, so that months and days can be told apart.
    moments = [START + timedelta(seconds=s) for s in [0, *sorted(seconds)]]
    # Numbers that a station might print, and that look like numbers with a decimal sign.
    values = np.resize(np.round(np.array(cells), 3) + 0.0, (len(moments), 2))
    values[[place // 2 for place in missing if place // 2 < len(values)], 1] = np.nan
    stations = [f"st{row % 3}" for row in range(len(moments))]
    data = written(dialect, moments, stations, values)
    options = ReadOptions(nodata=("nan",))
    assert recognise(data, "x.dat") is not None
    layout, parts = read(data, options, chunks=chunks)
    assert [bad for part in parts for bad in part.bad] == []
    times = np.concatenate([part.time_ns for part in parts])
    names = [part.stations[code] for part in parts for code in part.code]
    wanted = np.array([round(moment.timestamp()) * 10**9 for moment in moments])
    twice = 2 if dialect.long else 1
    np.testing.assert_array_equal(times, np.repeat(wanted, twice))
    assert names == [name for name in stations for _ in range(twice)]
    if dialect.long:
        found = np.concatenate([part.values[""] for part in parts])
        np.testing.assert_array_equal(found, values.ravel())
        told = [part.names[place] for part in parts for place in part.name_code]
        assert told == (["Tempé" if dialect.encoding == "cp1252" else "Temp", "RH"] * len(moments))
    else:
        found = [np.concatenate([part.values[name] for part in parts]) for name in layout.columns]
        np.testing.assert_array_equal(np.column_stack(found), values)
        if dialect.units and dialect.delimiter != BLANKS:
            assert [layout.metadata.columns[name].unit for name in layout.columns] == ["degC", "%"]


@pytest.mark.parametrize(
    ("time_format", "text", "instant"),
    [
        ("%Y %j %H%M", "2007 274 5", "2007-10-01T00:05"),
        ("%Y %j %H%M", "2007 274 1205", "2007-10-01T12:05"),
        ("%Y %j %H%M", "2007 274 2400", "2007-10-02T00:00"),
        ("%y%m%d %H:%M:%S.%f", "071001 12:00:00.25", "2007-10-01T12:00:00.250"),
        ("%d %B %Y %I %p", "1 October 2007 12 am", "2007-10-01T00:00"),
        ("%d %b %Y %H:%M %z", "1 Oct 2007 12:00 +0200", "2007-10-01T10:00"),
        ("%d.%m.%y", "31.12.68", "2068-12-31"),
        ("%d.%m.%y", "31.12.69", "1969-12-31"),
        ("epoch_ms", "1191196800250", "2007-10-01T00:00:00.250"),
        ("epoch_s", "1191196800.125", "2007-10-01T00:00:00.125"),
        ("epoch_s", "-0.5", "1969-12-31T23:59:59.500"),
        ("iso", "2007-10-01 12:00", "2007-10-01T12:00"),
    ],
)
def test_stamps_of_a_declared_form(time_format: str, text: str, instant: str) -> None:
    options = ReadOptions(text=TextForm(time_format=time_format))
    _, (parsed,) = read(f"time,a\n{text},1\n".encode(), options)
    assert parsed.bad == ()
    assert parsed.time_ns.tolist() == [np.datetime64(instant, "ns").astype(int)]


@pytest.mark.parametrize(
    ("time_format", "text", "reason"),
    [
        ("%d.%m.%Y", "2007-10-01", "bad time: '2007-10-01' is not '%d.%m.%Y'"),
        ("%d.%m.%Y", "31.02.2007", "impossible date: '31.02.2007'"),
        ("%Y %j", "2007 366", "impossible date: '2007 366'"),
        ("%d.%m.%Y %H:%M", "01.02.2007 24:01", "impossible date: '01.02.2007 24:01'"),
        ("%d.%m.%Y", "01.01.1899", "time out of range: an archive keeps 1900 to 2260"),
        ("epoch_s", "soon", "bad time: 'soon' is not a number of seconds since 1970"),
        ("epoch_ms", "1e12", "bad time: '1e12' is not a number since 1970"),
    ],
)
def test_stamps_that_are_none_of_the_declared_form(time_format: str, text: str, reason: str) -> None:
    options = ReadOptions(text=TextForm(time_format=time_format))
    _, (parsed,) = read(f"time,a\n{text},1\n".encode(), options)
    assert [bad.reason for bad in parsed.bad] == [reason]


# Europe/Zurich, 28 October 2007: at 03:00 summer time the clock goes back to 02:00.
#   first pass   02:00 02:30 = 00:00Z 00:30Z      second pass  02:00 02:30 = 01:00Z 01:30Z
NIGHT = ["01:30", "02:00", "02:30", "02:00", "02:30", "03:00"]
INSTANTS = ["27T23:30", "28T00:00", "28T00:30", "28T01:00", "28T01:30", "28T02:00"]


def zurich(clocks: list[str], *, stations: str = "A") -> Parsed:
    rows = [f"{station},2007-10-28 {clock},1\n" for clock in clocks for station in stations]
    _, (parsed,) = read(("station,time,a\n" + "".join(rows)).encode(), ReadOptions(timezone="Europe/Zurich"))
    return parsed


@pytest.mark.parametrize(
    ("clocks", "instants"),
    [
        (NIGHT, [i if i.startswith("28") else i for i in INSTANTS]),
        # hourly: the same clock twice
        (["01:00", "02:00", "02:00", "03:00"], ["27T23:00", "28T00:00", "28T01:00", "28T02:00"]),
        # the newest row first
        (NIGHT[::-1], INSTANTS[::-1]),
    ],
)
@pytest.mark.parametrize("stations", ["A", "AB"])
def test_the_order_of_rows_tells_an_hour_that_comes_twice(
    clocks: list[str], instants: list[str], stations: str
) -> None:
    parsed = zurich(clocks, stations=stations)
    assert parsed.bad == ()
    wanted = np.array([np.datetime64(f"2007-10-{i}", "ns") for i in instants]).astype(np.int64)
    np.testing.assert_array_equal(parsed.time_ns, np.repeat(wanted, len(stations)))


@pytest.mark.parametrize(
    "clocks",
    [
        # one pass alone may be either
        ["01:30", "02:00", "02:30", "03:00"],
        # the clock goes back twice
        ["02:00", "02:30", "02:00", "02:30", "02:10"],
    ],
)
def test_an_hour_that_comes_twice_is_refused_where_nothing_tells_which(clocks: list[str]) -> None:
    parsed = zurich(clocks)
    assert {bad.reason for bad in parsed.bad} == {"local time that is ambiguous: in Europe/Zurich"}
    assert len(parsed.bad) == sum("02:00" <= clock < "03:00" for clock in clocks)


def test_a_fixed_offset_knows_no_summer() -> None:
    _, (parsed,) = read(b"time,a\n2007-10-28 02:30,1\n2007-03-25 02:30,1\n", ReadOptions(timezone="+01:00"))
    assert parsed.bad == ()
    wanted = np.array(["2007-10-28T01:30", "2007-03-25T01:30"], "datetime64[ns]").astype(np.int64)
    assert parsed.time_ns.tolist() == wanted.tolist()


def test_what_a_deployment_declares_of_the_form() -> None:
    data = b"skip me\nSite;Moment;Air;Air\n;;temp;hum\n;;degC;%\n! a comment\nA;1 10 2007;1,5;-999,0\n"
    form = TextForm(
        ";", ",", "utf-8", "!", 1, 3, (1, 2), 3, time_columns=("Moment",), time_format="%d %m %Y", station="X"
    )
    layout, (parsed,) = read(data, ReadOptions(nodata=("-999",), text=form))
    assert layout.header == ("Site", "Moment", "Air temp", "Air hum")
    assert layout.metadata.columns["Air temp"].unit == "degC"
    assert (parsed.stations, parsed.bad) == (("X",), ())
    assert parsed.values["Air temp"].tolist() == [1.5]
    assert np.isnan(parsed.values["Air hum"]).all()


def test_no_header_at_all() -> None:
    form = TextForm(names=("time", "id", "T"), time_format="epoch_ms")
    options = ReadOptions(station_column="id", text=form)
    _, (parsed,) = read(b"1163438041250 20 21,21\n1163438041468 10 20,07\n", options)
    assert [parsed.stations[code] for code in parsed.code] == ["20", "10"]
    assert parsed.values["T"].tolist() == [21.21, 20.07]


def test_long_rows_have_units_and_flags() -> None:
    data = (
        b"station,time,parameter,value,unit,quality\n"
        b"A,2007-10-01T00:00Z,TA,50,degF,good\n"
        b"A,2007-10-01T00:00Z,RH,80,%,bad\n"
        b"A,2007-10-01T00:10Z,TA,10,degC,\n"
        b"A,2007-10-01T00:10Z,XX,1,,good\n"
        b"A,2007-10-01T00:20Z,TA,10,kPa,good\n"
        b"A,2007-10-01T00:30Z,TA,10,degC,odd\n"
        b"A,2007-10-01T00:40Z,,10,degC,good\n"
    )
    form = TextForm(
        variable_column="parameter",
        value_column="value",
        unit_column="unit",
        flag_column="quality",
        flags=(("good", 1), ("bad", 4)),
        targets=(("TA", "degC"), ("RH", "%")),
    )
    layout, (parsed,) = read(data, ReadOptions(columns=("TA", "RH"), text=form))
    assert layout.long
    assert parsed.unmapped == ("XX",)
    assert [parsed.names[place] for place in parsed.name_code] == ["TA", "RH", "TA"]
    np.testing.assert_allclose(parsed.values[""], [10.0, 80.0, 10.0])
    assert parsed.flags.tolist() == [1, 4, 2]
    assert [(bad.line, bad.reason.partition(":")[0]) for bad in parsed.bad] == [
        (5, "wrong unit"),
        (6, "unknown flag"),
        (7, "no variable"),
    ]


def test_long_cells_of_unknown_text_are_refused_at_once() -> None:
    text = "<a>\n" + "45.123 7.234 " * 600 + "</posList>\n"
    begun = time.process_time()
    for content in (text, text.replace("<", ",<")):
        with pytest.raises(Unreadable, match="no header"):
            read_head(content.encode(), ReadOptions(()))
    # Of 8 KB in a cell; 20 s if digits are tried in each of their places.
    assert time.process_time() - begun < 2.0
