"""`series`, `latest`, `snapshots/newest`: readings at stable addresses, for spreadsheets, R, QGIS and CF readers."""

import csv
import io
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Annotated, Any, Final, NamedTuple

import anyio
import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel
from pydantic_core import to_json

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.readings import Series, Station
from hypergrid.core.times import format_timestamp
from hypergrid.core.units import Variable
from hypergrid.formats.readings import SelectedReadings, Selection
from hypergrid.formats.results import escape_formula
from hypergrid.query import OpenArchive
from queries.snapshots.catalogue import select_stations, select_variables
from queries.snapshots.latest import NEVER, LatestValues, NewestReadings
from queries.snapshots.news import ArchiveNews
from queries.snapshots.readings import FORMATS, archive_at, estimate_count, pieces_of, window_of
from queries.web.responses.bodies import Box, StandardNames, Stations, names_in, region_of
from queries.web.responses.etags import entity_tag, etag_headers, not_modified_response
from queries.web.responses.files import PARTS, attachment, file_response, part_response, readings_name
from queries.web.responses.negotiation import CODED, SMALLEST_BYTES, compress, form_of, takes_gzip
from queries.web.schemas import answer_of

READERS: Final = 2
"""Threads for large requests; as many for small ones, and as many for the latest values."""
FEW: Final = 50_000
"""Approximate number of readings up to which a request counts as small."""
KEPT_BYTES: Final = 32 << 20
"""Size limit of the cached answers with latest values [bytes]."""
LEAST_BYTES: Final = 2048
"""Approximate overhead of a cached answer [bytes], so that empty answers are bounded too."""


class ReadingsFilter(BaseModel, frozen=True):
    """Series that a request is for, as in its URL."""

    station: Stations = None
    variable: Annotated[tuple[str, ...] | None, Query(description="names, with commas between; all where absent")] = (
        None
    )
    bbox: Box = None
    standard_name: StandardNames = None

    def stations_of(self, known: Mapping[str, Station]) -> tuple[str, ...] | None:
        """Select stations as `select_stations` does."""
        return select_stations(known, names_in(self.station, known), region_of(self.bbox))

    def variables_of(self, known: Mapping[str, Variable]) -> tuple[str, ...]:
        """Select variables as `select_variables` does."""
        return select_variables(known, names_in(self.variable, known), names_in(self.standard_name, ()))


class SeriesRequest(ReadingsFilter, frozen=True):
    """Request for stored readings."""

    start: Annotated[str | None, Query(description="first instant, such as 2007-10-01T00:00Z")] = None
    stop: Annotated[str | None, Query(description="first instant that is not wanted any more")] = None
    flags: Annotated[str | None, Query(description="wanted QARTOD flags, such as 1,2; all where absent")] = None
    f: Annotated[str | None, Query(description=f"{', '.join(FORMATS)}; where absent by Accept, or csv")] = None
    snapshot: Annotated[str | None, Query(description="id of the version to read; the newest where absent")] = None
    as_of: Annotated[str | None, Query(description="only what had arrived by this instant")] = None


class LatestRequest(ReadingsFilter, frozen=True):
    """Request for latest values."""

    f: Annotated[str | None, Query(description="geojson or csv; where absent by Accept, or geojson")] = None


LatestKey = tuple[LatestRequest, str, bool]
"""Request for latest values, format of the answer, and whether its client accepts gzip."""


@dataclass(frozen=True)
class Body:
    """A cached answer."""

    content: bytes
    media_type: str
    tag: str
    headers: Mapping[str, str]


