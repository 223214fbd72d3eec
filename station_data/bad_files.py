"""Defective input files, drawn from a table of their expected outcomes.

``python -m station_data.bad_files OUT`` writes them all, with their deployment file. Small ones are kept in
``station_data/faults``; nothing about them is random.
"""

import argparse
import gzip
import io
import struct
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SMALL_BYTES = 20_000
"""Size limit of the files kept in the repository [bytes]."""
HEADER = b"station,time,air_temperature,relative_humidity\n"
DEPLOYMENT = """# Written by station_data.bad_files.
[network]
name = "faults"
slice_s = 60

[[feed]]
name = "sensorscope"
files = "*.txt"
format = "sensorscope"

[[feed]]
name = "messages"
files = "*.jsonl"
format = "messages"

[[feed]]
name = "csv"
files = "*"
format = "csv"
nodata = ["NaN", "NA"]

[[station]]
id = "A"
# A position that is none must not stand in the way of the readings.
lon = nan
lat = nan
elevation_m = nan
"""


@dataclass(frozen=True)
class BadFile:
    """A defective file, with the expected outcome of its ingestion."""

    name: str
    content: Callable[[], bytes]
    rows: int
    rejects: Mapping[str, int] = field(default_factory=dict)
    """Rejects by kind of reason; a bad number costs its cell, not its row."""
    superseded: int = 0
    duplicates: int = 0
    stations: tuple[str, ...] = ("A",)


def row(minute: int, temperature: str = "1.5", *, station: str = "A", humidity: str = "80") -> bytes:
    return f"{station},2007-10-01T00:{minute:02d}:00Z,{temperature},{humidity}\n".encode()


def at(time: str) -> bytes:
    return f"A,{time},1.5,80\n".encode()


GOOD = HEADER + row(0) + row(1) + row(2)


