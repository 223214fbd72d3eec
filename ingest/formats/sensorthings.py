"""OGC SensorThings 1.1: recorded answers, as pages of JSON in any nesting ($expand), and data arrays.

An Observation is a reading of its Datastream, which is the column; the Datastream has the unit, and its Thing (or the
feature of interest) is the station, with its position. If an answer does not contain the Datastream, a link identifies
it (in the observation, or to the next page), and another file of the feed may describe it. Observations without a link
belong to the station that the file is named after. Their order does not matter. If a phenomenon time is an interval,
its end is the stamp.

Source: OGC 18-088, SensorThings API part 1, version 1.1.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hypergrid.core.readings import Station, Statistic
from ingest.formats.base import FORMATS, DocumentFormat, Layout, Parsed, ReadOptions, Unreadable
from ingest.formats.document_records import (
    BAD_JSON,
    DocumentRecord,
    build_parsed,
    excerpt_of,
    number_of,
    read_document,
)
from ingest.formats.file_metadata import (
    COMMON,
    ColumnMetadata,
    FileMetadata,
    column_of,
    station_at,
    statistic_of,
    unit_of,
    variable_name,
)

_STREAM: Final = re.compile(r"Datastreams\(('?[^()]*?'?)\)")
_PREFIX: Final = re.compile(r"^\S*[\d_]\S*\s+(?=\S)")
_ALSO: Final = {"barometric_pressure": "air_pressure", "precipitation_amount": "precipitation"}
_WORD: Final = re.compile(r"(?i)\b(average|mean|maximum|max|minimum|min|total|sum)\b")


@dataclass
class DatastreamInfo:
    """Metadata of a Datastream."""

    station: str = ""
    position: tuple[float, float, float] | None = None
    column: ColumnMetadata | None = None


@dataclass(frozen=True)
class Context:
    """Context of an object from the objects around it."""

    stream: str = ""
    thing: str = ""
    position: tuple[float, float, float] | None = None
    key: str = "result"


@dataclass
class Answers:
    """Content of a file."""

    observations: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Pairs of column and observation."""
    streams: dict[str, DatastreamInfo] = field(default_factory=dict)
    """By column."""


