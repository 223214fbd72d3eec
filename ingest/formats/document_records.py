"""Conversion of document records (messages, observations, …) to long rows of one reading each."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ingest.formats import timestamps
from ingest.formats.base import LARGEST, TOO_LARGE, VALUE, BadRow, Parsed, ReadOptions, TextForm, Unreadable
from ingest.formats.csv_lines import BAD_NUMBER, Lines, compact_codes, numeric_texts, show
from ingest.formats.csv_sniffer import BYTE_ORDER_MARK

BAD_JSON: Final = "bad JSON"
DOCUMENT_MOST: Final = 64 << 20
"""Maximum size of a document that must be in memory as a whole [bytes]."""


@dataclass
class DocumentRecord:
    """Content of one message or observation; times as text or as an epoch."""

    line: int
    """Number of the line or record, from 1."""
    text: bytes = b""
    """Beginning of the record, for messages to the user."""
    station: str = ""
    time: object = None
    arrival: object = None
    counter: int = -1
    values: dict[str, float] = field(default_factory=dict)
    """NaN: reported without a value."""
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """Unreadable columns, and the reasons."""
    refused: str = ""
    """Reason why the whole record is unreadable."""


def build_parsed(
    records: Iterable[DocumentRecord], options: ReadOptions, *, lines: int, retimed: bool = True
) -> Parsed:
    """Convert records to readings, and refuse invalid ones.

    A message repeated within `AGAIN_NS` with the same counter, values and station gets the time of the first one. With
    `retimed` False this is left to the caller, which knows more than one piece.
    """
    records = list(records)
    frame = _frame(records)
    frame.refuse([row for row, record in enumerate(records) if record.refused], "", lambda row: records[row].refused)
    time_ns = _instants(records, [record.time for record in records], frame, options, "time")
    # An unreadable arrival is treated as unknown.
    quiet = _frame(records)
    arrival_ns = _instants(records, [record.arrival or 0 for record in records], quiet, options, "arrival")
    arrival_ns[~quiet.is_sound] = 0
    if retimed:
        # With equal times, the archive recognises the readings as duplicates.
        _retimed(records, time_ns, frame)
    wanted = None if options.columns is None else set(options.columns)
    unmapped: set[str] = set()
    rows: list[tuple[int, str, float]] = []
    bad = list(frame.bad)
    for row in np.flatnonzero(frame.is_sound).tolist():
        record = records[row]
        for name, value in record.values.items():
            if wanted is not None and name not in wanted:
                unmapped.add(name)
            else:
                rows.append((row, name, value))
        if record.wrong:
            shown = show(record.text)
            problems = [pair for pair in record.wrong if wanted is None or pair[0] in wanted]
            bad += [BadRow(record.line, column, shown, reason) for column, reason in problems]
    of = np.array([row for row, _, _ in rows], np.int64)
    names = tuple(dict.fromkeys(name for _, name, _ in rows))
    number = {name: index for index, name in enumerate(names)}
    labels = tuple(dict.fromkeys(record.station for record in records))
    station_index = {name: index for index, name in enumerate(labels)}
    code = np.array([station_index[records[row].station] for row, _, _ in rows], np.int32)
    stations, code = compact_codes(labels, code)
    return Parsed(
        stations,
        code,
        time_ns[of],
        {VALUE: np.array([value for _, _, value in rows], np.float64)},
        tuple(sorted(bad, key=lambda row: row.line)),
        lines,
        names,
        np.array([number[name] for _, name, _ in rows], np.int32),
        tuple(sorted(unmapped)),
        arrival_ns[of],
        np.array([records[row].counter for row, _, _ in rows], np.int64),
        line=np.array([records[row].line for row, _, _ in rows], np.int64),
    )


AGAIN_NS: Final = 300 * 10**9
"""Maximum time after which a device repeats a message [ns]."""


def _retimed(records: list[DocumentRecord], time_ns: "np.ndarray[Any, np.dtype[np.int64]]", frame: Lines) -> None:
    first: dict[tuple[object, ...], int] = {}
    for row in np.flatnonzero(frame.is_sound).tolist():
        record = records[row]
        if record.counter >= 0:
            key = (record.station, record.counter, repr(sorted(record.values.items())))
            before = first.setdefault(key, int(time_ns[row]))
            if abs(int(time_ns[row]) - before) <= AGAIN_NS:
                time_ns[row] = before


def _frame(records: list[DocumentRecord]) -> Lines:
    """Wrap the records as lines that can be refused."""
    stops = np.cumsum([len(record.text) for record in records], dtype=np.int64)
    starts = np.concatenate([[0], stops[:-1]]).astype(np.int64) if records else stops
    number = np.array([record.line for record in records], np.int64)
    source = b"".join(record.text for record in records)
    return Lines(source, b"", starts, stops, number, len(records), np.ones(len(records), bool))


def _instants(
    records: list[DocumentRecord], given: list[object], frame: Lines, options: ReadOptions, column: str
) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Convert times, given as ISO 8601 or as an epoch, to instants [ns]; refuse invalid ones."""
    instants_ns = np.zeros(len(records), np.int64)
    texts: list[str] = []
    for row, time in enumerate(given):
        text = ""
        if isinstance(time, str) and not time.strip().lstrip("-").replace(".", "", 1).isdigit():
            text = time
        else:
            instants_ns[row] = _epoch_ns(time) if frame.is_sound[row] else 0
        texts.append(text)
    known = np.array([not text for text in texts], bool)
    nothing = np.array([time is None or time == "" for time in given], bool)
    frame.refuse(nothing, column, f"{timestamps.BAD_TIME}: there is none")
    frame.refuse(known & (instants_ns == _NO_TIME), column, f"{timestamps.BAD_TIME}: no epoch")
    outside = known & ((instants_ns < timestamps.EARLIEST_NS) | (instants_ns >= timestamps.LATEST_NS))
    frame.refuse(outside, column, timestamps.OUT_OF_RANGE)
    if not known.all():
        # Texts keep the positions of their records, so that refusals apply to the right record.
        whole = pa.array([text or "1970-01-01T00:00:00Z" for text in texts], pa.string())
        parsed_ns = timestamps.from_text(whole, replace(options, time_column=column, text=TextForm()), frame)
        instants_ns = np.where(known, instants_ns, parsed_ns)
    return np.where(frame.is_sound, instants_ns, 0)


