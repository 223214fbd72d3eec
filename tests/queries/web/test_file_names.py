"""Downloads are named by what they hold: variable, period, kind; and one that breaks off leaves no file behind."""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from queries.web.responses.files import KEPT_FILES, SMALL_BYTES, file_response
from tests.queries.conftest import SERIES
from tests.serving import serving

Document = dict[str, Any]


def name_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    found = re.fullmatch(r'attachment; filename="([A-Za-z0-9_.+-]+)"', answer.headers["content-disposition"])
    assert found is not None, answer.headers["content-disposition"]
    return found[1]


@pytest.fixture
def ask(client: httpx.Client, gate: Any, wait_until: Callable[..., None]) -> Callable[[Document], str]:  # noqa: ANN401
    """Return what gives the address of a query that is done."""
    gate.open()

    def asked(query: Document) -> str:
        address = str(client.post("/api/v1/queries", json=query).headers["location"])
        wait_until(lambda: client.get(address).json()["state"] == "done")
        return address

    return asked


def test_a_result_is_named_by_variable_period_and_kind(
    client: httpx.Client, ask: Callable[[Document], str], map_query: Document
) -> None:
    done = ask(map_query)
    for form, ending in (
        ("netcdf", "nc"), ("csv", "csv"), ("parquet", "parquet"), ("covjson", "covjson"), ("geotiff", "tif"),
        ("zarr", "zarr.zip"), ("package", "zip"),
    ):  # fmt: skip
        name = name_of(client.get(f"{done}/result?f={form}"))
        assert name == f"air_temperature_2007-10-01_2007-10-01T0400Z_map.{ending}"
    # A picture is of one time cell.
    assert name_of(client.get(f"{done}/result?f=png&time=2")) == (
        "air_temperature_2007-10-01T0200Z_2007-10-01T0300Z_map.png"
    )
    waited = client.post("/api/v1/queries?wait=20s&f=csv", json=map_query)
    assert name_of(waited) == "air_temperature_2007-10-01_2007-10-01T0400Z_map.csv"


def test_series_and_periodic_cells_are_told(
    client: httpx.Client, ask: Callable[[Document], str], map_query: Document
) -> None:
    assert name_of(client.get(f"{ask(SERIES)}/result")) == "air_temperature_2007-10-01_2007-10-01T1200Z_series.nc"
    hours = {"op": "aggregate", "function": "mean", "time": "hour_of_day"}
    name = name_of(client.get(f"{ask(map_query | {'steps': [*map_query['steps'], hours]})}/result"))
    assert name == "air_temperature_2007-10-01_2007-10-01T0400Z_hour_of_day_map.nc"


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({}, "air_temperature_2007-10-01_2007-10-01T1200Z_readings.csv"),
        ({"f": "netcdf"}, "air_temperature_2007-10-01_2007-10-01T1200Z_readings.nc"),
        ({"station": "3"}, "air_temperature_station-3_2007-10-01_2007-10-01T1200Z_readings.csv"),
        ({"station": "1,2,3,4"}, "air_temperature_2007-10-01_2007-10-01T1200Z_readings.csv"),
        (
            {"station": "3,4", "start": "2007-10-01T01:00Z"},
            "air_temperature_station-3_station-4_2007-10-01T0100Z_2007-10-01T1200Z_readings.csv",
        ),
        (
            {"start": "2007-10-01T01:00Z", "stop": "2007-10-01T01:30:05Z", "f": "parquet"},
            "air_temperature_2007-10-01T0100Z_2007-10-01T013005Z_readings.parquet",
        ),
        ({"start": "2009-10-01T01:00Z"}, "air_temperature_readings.csv"),
    ],
)
def test_readings_are_named_likewise(client: httpx.Client, params: dict[str, str], name: str) -> None:
    assert name_of(client.get("/api/v1/series", params=params)) == name


def test_what_edr_sends_as_a_file_is_named_too(client: httpx.Client) -> None:
    address = "/edr/collections/stations/locations/2?datetime=2007-10-01T01:00Z/2007-10-01T02:00Z&f="
    assert name_of(client.get(f"{address}NetCDF")).endswith("_readings.nc")
    expected = "air_temperature_station-2_2007-10-01T0100Z_2007-10-01T0200Z_readings.csv"
    assert name_of(client.get(f"{address}CSV")) == expected
    instant = client.get("/edr/collections/stations/locations/2?datetime=2007-10-01T01:00Z&f=CSV")
    assert name_of(instant) == "air_temperature_station-2_2007-10-01T0100Z_2007-10-01T0100Z_readings.csv"
    assert "content-disposition" not in client.get(f"{address}GeoJSON").headers


def nameless() -> set[str]:
    """Return the open files of this process that have no name (any more)."""
    found = set()
    for one in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{one}")
        except OSError:
            continue
        if path.endswith("(deleted)") and path.startswith(tempfile.gettempdir()):
            found.add(path)
    return found


def test_what_breaks_off_leaves_no_file(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None], tmp_path: Path
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    files = FastAPI()
    files.state = app.state
    # Larger than what the system holds of a connection.
    files.get("/file")(lambda: file_response(lambda: bytes(60 * SMALL_BYTES), media_type="application/x-netcdf"))
    with serving(files) as address:
        for _ in range(4):
            with httpx.stream("GET", f"{address}/file", timeout=60) as answer:
                chunks = answer.iter_raw()
                assert len(next(chunks)) > 0
                assert nameless()
            # The connection is closed with it, long before the end.
        wait_until(lambda: not nameless(), seconds=20)
    assert not list(folder.iterdir())


def test_what_waits_for_its_next_part_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asked = httpx.Request("GET", "http://127.0.0.1/")
    for number in range(KEPT_FILES + 20):
        answer = file_response(
            lambda: bytes(SMALL_BYTES + 1), media_type="a/b", headers={"ETag": f'"{number}"'}, asked=asked,  # type: ignore[arg-type]
        )  # fmt: skip
        assert isinstance(answer, StreamingResponse)
    del answer
    assert len(nameless()) <= KEPT_FILES
    assert not list(tmp_path.iterdir())