def sniff(head: bytes, file: str) -> str | None:
    """Recognise an answer by keys that only SensorThings has."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text.startswith((b"{", b"[")):
        return None
    match = re.search(rb'"(@iot\.(?:id|count|nextLink|selfLink)|phenomenonTime|unitOfMeasurement)"', text)
    return f"JSON with the key {match[1].decode()!r} of SensorThings" if match else None


def _read(path: Path) -> Answers:
    content, answers = read_document(path, "record smaller pages ($top)"), Answers()
    try:
        _walk(content, Context(), answers)
    except RecursionError as error:
        raise Unreadable(f"{BAD_JSON}: nested too deeply") from error
    return answers


def _walk(node: object, context: Context, answers: Answers) -> None:
    if isinstance(node, list):
        for child in node:
            _walk(child, context, answers)
    if not isinstance(node, Mapping):
        return
    # A link identifies the Datastream if the answer does not contain it.
    for link in ("@iot.nextLink", "Datastream@iot.navigationLink", "@iot.selfLink"):
        match = _STREAM.search(str(node.get(link, "")))
        if match and "Observations" not in str(node.get(link, ""))[: match.start()]:
            context = replace(context, stream=f"Datastreams({match[1]})")
            break
    if "dataArray" in node and "components" in node:
        for row in node["dataArray"]:
            _walk(dict(zip(node["components"], row, strict=False)), context, answers)
        return
    if isinstance(node.get("Datastream"), Mapping):
        context = _stream(node["Datastream"], context, answers)
    if "phenomenonTime" in node and "result" in node:
        stream = context.stream or context.key
        if isinstance(node.get("FeatureOfInterest"), Mapping):
            known = answers.streams.setdefault(stream, DatastreamInfo())
            _set_position(known, *_feature(node["FeatureOfInterest"]))
        answers.observations.append((stream, node))
        return
    if "unitOfMeasurement" in node:
        context = _stream(node, context, answers)
    elif "Datastreams" in node or "Locations" in node:
        name = str(node.get("name") or f"Thing({node.get('@iot.id')})")
        context = replace(context, thing=name, position=_location_of(node) or context.position)
    for key, value in node.items():
        if isinstance(value, Mapping | list) and key not in ("Datastream", "FeatureOfInterest", "Thing", "Locations"):
            known_key = context.key if key in ("value", "Observations", "Datastreams") else str(key)
            _walk(value, replace(context, key=known_key), answers)


def _stream(node: Mapping[str, Any], context: Context, answers: Answers) -> Context:
    """Record the metadata of a Datastream, and return the context for its content."""
    number = node.get("@iot.id")
    # String ids are quoted in links, as in Datastreams('a').
    name = f"Datastreams({number!r})" if isinstance(number, str) else f"Datastreams({number})"
    name = name if number is not None else context.stream or str(node.get("name", context.key))
    stream = answers.streams.setdefault(name, DatastreamInfo())
    thing = node.get("Thing")
    station, where = (context.thing, context.position)
    if isinstance(thing, Mapping):
        station = str(thing.get("name") or f"Thing({thing.get('@iot.id')})")
        where = _location_of(thing) or where
    _set_position(stream, station, where)
    feature = node.get("FeatureOfInterest")
    if isinstance(feature, Mapping):
        _set_position(stream, *_feature(feature))
    # The observed area is the last resort, because earlier positions are kept.
    _set_position(stream, "", _point(node.get("observedArea")))
    if "unitOfMeasurement" in node:
        stream.column = _column(node)
    return replace(context, stream=name)


def _set_position(stream: DatastreamInfo, station: str, where: tuple[float, float, float] | None) -> None:
    stream.station = stream.station or station
    stream.position = stream.position or where


def _feature(node: Mapping[str, Any]) -> tuple[str, tuple[float, float, float] | None]:
    return str(node.get("name") or ""), _point(node.get("feature"))


def _location_of(thing: Mapping[str, Any]) -> tuple[float, float, float] | None:
    places = thing.get("Locations")
    points = (_point(location.get("location")) for location in places or [] if isinstance(location, Mapping))
    return next((point for point in points if point is not None), None)


def _point(geometry: object) -> tuple[float, float, float] | None:
    """Return a GeoJSON point [degrees, degrees, m]; None for other geometries."""
    if isinstance(geometry, Mapping) and isinstance(geometry.get("geometry"), Mapping):
        geometry = geometry["geometry"]
    if not isinstance(geometry, Mapping) or geometry.get("type") != "Point":
        return None
    numbers = [number_of(value, ()) for value in geometry.get("coordinates") or []]
    plain = [number if isinstance(number, float) else float("nan") for number in numbers]
    return (plain[0], plain[1], plain[2] if len(plain) > 2 else float("nan")) if len(plain) >= 2 else None


def _column(node: Mapping[str, Any]) -> ColumnMetadata:
    unit = node.get("unitOfMeasurement")
    unit = unit if isinstance(unit, Mapping) else {}
    # The unit may be in any of these texts.
    texts = (unit.get("symbol"), str(unit.get("definition") or "").rpartition(":")[2], unit.get("name"))
    known = next((text for text in texts if text and unit_of(str(text)) is not None), None)
    seen = node.get("ObservedProperty")
    seen = seen if isinstance(seen, Mapping) else {}
    title = str(node.get("name") or "")
    # "GGA01_01 Water Level" belongs to one station; the variable is shared by all.
    name = variable_name(str(seen.get("name") or _PREFIX.sub("", title) or "result").lower())
    standard = re.sub(r".*[/#:]", "", str(seen.get("definition") or ""))
    word = _WORD.search(f"{title} {seen.get('name') or ''}")
    statistic: Statistic | None = statistic_of(word[1]) if word else None
    usual = _ALSO.get(name, name)
    return column_of(
        name,
        None if known is None else str(known),
        standard_name=standard,
        long_name=str(seen.get("name") or _PREFIX.sub("", title)),
        variable=usual if usual in COMMON else None,
        statistic=statistic,
    )


def layout(path: Path, options: ReadOptions) -> Layout:
    """Read the answers, and the metadata of their Datastreams.

    Raises
    ------
    Unreadable
        It is not JSON, too large, or has neither observations nor Datastreams.
    """
    answers = _read(path)
    if not answers.observations and not answers.streams:
        raise Unreadable("no answer of SensorThings: it has neither observations nor Datastreams")
    for name, observation in answers.observations:
        start, stop = _interval(observation)
        stream = answers.streams.setdefault(name, DatastreamInfo())
        if start is not None and (stream.column is None or stream.column.stamp is None):
            stream.column = replace(stream.column or ColumnMetadata(), stamp="end", interval_s=_length_s(start, stop))
    present = tuple(dict.fromkeys(name for name, _ in answers.observations))
    wanted, _ = options.divide_columns(present)
    return _describe_layout(
        Layout(tuple(answers.streams), wanted, (), options, path.stem, 0, 0, long=True, detail=answers.streams)
    )


def _describe_layout(layout: Layout) -> Layout:
    """Return the layout with the metadata of its streams."""
    streams: Mapping[str, DatastreamInfo] = layout.detail
    columns = {name: stream.column for name, stream in streams.items() if stream.column is not None}
    stations: dict[str, Station] = {}
    for stream in streams.values():
        if stream.station and stream.position is not None:
            stations.setdefault(stream.station, station_at(stream.station, *stream.position))
    unknown = [name for name in layout.columns if name not in columns or columns[name].variable is None]
    notes = (f"no Datastream is told of {', '.join(unknown)}: variable, unit and station are not known",)
    return replace(
        layout, metadata=FileMetadata(columns, tuple(stations.values()), zone="UTC", notes=notes if unknown else ())
    )


def link(layouts: Sequence[Layout]) -> list[Layout]:
    """Merge the Datastream metadata of a feed's files into all of their layouts."""
    known: dict[str, DatastreamInfo] = {}
    for layout in layouts:
        for name, stream in layout.detail.items():
            there = known.setdefault(name, DatastreamInfo())
            _set_position(there, stream.station, stream.position)
            if stream.column is not None and (there.column is None or there.column.variable is None):
                there.column = stream.column
    return [replace_streams(layout, known) for layout in layouts]


