"""JSON messages, one per line or an array: plain, or from The Things Network and ChirpStack.

A plain message has a station, a time and values: `{"station": "7", "time": "2007-10-01T00:00:00Z", "wind_speed": 4.5}`;
or one value, as `{"station": …, "time": …, "variable": …, "value": …}`. For an uplink, the fields of the decoded
payload are columns (nested ones by their path), the earliest reception at a gateway is the time, that of the server is
the arrival, and the device is the station, or the match of the feed's `station_pattern` in its name. The device's
counter is kept.

Source: The Things Stack v3, data formats; ChirpStack v3 and v4, event types (`up`).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from hypergrid.core.readings import Station
from ingest.formats.base import FORMATS, DocumentFormat, Layout, Parsed, ReadOptions, Unreadable
from ingest.formats.csv_lines import BAD_NUMBER, show
from ingest.formats.document_records import (
    BAD_JSON,
    DocumentRecord,
    build_parsed,
    excerpt_of,
    flatten,
    loads,
    number_of,
    read_document,
)
from ingest.formats.file_metadata import (
    LONG_VALUE,
    LONG_VARIABLE,
    STATION,
    TIME,
    FileMetadata,
    normalise_name,
    station_at,
)

LINE_MOST_BYTES: Final = 1 << 20
"""Maximum length of a message [bytes]."""
_COUNTERS: Final = ("fcnt", "fcntup", "seq", "sequence", "sequencenumber")
_ARRIVALS: Final = ("receivedat", "arrival", "arrivedat", "arrivaltime")
_PLACES: Final = {
    **dict.fromkeys(("lon", "lng", "long", "longitude"), "lon"),
    **dict.fromkeys(("lat", "latitude"), "lat"),
    **dict.fromkeys(("alt", "altitude", "elevation"), "elevation"),
}
_NO_VALUES: Final = "no values: nothing but a station and a time"


def sniff(head: bytes, file: str) -> str | None:
    """Recognise messages by the keys of the first one."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n[")
    # The keys belong to SensorThings.
    if not text.startswith(b"{") or any(word in head for word in (b'"@iot.', b'"phenomenonTime"')):
        return None
    first = text.split(b"\n", 1)[0]
    if b'"end_device_ids"' in text:
        return "the first message has 'end_device_ids' (The Things Network)"
    if b'"deviceInfo"' in text or b'"devEUI"' in text or b'"devEui"' in text:
        return "the first message has a device's EUI (ChirpStack)"
    keys = {normalise_name(key) for key in re.findall(r'"([^"\\]{1,60})"\s*:', first.decode("utf-8", "replace"))}
    if len(keys) < 2:
        keys = {
            normalise_name(key) for key in re.findall(r'"([^"\\]{1,60})"\s*:', text[:2000].decode("utf-8", "replace"))
        }
    return "JSON objects with a time and values" if keys & TIME and len(keys) > 1 else None


def is_lines(path: Path) -> bool:
    """Return whether each line is a message; otherwise the file is one document."""
    with path.open("rb") as stream:
        first = stream.readline(LINE_MOST_BYTES).lstrip(b"\xef\xbb\xbf").strip()
        while not first and (line := stream.readline(LINE_MOST_BYTES)):
            first = line.strip()
        more = stream.readline(LINE_MOST_BYTES)
    if first.startswith(b"["):
        return False
    try:
        loads(first)
    except ValueError:
        # Either the first of several lines is damaged, or an object spans many lines.
        return more.lstrip().startswith(b"{")
    return True


def layout(path: Path, options: ReadOptions) -> Layout:
    """Distinguish lines from a document, and read positions from the first messages.

    Raises
    ------
    Unreadable
        It is a document that is too large or not JSON.
    """
    lines = is_lines(path)
    if lines:
        with path.open("rb") as stream:
            # Only the first megabyte is searched for positions.
            data = stream.read(1 << 20)
        contents = [content for line in data.split(b"\n")[:1000] if (content := _may_be_message(line)) is not None]
    else:
        contents = _document(path)
    places: dict[str, Station] = {}
    for content in contents:
        record, where = read_message(content, options)
        if where is not None and record.station and not record.refused:
            places.setdefault(record.station, station_at(record.station, *where))
    metadata = FileMetadata(
        stations=tuple(places.values()), zone="UTC" if "timezone" not in options.given else options.timezone
    )
    header = (options.station_column, options.time_column)
    return Layout(header, (), (), options, path.stem, 0, 0, metadata, long=True, detail=lines)


