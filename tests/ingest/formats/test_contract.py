"""What every parser keeps to."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.formats import FORMATS, Format, Parsed, ReadOptions, recognise

CSV = b"station,time,a,b\n" + b"".join(
    f"{n % 3},2007-10-01T00:{n:02d}:00Z,{n}.5,{'' if n % 4 else -n}\n".encode() for n in range(60)
)


ROW = "7 2007 09 20 02 00 07 {} 5.680 5.475 NaN 86.602 26.765 -8.595 {} NaN 117.503\n"
SMET = (
    "SMET 1.1 ASCII\n[HEADER]\nstation_id = FIR2\nlatitude = 46.7\nlongitude = 8.1\naltitude = 2110\nnodata = -999\n"
    "tz = 1\nfields = timestamp TA HS\nunits_multiplier = 1 1 0.01\n[DATA]\n"
) + "".join(f"2008-12-01T00:{n:02d}   26{n % 10}.15   {n if n % 4 else -999}\n" for n in range(60))
TOA5 = (
    '"TOA5","Col","CR1000","1","2","3","4","Ten_Min"\n"TIMESTAMP","RECORD","T_Avg","T_TMx","Rain_Tot"\n'
    '"TS","RN","Deg C","","mm"\n"","","Avg","TMx","Tot"\n'
) + "".join(
    f'"2014-04-11 00:{n:02d}:00",{n},{n}.5,"2014-04-10 17:15:00",{0.2 * n if n % 4 else chr(34) + "NAN" + chr(34)}\n'
    for n in range(60)
)
CLIMAPS = "Epoch,SHT75 / Temperature,10HS / VWC,10HS / VWC [2]\n" + "".join(
    f"{1309737600 + 60 * n},{n}.25,0.4191,{'nan' if n % 4 else 0.25}\n" for n in range(60)
)
TEXTS = {
    "csv": CSV,
    "sensorscope": "".join(ROW.format(1190246407 + 120 * n, n) for n in range(60)).encode(),
    "smet": SMET.encode(),
    "toa5": TOA5.encode(),
    "climaps": CLIMAPS.encode(),
}
LINES = sorted(name for name, form in FORMATS.items() if isinstance(form, Format))
"""Formats of lines; documents have a contract of their own."""
assert set(LINES) == set(TEXTS), "each format of lines needs a text here"


def text_form(name: str) -> Format:
    form = FORMATS[name]
    assert isinstance(form, Format)
    return form


def rows_start(name: str) -> int:
    """Return where rows may be damaged without the header being."""
    return max(0, text_form(name).layout(TEXTS[name], "file.txt", ReadOptions()).data_start - 17)


def parsed_of(name: str, data: bytes, *, cuts: tuple[int, ...] = ()) -> list[Parsed]:
    """Parse in chunks that end at the first newline at or after each cut."""
    layout = text_form(name).layout(data, "file.txt", ReadOptions())
    ends = {data.find(b"\n", cut) + 1 for cut in cuts if cut > layout.data_start} - {0}
    bounds = sorted({layout.data_start, *ends})
    stops = [*bounds[1:], len(data)]
    return [
        text_form(name).parse(data[start:stop], layout, last=stop == len(data))
        for start, stop in zip(bounds, stops, strict=True)
    ]


@pytest.mark.parametrize("name", LINES)
@settings(max_examples=30)
@given(cuts=st.lists(st.integers(30, 3000), max_size=4), broken=st.lists(st.integers(40, 3000), max_size=4))
def test_chunks_give_what_the_whole_gives(name: str, cuts: list[int], broken: list[int]) -> None:
    data = bytearray(TEXTS[name])
    for place in (rows_start(name) + one for one in broken):
        if place < len(data):
            data[place] = ord("!")
    (whole,) = parsed_of(name, bytes(data))
    parts = parsed_of(name, bytes(data), cuts=tuple(cuts))
    assert np.concatenate([part.time_ns for part in parts]).tolist() == whole.time_ns.tolist()
    for column, values in whole.values.items():
        np.testing.assert_array_equal(np.concatenate([part.values[column] for part in parts]), values)
    names = [part.stations[code] for part in parts for code in part.code]
    assert names == [whole.stations[code] for code in whole.code]
    before, bad = 0, []
    for part in parts:
        bad += [(before + row.line, row.reason) for row in part.bad]
        before += part.lines
    assert bad == [(row.line, row.reason) for row in whole.bad]
    assert before == whole.lines


@pytest.mark.parametrize("name", LINES)
@settings(max_examples=80)
@given(
    noise=st.lists(
        st.tuples(st.integers(20, 4000), st.binary(min_size=0, max_size=3), st.integers(0, 3)), min_size=1, max_size=6
    )
)
def test_every_line_is_a_row_or_blank_or_refused(name: str, noise: list[tuple[int, bytes, int]]) -> None:
    data = TEXTS[name]
    for after, inserted, dropped in noise:
        place = rows_start(name) + after
        data = data[:place] + inserted + data[place + dropped :]
    (parsed,) = parsed_of(name, data)
    layout = text_form(name).layout(data, "file.txt", ReadOptions())
    body = data[layout.data_start :].replace(b"\r\n", b"\n")
    if name in ("sensorscope", "smet"):
        body = re.sub(rb"(?m)^ | (?=\r?$)", b"", re.sub(rb"[ \t]+", b" ", body))
    ends = b" " if name in ("sensorscope", "smet") else b",", len(layout.header) - 1
    lines = [part for line in body.split(b"\n") for part in _parted(line, *ends)]
    blank = sum(not line.strip(b" \t" if name in ("sensorscope", "smet") else None) for line in lines[:-1])
    blank += not lines[-1].strip() and bool(lines[-1])
    assert parsed.lines == len(lines) - (not lines[-1])
    assert len(parsed.code) + sum(row.rows for row in parsed.bad) + blank == parsed.lines
    assert all(row.reason and 1 <= row.line <= parsed.lines and len(row.text) <= 200 for row in parsed.bad)
    assert [row.line for row in parsed.bad] == sorted(row.line for row in parsed.bad)
    places = {(row.line, row.column if not row.rows else "") for row in parsed.bad}
    assert len(places) == len(parsed.bad)
    assert len({row.line for row in parsed.bad if row.rows}) == sum(row.rows for row in parsed.bad)
    # Each rejected cell is one of a row that was read.
    assert sum(int(cells.sum()) for cells in parsed.refused.values()) == sum(not row.rows for row in parsed.bad)


def _parted(line: bytes, delimiter: bytes, count: int) -> list[bytes]:
    """Carriage returns end lines where they part whole rows."""
    parts = line.rstrip(b"\r").split(b"\r")
    return parts if all(part.count(delimiter) == count for part in parts) else [line]


def test_a_large_text_is_read_as_numpy_reads_it(make_text: Callable[..., bytes]) -> None:
    data = make_text("3", 3000)
    (parsed,) = parsed_of("sensorscope", data)
    slow = np.array([[float(word) for word in line.split()[8:]] for line in data.splitlines()])
    np.testing.assert_array_equal(np.column_stack(list(parsed.values.values())), slow)


def test_a_format_is_told_by_its_content() -> None:
    assert recognise(TEXTS["sensorscope"], "x") == (
        "sensorscope",
        "17 fields separated by blanks: a station, a date, the epoch of that date, nine numbers",
    )
    # nothing may be recognised where nobody knows it
    assert recognise(b"\x7fELF\x02\x01\x01\x00\x00", "a.out") is None
    assert recognise(b"", "empty") is None
