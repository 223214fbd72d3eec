"""JSON messages: plain ones, and the envelopes of The Things Network v3 and ChirpStack v3 and v4, written with json."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypergrid.core.times import parse_instant
from ingest.formats import FORMATS, DocumentFormat, Layout, Parsed, ReadOptions, Unreadable
from ingest.formats.base import VALUE

Rows = list[tuple[str, str, str, float | None]]


def form() -> DocumentFormat:
    found = FORMATS["messages"]
    assert isinstance(found, DocumentFormat)
    return found


def read(path: Path, options: ReadOptions | None = None, chunk_bytes: int = 1 << 20) -> tuple[Layout, list[Parsed]]:
    layout = form().layout(path, options or ReadOptions())
    bounds = form().cut(path, layout, chunk_bytes)
    return layout, [form().parse(path, layout, a, b) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def rows(parts: list[Parsed]) -> Rows:
    found: Rows = []
    for part in parts:
        assert part.name_code is not None
        for code, which, time_ns, value in zip(
            part.code, part.name_code, part.time_ns, part.values[VALUE], strict=True
        ):
            stamp = str(np.datetime64(int(time_ns), "ns").astype("datetime64[ms]"))
            found.append((part.stations[code], part.names[which], stamp, None if np.isnan(value) else float(value)))
    return found


def lines(path: Path, messages: list[Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in messages))
    return path


def uplink(device: str, counter: int, received: str, payload: object) -> dict[str, Any]:
    """Return what The Things Stack publishes: gateways hear it first, then the server."""
    return {
        "end_device_ids": {
            "device_id": device,
            "dev_eui": "0004A30B001C0530",
            "application_ids": {"application_id": "a"},
        },
        "correlation_ids": ["as:up:01"],
        "received_at": f"2021-10-07T{received}.900123456Z",
        "uplink_message": {
            "f_port": 2,
            "f_cnt": counter,
            "frm_payload": "AQI=",
            "decoded_payload": payload,
            "rx_metadata": [
                {"gateway_ids": {"gateway_id": "g2"}, "time": f"2021-10-07T{received}.500Z", "rssi": -97},
                {"gateway_ids": {"gateway_id": "g1"}, "time": f"2021-10-07T{received}.400Z", "rssi": -80},
            ],
            "settings": {"timestamp": 2463457000, "time": f"2021-10-07T{received}.600Z"},
            "received_at": f"2021-10-07T{received}.700Z",
            "locations": {"user": {"latitude": 46.5, "longitude": 7.25, "altitude": 1200, "source": "SOURCE_REGISTRY"}},
        },
    }


def test_the_things_network(tmp_path: Path) -> None:
    payload = {"air": {"temperature": 21.5}, "levels": [3, 4], "state": "ok", "door": True, "gap": None}
    path = lines(
        tmp_path / "ttn.json",
        [
            uplink("node-7", 17, "10:00:00", payload),
            # The same again a minute later: the confirmation was lost.
            uplink("node-7", 17, "10:01:00", payload),
            # Its counter began anew the next day, with other values.
            uplink("node-7", 18, "11:00:00", {"air": {"temperature": "22.25"}}),
            uplink("weather-8", 1, "11:00:00", {"x": 1}),
            uplink("node-9", 5, "11:00:00", None),
            {"result": uplink("node-9", 6, "12:00:00", {"x": 1})},
        ],
    )
    layout, (part,) = read(path, ReadOptions(station_pattern="node-(.+)"))
    first = [
        ("7", "air.temperature", "2021-10-07T10:00:00.400", 21.5),
        ("7", "levels.0", "2021-10-07T10:00:00.400", 3.0),
        ("7", "levels.1", "2021-10-07T10:00:00.400", 4.0),
        ("7", "gap", "2021-10-07T10:00:00.400", None),
    ]
    assert rows([part]) == [
        *first,
        *first,
        ("7", "air.temperature", "2021-10-07T11:00:00.400", 22.25),
        ("9", "x", "2021-10-07T12:00:00.400", 1.0),
    ]
    assert [(row.line, row.reason.partition(":")[0]) for row in part.bad] == [
        (4, "no station"),
        (5, "no decoded payload"),
    ]
    assert part.arrival_ns is not None
    assert part.counter is not None
    assert part.arrival_ns[0] == parse_instant("2021-10-07T10:00:00.900123456Z")
    assert part.counter.tolist() == [17] * 8 + [18, 6]
    assert {s.id: (s.position.lon, s.position.lat, s.position.elevation_m) for s in layout.metadata.stations} == {
        "7": (7.25, 46.5, 1200.0),
        "9": (7.25, 46.5, 1200.0),
    }


def test_chirpstack_of_both_versions(tmp_path: Path) -> None:
    fourth = {
        "deduplicationId": "3ac7e3c4",
        "time": "2022-07-18T09:34:15.775+00:00",
        "deviceInfo": {"tenantId": "52f1", "deviceName": "hut", "devEui": "0101010101010101", "tags": {}},
        "devAddr": "00189440",
        "fCnt": 4,
        "fPort": 1,
        "data": "qg==",
        "object": {"temperatureSensor": {"1": 24.5}, "humidity": 61},
        "rxInfo": [
            {"gatewayId": "0016c001f153a14c", "gwTime": "2022-07-18T09:34:15.100+00:00", "rssi": -57},
            {"gatewayId": "0016c001f153a14d", "gwTime": "2022-07-18T09:34:15.050+00:00", "rssi": -97},
        ],
    }
    third = {
        "applicationID": "123",
        "deviceName": "garden",
        "devEUI": "AgICAgICAgI=",
        "rxInfo": [{"gatewayID": "AwMD", "time": "2019-11-08T13:59:25.048445Z", "rssi": -48}],
        "fCnt": 10,
        "fPort": 5,
        "objectJSON": '{"temperature": 3.5}',
        "publishedAt": "2019-11-08T13:59:26Z",
    }
    path = tmp_path / "array.json"
    path.write_text(json.dumps([fourth, third], indent=1))
    _, (part,) = read(path)
    assert rows([part]) == [
        ("hut", "temperatureSensor.1", "2022-07-18T09:34:15.050", 24.5),
        ("hut", "humidity", "2022-07-18T09:34:15.050", 61.0),
        ("garden", "temperature", "2019-11-08T13:59:25.048", 3.5),
    ]
    assert part.arrival_ns is not None
    assert part.arrival_ns.tolist() == [
        *[parse_instant("2022-07-18T09:34:15.775Z")] * 2,
        parse_instant("2019-11-08T13:59:26Z"),
    ]
    assert part.counter is not None
    assert part.counter.tolist() == [4, 4, 10]


def test_plain_messages_and_what_is_wrong_with_some(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "plain.jsonl",
        [
            {"station": "a", "time": "2020-01-01T00:00:00Z", "t": 1.5, "note": "windy", "lat": 46, "lon": 7},
            {"station": 7, "time": 1577836800, "t": "2.5"},
            {"station": "a", "time": 1577836800123, "t": -999},
            {"station": "a", "time": "2020-01-01T01:00:00", "variable": "rh", "value": 50},
            {"time": "2020-01-01T00:00:00Z", "t": 1},
            {"station": "a", "time": "yesterday", "t": 1},
            {"station": "a", "t": 1},
            {"station": "a", "time": "2020-01-01T00:00:00Z", "t": 1e999, "u": 4},
            {"station": "a", "time": "9999-01-01T00:00:00Z", "t": 1},
            [1],
            {"station": "a", "time": "2020-01-01T00:00:00Z"},
        ],
    )
    with path.open("ab") as stream:
        stream.write(b'\n{"station": "b", "time": "2020-01-01T00:00:00Z", "t": 4}\r\n{"station": "b", "ti')
    layout, (part,) = read(path, ReadOptions(timezone="+01:00", nodata=("-999",)))
    assert rows([part]) == [
        ("a", "t", "2020-01-01T00:00:00.000", 1.5),
        ("7", "t", "2020-01-01T00:00:00.000", 2.5),
        ("a", "t", "2020-01-01T00:00:00.123", None),
        ("a", "rh", "2020-01-01T00:00:00.000", 50.0),
        ("a", "u", "2020-01-01T00:00:00.000", 4.0),
        ("b", "t", "2020-01-01T00:00:00.000", 4.0),
    ]
    assert [(row.line, row.column, row.reason.partition(":")[0]) for row in part.bad] == [
        (5, "", "no station"),
        (6, "time", "bad time"),
        (7, "time", "bad time"),
        (8, "t", "bad number"),
        (9, "time", "time out of range"),
        (10, "", "no message"),
        (11, "", "no values"),
        (14, "", "bad JSON"),
    ]
    assert (part.lines, [s.id for s in layout.metadata.stations]) == (14, ["a"])
    _, (mapped,) = read(path, ReadOptions(columns=("t",)))
    assert (mapped.names, mapped.unmapped) == (("t",), ("rh", "u"))


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1000])
def test_pieces_are_whole_lines(tmp_path: Path, chunk_bytes: int) -> None:
    messages = [{"station": f"s{n % 3}", "time": 1577836800 + n, "v": n} for n in range(100)]
    path = lines(tmp_path / "a.json", messages)
    _, parts = read(path, chunk_bytes=chunk_bytes)
    assert len(parts) > 3
    assert [(station, value) for station, _, _, value in rows(parts)] == [(f"s{n % 3}", float(n)) for n in range(100)]
    assert sum(part.lines for part in parts) == 100


def test_documents_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"station": "a"')
    with pytest.raises(Unreadable, match="bad JSON"):
        read(path)
    path.write_text("[" * 100_000)
    with pytest.raises(Unreadable, match="bad JSON: nested too deeply"):
        read(path)
    # one object over several lines
    path.write_text(json.dumps({"station": "a", "time": 0, "t": 1}, indent=2))
    assert rows(read(path)[1]) == [("a", "t", "1970-01-01T00:00:00.000", 1.0)]
