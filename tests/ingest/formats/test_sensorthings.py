"""SensorThings answers: nested in either direction, paged, as data arrays, and told of by another file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.times import parse_instant
from ingest.formats import FORMATS, DocumentFormat, Layout, Parsed, ReadOptions, Unreadable
from ingest.formats.base import VALUE
from ingest.job import ingest

BASE = "https://example.org/v1.1"
UNIT = {"name": "degree Celsius", "symbol": "C", "definition": "ucum:Cel"}
STREAM = {
    "@iot.id": 7,
    "name": "N1 Air Temperature",
    "unitOfMeasurement": UNIT,
    "Thing": {
        "name": "N1",
        "Locations": [{"location": {"type": "Point", "coordinates": [7.5, 46.5, 900]}}],
    },
}


def form() -> DocumentFormat:
    found = FORMATS["sensorthings"]
    assert isinstance(found, DocumentFormat)
    return found


def read(path: Path, content: object) -> tuple[Layout, Parsed]:
    path.write_text(json.dumps(content))
    layout = form().layout(path, ReadOptions())
    start, stop = form().cut(path, layout, 1)
    return layout, form().parse(path, layout, start, stop)


def rows(part: Parsed) -> list[tuple[str, str, int, float]]:
    assert part.name_code is not None
    return [
        (part.stations[code], part.names[which], int(time_ns), float(value))
        for code, which, time_ns, value in zip(part.code, part.name_code, part.time_ns, part.values[VALUE], strict=True)
    ]


def observation(time: str, result: object, **more: object) -> dict[str, Any]:
    return {"@iot.id": hash(time) % 1000, "phenomenonTime": time, "result": result, "resultTime": None} | more


ONE, TWO = parse_instant("2020-01-01T00:00Z"), parse_instant("2020-01-01T00:10Z")
EXPECTED = [("N1", "Datastreams(7)", TWO, 2.5), ("N1", "Datastreams(7)", ONE, 1.5)]


@pytest.mark.parametrize(
    "content",
    [
        # Observations?$expand=Datastream($expand=Thing($expand=Locations))
        {
            "value": [
                observation(t, r, Datastream=STREAM)
                for t, r in (("2020-01-01T00:10Z", 2.5), ("2020-01-01T00:00Z", 1.5))
            ]
        },
        # Things?$expand=Locations,Datastreams($expand=Observations)
        {
            "value": [
                STREAM["Thing"]
                | {
                    "@iot.id": 1,
                    "Datastreams": [
                        {
                            "@iot.id": 7,
                            "name": "N1 Air Temperature",
                            "unitOfMeasurement": UNIT,
                            "Observations": [
                                observation("2020-01-01T00:10:00Z", 2.5),
                                observation("2020-01-01T00:00:00Z", 1.5),
                            ],
                        }
                    ],
                }
            ]
        },
        # Datastreams(7)?$expand=Observations, the observations as data arrays
        STREAM
        | {
            "Observations": [
                {
                    "components": ["phenomenonTime", "result"],
                    "dataArray": [["2020-01-01T00:10:00Z", 2.5], ["2020-01-01T00:00:00Z", 1.5]],
                }
            ]
        },
    ],
)
def test_the_same_observations_in_any_nesting(tmp_path: Path, content: object) -> None:
    layout, part = read(tmp_path / "a.json", content)
    assert rows(part) == EXPECTED
    column = layout.metadata.columns["Datastreams(7)"]
    assert column.variable is not None
    assert (column.variable.name, column.unit) == ("air_temperature", "degC")
    (station,) = layout.metadata.stations
    assert (station.id, station.position.lon, station.position.lat, station.position.elevation_m) == (
        "N1",
        7.5,
        46.5,
        900,
    )


def test_intervals_are_stamped_with_their_end(tmp_path: Path) -> None:
    stream = STREAM | {"name": "N1 Mean Air Temperature", "ObservedProperty": {"name": "air_temperature"}}
    content = {"value": [observation("2020-01-01T00:00:00Z/2020-01-01T00:10:00Z", 2.5, Datastream=stream)]}
    layout, part = read(tmp_path / "a.json", content)
    assert rows(part) == EXPECTED[:1]
    column = layout.metadata.columns["Datastreams(7)"]
    assert (column.stamp, column.interval_s, column.statistic) == ("end", 600.0, "mean")


def test_results_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    results = [None, "3.5", "wet", True, {"a": 1}, 4]
    _, part = read(tmp_path / "hut.json", [observation(f"2020-01-01T00:0{n}:00Z", r) for n, r in enumerate(results)])
    assert [value for *_, value in rows(part)][1:] == [3.5, 4.0]
    assert np.isnan(rows(part)[0][3])
    assert rows(part)[1][:2] == ("hut", "result")
    assert [(row.line, row.column) for row in part.bad] == [(3, "result"), (4, "result"), (5, "result")]


def test_pages_are_told_of_by_another_file_also_when_that_was_read_before(tmp_path: Path, now_ns: int) -> None:
    """The first page names its Datastream in the link to the next; the last one in the observations' own."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    (folder / "streams.json").write_text(json.dumps({"value": [STREAM]}))
    link = f"{BASE}/Datastreams(7)/Observations?$skip=1"
    page = {"@iot.nextLink": link, "value": [observation("2020-01-01T00:10:00Z", 2.5)]}
    (folder / "page1.json").write_text(json.dumps(page))
    ingest([folder], tmp_path / "a", now_ns=now_ns)
    last = observation("2020-01-01T00:00:00Z", 1.5)
    last["Datastream@iot.navigationLink"] = f"{BASE}/Datastreams(7)"
    (folder / "page2.json").write_text(json.dumps({"value": [last]}))
    report = ingest([folder], tmp_path / "a", now_ns=now_ns)
    assert (report.files, report.files_skipped, report.stored) == (1, 2, 1)
    archive = Archive.open(tmp_path / "a")
    (series,) = archive.series("air_temperature")
    assert (series.station, series.source) == ("N1", "sensorthings:Datastreams(7)")
    assert archive.read("air_temperature").value.tolist() == [1.5, 2.5]
    assert archive.stations["N1"].position.lat == 46.5


def test_json_that_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="neither observations nor Datastreams"):
        read(tmp_path / "a.json", {"value": []})
    (tmp_path / "b.json").write_text('{"value": [')
    with pytest.raises(Unreadable, match="bad JSON"):
        form().layout(tmp_path / "b.json", ReadOptions())