def _zip(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in members.items():
            # ZipInfo has a fixed date, so that the bytes are reproducible.
            packed.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _patched(data: bytes, local: tuple[int, bytes], central: tuple[int, bytes]) -> bytes:
    """Patch the local and the central header of a one-member zip file at given offsets."""
    changed, start = bytearray(data), data.index(b"PK\x01\x02")
    changed[local[0] : local[0] + len(local[1])] = local[1]
    changed[start + central[0] : start + central[0] + len(central[1])] = central[1]
    return bytes(changed)


def _declaring(size: int) -> bytes:
    """Make a zip file whose member declares a wrong size."""
    return _patched(_zip({"x.csv": GOOD}), (22, struct.pack("<I", size)), (24, struct.pack("<I", size)))


def _encrypted() -> bytes:
    return _patched(_zip({"x.csv": GOOD}), (6, b"\x01\x00"), (8, b"\x01\x00"))


def _bomb() -> bytes:
    return HEADER + b"\n" * (80 << 20)


def _gzip(data: bytes) -> bytes:
    # Without a timestamp, so that the bytes are reproducible.
    return gzip.compress(data, mtime=0)


def _columns(count: int) -> bytes:
    names = ",".join(f"sensor_number_{number:05d}" for number in range(count))
    # Most columns hold remarks, as each variable costs the archive a folder.
    cells = ",".join(str(number) if number % 1000 == 999 else "ok" for number in range(count))
    return f"time,{names}\n2007-10-01T00:00Z,{cells}\n2007-10-01T00:01Z,{cells}\n".encode()


def _late_nul() -> bytes:
    lines = [row(n % 60) for n in range(300)]
    lines[290] = row(50, "1\0.5")
    return HEADER + b"".join(lines)


def sensorscope(second: int) -> bytes:
    fields = b"4 2007 09 20 02 00 0%d 119024640%d 5.680 5.475 NaN 86.602 26.765 -8.595 0.000 NaN 117.503\n"
    return fields % (second, second)


def message(station: bytes = b"A", time: bytes = b"2007-10-01T00:00:00Z", name: bytes = b"T") -> bytes:
    return b'{"station": "%s", "time": "%s", "%s": "1.5"}\n' % (station, time, name)


HALVES = (rb"\ud800", rb"\uDFFF\u0041", b"\xed\xa0\x80")
"""Texts with half a character: a surrogate without its other half."""


def _b(data: bytes) -> Callable[[], bytes]:
    return lambda: data


BAD_FILES: tuple[BadFile, ...] = (
    # empty, or not a table
    BadFile("empty.csv", _b(b""), 0, {"empty file": 1}, stations=()),
    BadFile("blank_lines.csv", _b(b"\n  \n\r\n"), 0, {"empty file": 1}, stations=()),
    BadFile("header_only.csv", _b(HEADER), 0, stations=()),
    BadFile("header_only_unended.csv", _b(HEADER.rstrip()), 0, stations=()),
    BadFile("no_header.csv", _b(row(0) + row(1)), 0, {"no header": 1}, stations=()),
    BadFile("cut_header.csv", _b(b"station,ti"), 0, {"no header": 1}, stations=()),
    BadFile("error_page.csv", _b(b"<!DOCTYPE html>\n<html><body>502 Bad Gateway, sorry\n"), 0, {"no header": 1},
            stations=()),
    BadFile("binary.csv", _b(b"\x7fELF\x02\x01\x01\0\0\0" + bytes(range(256)) * 8), 0, {"binary": 1}, stations=()),
    BadFile("control_in_header.csv", _b(GOOD.replace(b"air_", b"air\x07")), 0, {"binary": 1}, stations=()),
    BadFile("duplicate_columns.csv", _b(GOOD.replace(b"relative_humidity", b"air_temperature")), 0,
            {"column named twice": 1}, stations=()),
    BadFile("ambiguous_dates.csv", _b(b"date,T\n01/02/2007,1\n03/04/2007,2\n"), 0, {"ambiguous dates": 1}, stations=()),
    # truncated or concatenated
    BadFile("cut_row.csv", _b(GOOD + row(3)[:12]), 3, {"cut off": 1}),
    BadFile("cut_in_letter.csv", _b(GOOD + "Zürich,2007-10-01T00:05Z,1,2\nZü".encode()[:-1]), 4, {"invalid UTF-8": 1},
            stations=("A", "Zürich")),
    BadFile("header_again.csv", _b(GOOD + HEADER + row(3)), 4),
    BadFile("other_header_again.csv", _b(GOOD + b"station,time,wind_speed\n" + row(3)), 4,
            {"wrong number of fields": 1}),
    BadFile("short_row.csv", _b(GOOD + b"A,2007-10-01T00:03:00Z,1.5\n" + row(4)), 4, {"wrong number of fields": 1}),
    BadFile("long_row.csv", _b(GOOD + row(3, "1,5")), 3, {"wrong number of fields": 1}),
    BadFile("open_quote.csv", _b(GOOD + row(3, '"1.5') + row(4)), 4, {"wrong number of fields": 1}),
    BadFile("newline_in_quotes.csv", _b(GOOD + b'"A\nB",2007-10-01T00:03Z,1,2\n' + row(4)), 4,
            {"wrong number of fields": 2}),
    # times
    BadFile("bad_date.csv", _b(GOOD + at("2007-02-30T00:00Z")), 3, {"impossible date": 1}),
    BadFile("bad_hour.csv", _b(GOOD + at("2007-02-03T25:00Z")), 3, {"impossible date": 1}),
    BadFile("bad_time.csv", _b(GOOD + at("yesterday") + at("")), 3, {"bad time": 2}),
    BadFile("year_0001.csv", _b(GOOD + at("0001-01-01T00:00Z")), 3, {"time out of range": 1}),
    BadFile("year_9999.csv", _b(GOOD + at("9999-12-31T23:59Z")), 3, {"time out of range": 1}),
    BadFile("year_1970.csv", _b(GOOD + at("1970-01-01T00:00Z")), 4),
    BadFile("future.csv", _b(GOOD + at("2199-01-01T00:00Z")), 4),
    BadFile("clock_back.csv", _b(GOOD + at("2007-09-30T23:59Z") + row(3)), 5),
    BadFile("reversed.csv", _b(HEADER + row(2) + row(1) + row(0)), 3),
    BadFile("mixed_times.csv", _b(GOOD + at("2007-10-01 02:03:00+02:00") + at("20071001T000400Z")), 4, {"bad time": 1}),
    # repeated rows
    BadFile("repeated_row.csv", _b(GOOD + row(2)), 4, duplicates=2),
    BadFile("repeated_time.csv", _b(GOOD + row(2, "9.5")), 4, superseded=1, duplicates=1),
    # numbers
    BadFile("bad_number.csv", _b(GOOD + row(3, "warm") + row(4, "--") + row(5, "1.2.3")), 6, {"bad number": 3}),
    BadFile("infinite.csv", _b(GOOD + row(3, "inf") + row(4, "-Infinity")), 5, {"bad number": 2}),
    BadFile("huge_number.csv", _b(GOOD + row(3, "1e400") + row(4, "9" * 400)), 5, {"bad number": 2}),
    BadFile("tiny_number.csv", _b(GOOD + row(3, "1e-400")), 4),
    BadFile("hexadecimal.csv", _b(GOOD + row(3, "0x10")), 4, {"bad number": 1}),
    BadFile("underscores.csv", _b(GOOD + row(3, "1_000")), 4, {"bad number": 1}),
    BadFile("thousands.csv", _b(GOOD + row(3, '"1,234.5"')), 4, {"bad number": 1}),
    BadFile("other_digits.csv", _b(GOOD + row(3, "٣.٥") + row(4, "１.５")), 5, {"bad number": 2}),
    BadFile("negative_zero.csv", _b(GOOD + row(3, "-0.0") + row(4, "+0")), 5),
    BadFile("nan.csv", _b(GOOD + row(3, "NaN") + row(4, "-nan") + row(5, "") + row(6, "NA")), 7),
    BadFile("padded.csv", _b(GOOD + row(3, " 1.5 ")), 4),
    BadFile("decimal_comma.csv", _b(GOOD + row(3, '"1,5"')), 4, {"bad number": 1}),
    BadFile("wrong_unit.csv", _b(b"station,time,variable,value,unit\n" + b"".join(
        f"A,2007-10-01T00:0{n}Z,temp,{n},{unit}\n".encode()
        for n, unit in enumerate(("degC", "degF", "kPa", "elephants")))),
        2, {"wrong unit": 2}),
    # stations
    BadFile("no_station.csv", _b(GOOD + row(3, station="") + row(4, station="   ")), 3, {"no station": 2}),
    BadFile("quotes_in_station.csv", _b(GOOD + row(3, station='"A ""b"", \'c\'; DROP TABLE stations"')), 4,
            stations=("A", 'A "b", \'c\'; DROP TABLE stations')),
    BadFile("path_in_station.csv", _b(GOOD + row(3, station="../../../etc/passwd") + row(4, station="/dev/null")), 5,
            stations=("../../../etc/passwd", "/dev/null", "A")),
    BadFile("lookalike_station.csv", _b(GOOD + row(3, station="А")), 4, stations=("A", "А")),
    BadFile("formula.csv", _b(GOOD + row(3, station="=cmd|' /C calc'!A0") + row(4, "=1+1") + row(5, "@SUM(A1)")), 6,
            {"bad number": 2}, stations=("=cmd|' /C calc'!A0", "A")),
    BadFile("long_station.csv", _b(GOOD + row(3, station="x" * 5000)), 4, stations=("A", "x" * 5000)),
    # bytes
    BadFile("nul_later.csv", _late_nul, 299, {"binary": 1}, superseded=0, duplicates=2 * 239),
    BadFile("mixed_line_ends.csv", _b(HEADER.replace(b"\n", b"\r\n") + row(0) + row(1).replace(b"\n", b"\r") + row(2)),
            3),
    BadFile("returns_alone.csv", _b(GOOD.replace(b"\n", b"\r")), 3),
    BadFile("byte_order_mark.csv", _b(b"\xef\xbb\xbf" + GOOD), 3),
    BadFile("utf_16.csv", _b(GOOD.decode().encode("utf-16")), 3),
    BadFile("utf_16_unmarked.csv", _b(GOOD.decode().encode("utf-16-be")), 3),
    BadFile("latin_1.csv", _b("station,time,Höhe [m]\nZürich,2007-10-01,1\nGenève,2007-10-02,2\n".encode("latin-1")), 2,
            stations=("Genève", "Zürich")),
    BadFile("stray_byte.csv", _b(GOOD + row(3).replace(b"A", b"\xff")), 3, {"invalid UTF-8": 1}),
    # size
    BadFile("many_columns.csv", lambda: _columns(5000), 2, stations=("many_columns",)),
    BadFile("endless_line.csv", lambda: GOOD + b"x" * (50 << 20), 0, {"binary": 1}, stations=()),
    # compressed
    BadFile("sound.csv.gz", lambda: _gzip(GOOD), 3),
    BadFile("bomb.csv.gz", lambda: _gzip(_bomb()), 0, {"packed too densely": 1}, stations=()),
    BadFile("cut.csv.gz", lambda: _gzip(b"".join(row(n) for n in range(60)))[:40], 0, {"damaged archive": 1},
            stations=()),
    BadFile("no_gzip.csv.gz", _b(GOOD), 0, {"damaged archive": 1}, stations=()),
    BadFile("bomb.zip", lambda: _zip({"x.csv": _bomb()}), 0, {"packed too densely": 1}, stations=()),
    BadFile("declares_much.zip", lambda: _declaring(0xFFFFFF00), 3),
    BadFile("declares_little.zip", lambda: _declaring(20), 0, {"damaged archive": 1}, stations=()),
    BadFile("encrypted.zip", _encrypted, 0, {"encrypted": 1}, stations=()),
    BadFile("no_zip.zip", _b(GOOD), 0, {"damaged archive": 1}, stations=()),
    BadFile("zip_in_zip.zip", lambda: _zip({"inner.zip": _zip({"x.csv": GOOD})}), 3),
    BadFile("path_tricks.zip", lambda: _zip({
        "../../outside.csv": HEADER + row(0), "/absolute.csv": HEADER + row(1), "C:\\windows\\x.csv": HEADER + row(2),
        "a" * 300 + ".csv": HEADER + row(3), "d/\x1b[31mred.csv": HEADER + row(4)}), 5),
    # the other text format
    BadFile("truncated.txt", lambda: sensorscope(1) + sensorscope(2)[:30], 1, {"cut off": 1}, stations=("4",)),
    BadFile("bad_row.txt", lambda: sensorscope(1) + sensorscope(2).replace(b"5.475", b"x"), 2, {"bad number": 1},
            stations=("4",)),
    BadFile("bad_day.txt", lambda: sensorscope(1) + sensorscope(2).replace(b"09 20", b"02 30"), 1,
            {"impossible date": 1}, stations=("4",)),
    BadFile("binary.txt", _b(b"\x89HDF\r\n\x1a\n\0\0\0\0"), 0, {"binary": 1}, stations=()),
    BadFile("empty.txt", _b(b""), 0, {"empty file": 1}, stations=()),
    # messages
    BadFile("half_characters.jsonl", lambda: message() + b"".join(
        message(**{part: half}) for part in ("station", "time", "name") for half in HALVES), 1, {"bad JSON": 9}),
    # file names
    BadFile("=1+1.csv", _b(GOOD), 3),
    BadFile("-rf.csv", _b(GOOD), 3),
    BadFile("it's \"quoted\" $(x).csv", _b(b"time,T\n2007-10-01T00:00Z,1\n"), 1, stations=("it's \"quoted\" $(x)",)),
    BadFile(f"{'n' * 200}.csv", _b(GOOD), 3),
)  # fmt: skip
"""Rows read and rejects of each file, ingested alone with `DEPLOYMENT`."""


def write_all(out: Path, *, most_bytes: int | None = None) -> list[Path]:
    """Write the deployment file and the files, optionally only those up to `most_bytes` [bytes]."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "deployment.toml").write_text(DEPLOYMENT, encoding="utf-8")
    written = []
    for bad in BAD_FILES:
        content = bad.content()
        if most_bytes is None or len(content) <= most_bytes:
            (out / bad.name).write_bytes(content)
            written.append(out / bad.name)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description="Write files that must not get through unnoticed.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--small", action="store_true", help="only those that lie in station_data/faults")
    given = parser.parse_args()
    written = write_all(given.out, most_bytes=SMALL_BYTES if given.small else None)
    sys.stdout.write(f"{given.out}: {len(written)} files\n")


if __name__ == "__main__":
    main()