def replace_streams(layout: Layout, known: Mapping[str, DatastreamInfo]) -> Layout:
    """Return a layout whose missing stream metadata is filled in from `known`."""
    streams: dict[str, DatastreamInfo] = {}
    for name, stream in layout.detail.items():
        other, column = known[name], stream.column
        if column is None or column.variable is None:
            # Stamp and interval follow from the file's own observations.
            own = {} if column is None else {"stamp": column.stamp, "interval_s": column.interval_s}
            column = column if other.column is None else replace(other.column, **own)
        streams[name] = DatastreamInfo(stream.station or other.station, stream.position or other.position, column)
    return _describe_layout(replace(layout, detail=streams))


def cut(path: Path, layout: Layout, chunk_bytes: int) -> list[int]:
    return [0, path.stat().st_size]


def parse(path: Path, layout: Layout, start: int, stop: int) -> Parsed:
    records = list(_records(_read(path), layout))
    return build_parsed(records, layout.options, lines=len(records))


def _records(answers: Answers, layout: Layout) -> Iterator[DocumentRecord]:
    streams: Mapping[str, DatastreamInfo] = layout.detail
    for index, (name, observation) in enumerate(answers.observations):
        start, stop = _interval(observation)
        record = DocumentRecord(
            index + 1,
            excerpt_of(observation),
            station=streams[name].station or layout.station if name in streams else layout.station,
            time=stop or start or observation.get("resultTime"),
        )
        number = number_of(observation["result"], layout.options.nodata)
        if isinstance(number, float):
            record.values[name] = number
        else:
            record.wrong.append((name, number or f"bad number: {str(observation['result'])[:40]!r}"))
        yield record


def _interval(observation: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return start and end of a phenomenon time; for an instant, None and the instant."""
    start, bar, stop = str(observation.get("phenomenonTime") or "").partition("/")
    return (start, stop) if bar and stop != start else (None, start)


def _length_s(start: str, stop: str) -> float:
    try:
        length = datetime.fromisoformat(stop) - datetime.fromisoformat(start)
    except (ValueError, TypeError):
        return 0.0
    return max(0.0, length.total_seconds())


FORMATS.add("sensorthings", DocumentFormat("sensorthings", layout, cut, parse, sniff, link=link))