def router(archive: OpenArchive, values: LatestValues, news: ArchiveNews) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["readings"])
    newest = _LatestAnswers(values)
    # Separate limiters: long series of one caller would delay the short ones, and latest values, of all others.
    many, few, looking = (anyio.CapacityLimiter(READERS) for _ in range(3))

    @routes.get("/series", response_class=Response, responses=PARTS)
    async def series(request: Request, asked: Annotated[SeriesRequest, Query()]) -> Response:
        """Return readings as they are stored, a row each: start and end of what it is of, value, unit, flag, height."""
        row = FORMATS[form_of(request, {name: form.media_type for name, form in FORMATS.items()}, asked.f)]

        def looked() -> Response | tuple[SelectedReadings, dict[str, str]]:
            read = archive_at(archive, asked.snapshot, asked.as_of)
            station_names = asked.stations_of(read.stations)
            if station_names == ():
                raise NotFound(f"no such station stands in the box {asked.bbox}")
            window, flags = window_of(asked.start, asked.stop), _parse_flags(asked.flags)
            selection = Selection(asked.variables_of(read.variables), station_names or (), window, flags)
            tag = entity_tag(read.name, read.snapshot, asked.as_of, selection, row.name)
            same = not_modified_response(request, tag)
            if same is not None:
                return same
            chosen = SelectedReadings(read, selection)
            named = attachment(readings_name(chosen), row.suffix)
            return chosen, etag_headers(tag) | named | {"X-Snapshot": read.snapshot}

        outcome = await to_thread.run_sync(looked, limiter=few)
        if isinstance(outcome, Response):
            return outcome
        chosen, headers = outcome

        def made() -> Response:
            pieces = pieces_of(chosen)
            if sum(len(piece.readings) for piece in pieces) <= FEW:
                content = row.to_bytes(chosen, pieces)
                return part_response(content, media_type=row.media_type, headers=headers, asked=request)
            write = partial(row.to_bytes, chosen, pieces)
            return file_response(write, media_type=row.media_type, headers=headers, asked=request)

        return await to_thread.run_sync(made, limiter=few if estimate_count(chosen) <= FEW else many)

    @routes.get("/latest", response_class=Response)
    async def latest(request: Request, asked: Annotated[LatestRequest, Query()]) -> Response:
        """Return the newest reading of every series, with its flag; about a second behind the archive."""
        form = form_of(request, _LATEST, asked.f)
        if form not in _LATEST:
            raise NotFound.among(kind="format of latest values", given=form, existing=_LATEST)
        key = asked, form, takes_gzip(request.headers)
        body = newest.find_kept(key)
        if body is None:
            body = await to_thread.run_sync(newest.make_body, key, limiter=looking)
        return not_modified_response(request, body.tag) or Response(
            body.content, media_type=body.media_type, headers=body.headers
        )

    @routes.get("/snapshots/newest", responses=answer_of("News"))
    async def newest_snapshot(
        since: Annotated[str | None, Query(max_length=100, description="id of the snapshot that is known")] = None,
    ) -> dict[str, Any]:
        """Return the newest snapshot, the variables changed since another (null: perhaps all), and their newest times.

        It is for pages that follow: about a second behind the archive, as `latest`.
        """
        return (await to_thread.run_sync(news.read_news, since, limiter=looking)).to_json()

    return routes


class _LatestAnswers:
    """Cached answers with latest values, made once per snapshot."""

    def __init__(self, values: LatestValues) -> None:
        self._values = values
        self._kept: LruCache[tuple[str, LatestKey], Body] = LruCache(KEPT_BYTES)
        self._features = _FeatureWriter()
        self._making = threading.Lock()

    def find_kept(self, asked: LatestKey) -> Body | None:
        """Return a cached answer, if it is recent or another thread is updating it."""
        if self._values.is_recent or self._making.locked():
            return self._kept.peek((self._values.archive.snapshot, asked))
        return None

    def make_body(self, asked: LatestKey) -> Body:
        """Make an answer at the newest snapshot, compressed if accepted and large enough."""
        with self._making:
            if not self._values.is_recent:
                self._values.look()
            with self._values.steady() as archive:
                key = (archive.snapshot, asked)
                body = self._kept.peek(key)
                if body is None:
                    body = self._write_body(asked, archive)
                    self._kept.put(key, body, len(body.content) + LEAST_BYTES)
                return body

    def _write_body(self, asked: LatestKey, archive: OpenArchive) -> Body:
        wanted, form, is_coded = asked
        names, station_names = wanted.variables_of(archive.variables), wanted.stations_of(archive.stations)
        tag = entity_tag(archive.name, archive.snapshot, names, station_names, form)
        selected = _select_readings(self._values, archive, names or tuple(archive.variables), station_names)
        if form == "csv":
            content = _write_csv(selected)
        else:
            content = self._features.write_collection(selected, archive)
        headers = etag_headers(tag)
        if is_coded and len(content) >= SMALLEST_BYTES:
            content, headers = compress(content), headers | CODED
        return Body(content, _LATEST[form], tag, headers)


@dataclass(frozen=True)
class _SelectedNewest:
    """Newest readings of a variable, restricted to some rows."""

    variable: Variable
    newest: NewestReadings
    rows: list[int]


def _select_readings(
    values: LatestValues, archive: OpenArchive, names: Sequence[str], stations: Sequence[str] | None
) -> list[_SelectedNewest]:
    """Select the series that have a reading, of some or all stations."""
    station_names = None if stations is None else frozenset(stations)
    selected = []
    for name in names:
        newest = values.read_newest(name)
        rows = np.flatnonzero(newest.time_ns != NEVER).tolist()
        if station_names is not None:
            rows = [row for row in rows if newest.series[row].station in station_names]
        selected.append(_SelectedNewest(archive.variables[name], newest, rows))
    return selected


@dataclass(frozen=True)
class _Texts:
    """Cached texts of one variable's features, by row of `newest`."""

    newest: NewestReadings
    templates: dict[int, tuple[bytes, bytes, bytes]]
    """Text before the value, between value and start, and after the flag: 13 of the 18 ms of 1,277 features."""
    features: dict[int, bytes]
    """Whole features: boxes that overlap share them."""