_NO_TIME: Final = np.iinfo(np.int64).min


def _epoch_ns(time: object) -> int:
    """Convert an epoch in s, ms, us or ns, inferred from its magnitude, to an instant [ns]."""
    if isinstance(time, bool) or not isinstance(time, int | float | str):
        return _NO_TIME
    try:
        number = float(time)
        unit = timestamps.epoch_unit_ns(abs(number))
        # Rounding to microseconds restores the decimals that a float64 of seconds holds.
        whole = int(time) * unit if isinstance(time, int) else round(number * unit / 1000) * 1000
    except (ValueError, OverflowError):
        return _NO_TIME
    return whole if abs(whole) < 2**62 else _NO_TIME


def number_of(value: object, nodata: tuple[str, ...]) -> float | str | None:
    """Return a JSON value as a number, an error text, or None; NaN for a missing value.

    None means that the value is not a reading.
    """
    if value is None:
        return float("nan")
    # By exact type, because a bool is an int, too.
    if type(value) in (int, float) and abs(value) < LARGEST:  # type: ignore[arg-type]
        return float("nan") if value in numeric_texts(nodata) else float(value)  # type: ignore[arg-type]
    if isinstance(value, bool) or isinstance(value, list | Mapping):
        return None
    text = str(value).strip()
    if isinstance(value, str) and (text in nodata or text.lower() in ("nan", "")):
        return float("nan")
    try:
        number = float(text)
    except ValueError:
        return f"{BAD_NUMBER}: {text[:40]!r}"
    if np.isinf(number):
        return f"{BAD_NUMBER}: infinite"
    if text in nodata or number in numeric_texts(nodata):
        return float("nan")
    return TOO_LARGE if abs(number) > LARGEST else number


def flatten(content: Mapping[str, Any], above: str = "", depth: int = 8) -> Iterator[tuple[str, object]]:
    """Yield the leaves of a nested object, named by their path: "air.temperature", "levels.0"."""
    for key, value in content.items():
        name = f"{above}{key}"
        inner = dict(enumerate(value)) if isinstance(value, list) else value
        if isinstance(inner, Mapping) and depth:
            yield from flatten({str(k): v for k, v in inner.items()}, f"{name}.", depth - 1)
        else:
            yield name, value


def loads(text: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Parse JSON strictly.

    Raises
    ------
    ValueError
        It is not JSON, is nested too deeply, or has an unpaired surrogate, which could not be stored as text.
    """
    try:
        # Decoded strictly here, because json.loads accepts unpaired surrogates in bytes.
        plain = text.decode(json.detect_encoding(text))
        content = json.loads(plain)
        # Only texts with escaped surrogates are encoded again.
        if _SURROGATE.search(plain):
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"half a character: {error.object[error.start : error.start + 1]!r}") from error
    return content


def read_document(path: Path, advice: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the content of a JSON document.

    Raises
    ------
    Unreadable
        It is not JSON, or larger than `DOCUMENT_MOST`; the message ends with the advice.
    """
    size = path.stat().st_size
    if size > DOCUMENT_MOST:
        raise Unreadable(f"too large: {size} bytes in one JSON document, of at most {DOCUMENT_MOST}; {advice}")
    try:
        return loads(path.read_bytes().removeprefix(BYTE_ORDER_MARK))
    except ValueError as error:
        raise Unreadable(f"{BAD_JSON}: {error}") from error


_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def excerpt_of(item: object) -> bytes:
    """Return the beginning of a parsed item as JSON, for messages to the user."""
    try:
        text = json.dumps(item, default=str)
    except RecursionError:
        text = "nested too deeply"
    return show(text[:1000].encode()).encode()