def _may_be_message(line: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return loads(line)
    except ValueError:
        return None


def _document(path: Path) -> list[Any]:
    content = read_document(path, "write one message a line")
    return content if isinstance(content, list) else [content]


def cut(path: Path, layout: Layout, chunk_bytes: int) -> list[int]:
    """Return line ends about every `chunk_bytes`; a document is one piece."""
    size = path.stat().st_size
    bounds = [0]
    with path.open("rb") as stream:
        while layout.detail and bounds[-1] + chunk_bytes < size:
            stream.seek(bounds[-1] + chunk_bytes)
            line = stream.readline(LINE_MOST_BYTES)
            if not line.endswith(b"\n") and stream.tell() < size:
                raise Unreadable(
                    f"binary: no end of line within {LINE_MOST_BYTES} bytes from byte {stream.tell() - len(line)}"
                )
            bounds.append(stream.tell())
    return bounds if bounds[-1] == size and len(bounds) > 1 else [*bounds, size]


def parse(path: Path, layout: Layout, start: int, stop: int) -> Parsed:
    """Parse the messages of a piece: whole lines, or the whole document."""
    options = layout.options
    if not layout.detail:
        contents = _document(path)
        records = [read_message(each, options, line, excerpt_of(each))[0] for line, each in enumerate(contents, 1)]
        return build_parsed(records, options, lines=len(contents))
    with path.open("rb") as stream:
        stream.seek(start)
        data = stream.read(stop - start)
    lines = data.split(b"\n")
    lines = lines[:-1] if lines and not lines[-1] else lines
    records = []
    for index, line in enumerate(lines):
        text = line.lstrip(b"\xef\xbb\xbf").strip() if not index else line.strip()
        if not text:
            continue
        shown = show(text).encode()
        try:
            records.append(read_message(loads(text), options, index + 1, shown)[0])
        except ValueError as error:
            records.append(DocumentRecord(index + 1, shown, refused=f"{BAD_JSON}: {str(error)[:100]}"))
    return build_parsed(records, options, lines=len(lines))


def parse_texts(
    texts: Iterable[tuple[int, bytes, str]], options: ReadOptions, *, lines: int
) -> tuple[Parsed, tuple[Station, ...]]:
    """Parse separate messages; return their readings, and the stations whose position they contain.

    Parameters
    ----------
    texts
        Each message with its number, from 1, ascending, and a station to use if it names none; an array holds several
        messages with the same number.
    lines
        The highest number.
    """
    records: list[DocumentRecord] = []
    places: dict[str, Station] = {}
    for number, text, station in texts:
        try:
            content = loads(text.lstrip(b"\xef\xbb\xbf").strip())
        except ValueError as error:
            records.append(DocumentRecord(number, show(text).encode(), refused=f"{BAD_JSON}: {str(error)[:100]}"))
            continue
        for message in content if isinstance(content, list) else [content]:
            shown = show(text).encode() if message is content else excerpt_of(message)
            record, where = read_message(message, options, number, shown)
            if not record.station and station and isinstance(message, Mapping):
                record, where = read_message({**message, options.station_column: station}, options, number, shown)
            records.append(record)
            if where is not None and record.station and not record.refused:
                places[record.station] = station_at(record.station, *where)
    return build_parsed(records, options, lines=lines, retimed=False), tuple(places.values())


def read_message(
    content: object, options: ReadOptions, line: int = 0, text: bytes = b""
) -> tuple[DocumentRecord, tuple[float, float, float] | None]:
    """Return the record of a message, and the device's position [degrees, degrees, m] or None."""
    if not isinstance(content, Mapping):
        return DocumentRecord(line, text, refused="no message: an object is needed"), None
    for wrapper in ("result", "data"):
        # Envelopes of The Things Network's storage and event log.
        inner = content.get(wrapper)
        if isinstance(inner, Mapping) and "end_device_ids" in inner:
            content = inner
    if "end_device_ids" in content:
        record, where = _things_network(content, options)
    elif "deviceInfo" in content or "devEUI" in content or "devEui" in content:
        record, where = _chirpstack(content, options)
    else:
        record, where = _plain_message(content, options)
    record.line, record.text = line, text
    return record, where


def _things_network(
    content: Mapping[str, Any], options: ReadOptions
) -> tuple[DocumentRecord, tuple[float, float, float] | None]:
    ids, uplink = _inner_mapping(content, "end_device_ids"), _inner_mapping(content, "uplink_message")
    received = [gateway.get("time") for gateway in _mappings_in(uplink, "rx_metadata")]
    time = _earliest([*received, _inner_mapping(uplink, "settings").get("time")]) or uplink.get("received_at")
    record = DocumentRecord(
        0,
        station=_station((ids.get("device_id"), ids.get("dev_eui")), options),
        time=time or content.get("received_at"),
        arrival=content.get("received_at") or uplink.get("received_at"),
        # A counter of 0 is omitted in the JSON; an uplink with a port has one.
        counter=_counter(uplink.get("f_cnt", 0 if "f_port" in uplink else None)),
    )
    payload = uplink.get("decoded_payload")
    if not isinstance(payload, Mapping):
        normalised = _mappings_in(uplink, "normalized_payload")
        payload = normalised[0] if normalised else None
    _fill(record, payload, options)
    where = _inner_mapping(_inner_mapping(uplink, "locations"), "user")
    return record, _position_of(where.get("longitude"), where.get("latitude"), where.get("altitude"))


def _chirpstack(
    content: Mapping[str, Any], options: ReadOptions
) -> tuple[DocumentRecord, tuple[float, float, float] | None]:
    device = _inner_mapping(content, "deviceInfo") or content
    gateways = _mappings_in(content, "rxInfo")
    received = [gateway.get("gwTime") or gateway.get("time") for gateway in gateways]
    served = [str(gateway["nsTime"]) for gateway in gateways if gateway.get("nsTime")]
    record = DocumentRecord(
        0,
        station=_station(
            (device.get("deviceName"), device.get("devEui") or device.get("devEUI")),
            options,
        ),
        time=_earliest(received) or content.get("time") or content.get("publishedAt"),
        arrival=content.get("publishedAt") or (max(served) if served else content.get("time")),
        # A counter of 0 is omitted in the JSON, as above.
        counter=_counter(content.get("fCnt", 0 if "fPort" in content else None)),
    )
    payload = content.get("object")
    if payload is None and isinstance(content.get("objectJSON"), str):
        payload = _may_be_message(content["objectJSON"].encode())
    _fill(record, payload, options)
    return record, None


def _plain_message(
    content: Mapping[str, Any], options: ReadOptions
) -> tuple[DocumentRecord, tuple[float, float, float] | None]:
    record = DocumentRecord(0)
    where: dict[str, object] = {}
    keys = _keys(tuple(content), options.station_column, options.time_column)
    station, time, arrival, counter, variable, value = keys
    record.station = _station((content.get(station),), options)
    record.time = content.get(time)
    record.arrival = content.get(arrival)
    record.counter = _counter(content.get(counter))
    if not record.station:
        record.refused = f"no station: a key {options.station_column!r} is needed, one that matches a station_pattern"
    if variable and value and isinstance(content[variable], str):
        _add(record, content[variable], content[value], options, must=True)
        return record, None
    for name, leaf in flatten({k: v for k, v in content.items() if k not in (station, time, arrival, counter)}):
        part = _PLACES.get(name.lower())
        if part is not None:
            where[part] = leaf
        else:
            _add(record, name, leaf, options)
    if not record.values and not record.wrong and not record.refused:
        record.refused = _NO_VALUES
    return record, _position_of(where.get("lon"), where.get("lat"), where.get("elevation")) if len(where) > 1 else None


@lru_cache(maxsize=1024)
def _keys(keys: tuple[str, ...], station: str, time: str) -> tuple[str, ...]:
    """Return the keys of station, time, arrival, counter, variable and value, "" if missing."""
    # Cached, because messages of one kind have the same keys.
    plain = {normalise_name(key): key for key in keys}

    def key(first: str, known: Collection[str]) -> str:
        return first if first in keys else next((full for name, full in plain.items() if name in known), "")

    named = (("", _ARRIVALS), ("", _COUNTERS), ("", LONG_VARIABLE), ("", LONG_VALUE))
    return tuple(key(first, known) for first, known in ((station, STATION), (time, TIME), *named))


def _fill(record: DocumentRecord, payload: object, options: ReadOptions) -> None:
    if not record.station:
        record.refused = (
            "no station: the message names no device, or one that the feed's station_pattern does not match"
        )
    elif not isinstance(payload, Mapping) or not payload:
        record.refused = "no decoded payload: set a payload formatter (codec) for the device in the network server"
    else:
        for name, leaf in flatten(payload):
            _add(record, name, leaf, options)
        if not record.values and not record.wrong:
            record.refused = _NO_VALUES


def _add(record: DocumentRecord, name: str, leaf: object, options: ReadOptions, *, must: bool = False) -> None:
    number = number_of(leaf, options.nodata)
    if isinstance(number, float):
        record.values[name] = number
    elif number is None and must:
        record.wrong.append((name, f"{BAD_NUMBER}: {str(leaf)[:40]!r} in {name}"))
    elif isinstance(number, str) and (must or not isinstance(leaf, str) or name in (options.columns or ())):
        # Text in an unmapped column is a remark, not an error.
        record.wrong.append((name, f"{number} in {name}"))


def _station(names: tuple[object, ...], options: ReadOptions) -> str:
    texts = [str(name).strip() for name in names if name is not None and str(name).strip()]
    if not options.station_pattern:
        return texts[0] if texts else ""
    for text in texts:
        match = re.search(options.station_pattern, text)
        if match and match[1]:
            return match[1]
    return ""


def _counter(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else -1


def _earliest(times: list[Any]) -> str | None:
    # ISO 8601 in UTC, as both servers write it, sorts like text except for its fractions.
    time_texts = [time for time in times if isinstance(time, str) and time]
    return min(time_texts, key=lambda time: (time[:19], time.rstrip("Z")[19:])) if time_texts else None


def _position_of(lon: object, lat: object, elevation: object) -> tuple[float, float, float] | None:
    numbers = [number_of(value, ()) for value in (lon, lat, elevation)]
    east, north, up = (number if isinstance(number, float) else float("nan") for number in numbers)
    return None if east != east or north != north else (east, north, up)


def _inner_mapping(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = content.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _mappings_in(content: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    inner = content.get(key)
    return [element for element in inner if isinstance(element, Mapping)] if isinstance(inner, list) else []


FORMATS.add("messages", DocumentFormat("messages", layout, cut, parse, sniff))