class _FeatureWriter:
    def __init__(self) -> None:
        self._snapshot = ""
        self._described: tuple[Mapping[str, Station], Mapping[str, Variable]] = ({}, {})
        self._texts: dict[str, _Texts] = {}

    def write_collection(self, selected: Sequence[_SelectedNewest], archive: OpenArchive) -> bytes:
        """Encode readings at a snapshot as a FeatureCollection."""
        if archive.snapshot != self._snapshot:
            described = archive.stations, archive.variables
            if described != self._described:
                self._texts.clear()
            self._snapshot, self._described = archive.snapshot, described
        features = [feature for part in selected for feature in self._write_features(part)]
        head = to_json({"type": "FeatureCollection", "snapshot": archive.snapshot})
        return b'%b,"features":[%b]}' % (head[:-1], b",".join(features))

    def _write_features(self, selected: _SelectedNewest) -> list[bytes]:
        """Return the features of some rows; only those whose reading is new since the last request are written."""
        name, newest = selected.variable.name, selected.newest
        known = self._texts.get(name)
        if known is None or known.newest.series != newest.series:
            known = _Texts(newest, {}, {})
        elif known.newest is not newest:
            for row in np.flatnonzero(_has_changed(known.newest, newest)).tolist():
                known.features.pop(row, None)
            known = replace(known, newest=newest)
        self._texts[name] = known
        missing = [row for row in selected.rows if row not in known.features]
        if missing:
            self._add_features(known, replace(selected, rows=missing))
        return [known.features[row] for row in selected.rows]

    def _add_features(self, known: "_Texts", selected: _SelectedNewest) -> None:
        # Cached, as most stations send at the same times.
        write_time = cache(lambda time_ns: format_timestamp(time_ns).encode())
        readings = list(_iterate_readings(selected))
        # A third of the time of `json`; numbers contain no commas.
        values = to_json([reading.value for reading in readings])[1:-1].split(b",")
        for reading, value in zip(readings, values, strict=True):
            row = reading.row
            if row not in known.templates:
                known.templates[row] = self._make_template(known.newest.series[row], selected.variable)
            before, between, after = known.templates[row]
            start, end = write_time(reading.start_ns), write_time(reading.end_ns)
            known.features[row] = b'%b%b%b%b","end":"%b","flag":%d%b' % (
                before, value, between, start, end, reading.flag, after
            )  # fmt: skip

    def _make_template(self, series: Series, variable: Variable) -> tuple[bytes, bytes, bytes]:
        station = self._described[0].get(series.station)
        geometry, more = None, {}
        if station is not None:
            lon, lat = station.position.lon, station.position.lat
            if math.isfinite(lon) and math.isfinite(lat):
                geometry = {"type": "Point", "coordinates": [lon, lat]}
            more = {"name": station.name}
        feature = to_json({"type": "Feature", "geometry": geometry, "properties": {}})
        before = to_json({"station": series.station, "variable": variable.name})
        between = to_json({"unit": variable.unit})
        after = {"height_m": series.height_m, "statistic": series.statistic, "replicate": series.replicate}
        return (
            feature[: -len(b"{}}")] + before[:-1] + b',"value":',
            b"," + between[1:-1] + b',"start":"',
            b"," + to_json(after | more, inf_nan_mode="null")[1:] + b"}",
        )


def _has_changed(known: NewestReadings, newest: NewestReadings) -> NDArray[np.bool_]:
    """Return which rows have another reading, shape (series,)."""
    is_same = (known.time_ns == newest.time_ns) & (known.flag == newest.flag)
    return ~(is_same & ((known.value == newest.value) | np.isnan(known.value) & np.isnan(newest.value)))


class _NewestReading(NamedTuple):
    row: int
    start_ns: int
    end_ns: int
    value: float | None
    flag: int


def _iterate_readings(selected: _SelectedNewest) -> Iterator[_NewestReading]:
    newest, rows = selected.newest, selected.rows
    columns = (column[rows].tolist() for column in (newest.time_ns, newest.value, newest.flag))
    for row, stamp, value, flag in zip(rows, *columns, strict=True):
        series = newest.series[row]
        length_ns = 0 if series.stamp == "instant" else round(series.interval_s * 1e9)
        start = stamp - length_ns if series.stamp == "end" else stamp
        yield _NewestReading(row, start, start + length_ns, value if math.isfinite(value) else None, flag)


def _write_csv(selected: Sequence[_SelectedNewest]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(
        ("station", "variable", "start", "end", "value", "unit", "flag", "height_m", "statistic", "replicate")
    )
    write_time = cache(format_timestamp)
    for part in selected:
        for reading in _iterate_readings(part):
            series = part.newest.series[reading.row]
            writer.writerow((
                escape_formula(series.station), part.variable.name, write_time(reading.start_ns),
                write_time(reading.end_ns), reading.value, part.variable.unit, reading.flag, series.height_m,
                series.statistic, series.replicate,
            ))  # fmt: skip
    return text.getvalue().encode()


_LATEST: Final = {"geojson": "application/geo+json", "csv": "text/csv"}


def _parse_flags(flags: str | None) -> tuple[int, ...]:
    if flags is None:
        return ()
    parts = flags.split(",")
    if not all(part.strip().isdecimal() and len(part) < 4 for part in parts):
        raise InvalidQuery(f"flags are whole numbers with commas between, such as 1,2; got {flags[:80]!r}")
    return tuple(int(part) for part in parts)
