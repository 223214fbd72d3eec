"""Readings at stable addresses hold what the archive does, whichever form they come in."""

import csv
import io
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5netcdf
import httpx
import jsonschema
import numpy as np
import pandas as pd
import pytest
from covjson_pydantic.coverage import CoverageCollection
from fastapi.testclient import TestClient
from pydantic_core import to_json

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.errors import DamagedArchive, TooLarge
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from hypergrid.formats.readings import ReadingsPiece, SelectedReadings, Selection
from queries.jobs.runner import Runner
from queries.snapshots import latest
from queries.snapshots.catalogue import Catalogue
from queries.snapshots.readings import estimate_count, pieces_of, window_of
from queries.web.app import create_app
from queries.web.routes import readings
from tests.judges import judge_acdd, judge_cf

START_NS = parse_instant("2007-10-01")
AIR, RAIN = "air_temperature", "rain"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> hg.OpenArchive:
    """Two heights of a sample every minute, and hourly totals that are stamped at their end; ugly names."""
    variables = [KNOWN_VARIABLES[AIR], Variable(RAIN, "mm", "lwe_thickness_of_precipitation_amount", "Rain")]
    path = tmp_path_factory.mktemp("readings") / "archive"
    made = Archive.create(path, name="made", slice_s=60, variables=variables, now_ns=START_NS)
    air = tuple(Series(AIR, name, height, interval_s=60.0) for name in ("a", "=b,c") for height in (2.0, 10.0))
    rain = tuple(Series(RAIN, name, None, 1, "total", 3600.0, "end") for name in ("a", "lost"))
    rng = np.random.default_rng(1)

    def readings(series: tuple[Series, ...], count: int, step_s: int) -> Readings:
        index = np.repeat(np.arange(len(series), dtype=np.int32), count)
        time_ns = START_NS + np.tile(np.arange(1, count + 1), len(series)) * step_s * SECOND_NS
        flag = rng.choice(np.array([1, 2, 3, 4, 9], np.uint8), len(index))
        value = np.where(flag == 9, np.nan, rng.normal(size=len(index)))
        # Nanoseconds as in archives of earlier versions.
        return Readings(series, index, time_ns, value, flag, time_ns + 10 * SECOND_NS + 789)

    with made.commit(batch="1", message="first", now_ns=START_NS + 1) as writer:
        writer.stations(
            [
                Station("a", "Upper", (Position(None, 7.1, 45.8, 2400.0),)),
                Station("=b,c", "Formula", (Position(None, 7.2, 45.9, np.nan),)),
                Station("lost", "Lost", (Position(None, np.nan, np.nan, np.nan),)),
            ]
        )
        writer.readings(readings(air, 90, 60))
        writer.readings(readings(rain, 5, 3600))
    return hg.open(path)


@pytest.fixture
def web(network: hg.OpenArchive) -> Iterator[httpx.Client]:
    runner = Runner(network)
    with TestClient(create_app(runner, Catalogue(network)), base_url="http://127.0.0.1") as client:
        yield client


def expected(network: hg.OpenArchive, **wanted: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    """Return the rows of the archive, one by one: station, variable, height, start, end, value, flag."""
    rows = []
    for name in (AIR, RAIN):
        readings = network.store.read(name)
        for index, stamp, value, flag in zip(
            readings.index, readings.time_ns.tolist(), readings.value.tolist(), readings.flag.tolist(), strict=True
        ):
            one = readings.series[index]
            start = stamp - 3600 * SECOND_NS if one.statistic == "total" else stamp
            row = (one.station, name, one.height_m, start, stamp, None if np.isnan(value) else value, flag)
            if wanted.get("keep", lambda _row: True)(row):
                rows.append(row)
    return sorted(rows, key=str)


def table(content: bytes, form: str) -> list[tuple[Any, ...]]:
    if form == "parquet":
        frame = pd.read_parquet(io.BytesIO(content))
    else:
        frame = pd.read_csv(io.BytesIO(content), float_precision="round_trip")
        frame[["start", "end"]] = frame[["start", "end"]].apply(pd.to_datetime, utc=True)
        frame["station"] = frame["station"].str.removeprefix("'")
    instants = {name: frame[name].dt.as_unit("ns").astype("int64").tolist() for name in ("start", "end")}
    values, heights = ([None if np.isnan(one) else one for one in frame[name]] for name in ("value", "height_m"))
    columns = (frame["station"], frame["variable"], heights, instants["start"], instants["end"], values, frame["flag"])
    return sorted(zip(*columns, strict=True), key=str)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_table_holds_every_reading(web: httpx.Client, network: hg.OpenArchive, form: str) -> None:
    answer = web.get("/api/v1/series", params={"f": form})
    assert answer.status_code == 200
    assert table(answer.content, form) == expected(network)
    assert answer.headers["x-snapshot"] == network.snapshot
    if form == "csv":
        head = answer.text.splitlines()[0]
        assert head == "station,variable,start,end,value,unit,flag,height_m,statistic,replicate,failed_tests"
        assert "\n=b" not in answer.text


@pytest.mark.parametrize(
    ("params", "keep"),
    [
        ({"station": "a"}, lambda row: row[0] == "a"),
        ({"station": "=b,c"}, lambda row: row[0] == "=b,c"),
        ({"station": "a,lost", "variable": RAIN}, lambda row: row[1] == RAIN),
        ({"variable": f"{AIR}_10m"}, lambda row: row[2] == 10.0),
        ({"variable": [f"{AIR}_2m", RAIN]}, lambda row: row[2] != 10.0),
        ({"flags": "1,2"}, lambda row: row[6] in (1, 2)),
        (
            {"start": "2007-10-01T00:10Z", "stop": "2007-10-01T01:00Z"},
            lambda row: 600 <= (row[4] - START_NS) / SECOND_NS < 3600,
        ),
        ({"start": "2007-10-01T02:00Z"}, lambda row: row[4] >= START_NS + 7200 * SECOND_NS),
    ],
)
def test_a_part_is_chosen(web: httpx.Client, network: hg.OpenArchive, params: Any, keep: Any) -> None:  # noqa: ANN401
    answer = web.get("/api/v1/series", params=params)
    assert table(answer.content, "csv") == expected(network, keep=keep)


def test_coverages_hold_the_values_with_flags_and_bounds(web: httpx.Client, network: hg.OpenArchive) -> None:
    answer = web.get("/api/v1/series", params={"f": "covjson"})
    CoverageCollection.model_validate_json(answer.content)
    found = []
    for one in answer.json()["coverages"]:
        axes = one["domain"]["axes"]
        key = min(one["ranges"], key=len)
        name, height = (RAIN, None) if key == RAIN else (AIR, float(key.removeprefix(f"{AIR}_").removesuffix("m")))
        stamps = [parse_instant(text) for text in axes["t"]["values"]]
        starts = [parse_instant(text) for text in axes["t"]["bounds"][::2]] if name == RAIN else stamps
        values, flags = one["ranges"][key]["values"], one["ranges"][f"{key}_flag"]["values"]
        found += [(one["id"], name, height, *row) for row in zip(starts, stamps, values, flags, strict=True)]
        assert ("x" in axes) == (one["id"] != "lost")
    assert sorted(found, key=str) == expected(network)


def test_netcdf_is_one_kind_of_series(web: httpx.Client, network: hg.OpenArchive) -> None:
    refused = web.get("/api/v1/series", params={"f": "netcdf"})
    assert refused.status_code == 400
    assert f"{AIR}_2m, {AIR}_10m, {RAIN}" in refused.json()["detail"]
    answer = web.get("/api/v1/series", params={"f": "netcdf", "variable": RAIN})
    with h5netcdf.File(io.BytesIO(answer.content), "r") as file:
        rows = expected(network, keep=lambda row: row[1] == RAIN)
        np.testing.assert_array_equal(np.sort(file["time"][:]), np.sort([row[4] // 1000 for row in rows]))
        assert file.attrs["Conventions"] == "CF-1.11, ACDD-1.3"
        assert file.attrs["cdm_data_type"] == "TimeSeries"
        assert file.attrs["time_coverage_start"] == "2007-10-01T00:00Z"
        assert file.attrs["geospatial_lat_max"] == 45.8


@pytest.mark.parametrize("name", [RAIN, f"{AIR}_2m"])
def test_the_judges_of_cf_and_acdd_find_no_error(web: httpx.Client, tmp_path: Path, name: str) -> None:
    path = tmp_path / "readings.nc"
    path.write_bytes(web.get("/api/v1/series", params={"f": "netcdf", "variable": name}).content)
    assert judge_cf(path) + judge_acdd(path) == []


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"station": "nobody"}, 404),
        ({"variable": "nothing"}, 404),
        ({"f": "xls"}, 404),
        ({"flags": "7"}, 400),
        ({"flags": "one"}, 400),
        ({"flags": "1" * 400}, 400),
        ({"start": "yesterday"}, 400),
        ({"start": "1500-01-01"}, 400),
        ({"start": "2007-10-02", "stop": "2007-10-01"}, 400),
        ({"snapshot": "../../etc"}, 404),
        ({"as_of": "never"}, 400),
    ],
)
def test_bad_words_are_told(web: httpx.Client, params: dict[str, str], status: int) -> None:
    answer = web.get("/api/v1/series", params=params)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text


def test_each_name_there_is_is_told_once(web: httpx.Client) -> None:
    names = web.get("/api/v1/series", params={"variable": "nothing"}).json()["detail"].partition("There are: ")[2]
    told = names.split(", ")
    assert sorted(set(told)) == told
    assert "air_temperature" in told


def test_the_same_table_is_not_sent_again(web: httpx.Client) -> None:
    first = web.get("/api/v1/series", params={"station": "a"})
    again = web.get("/api/v1/series", params={"station": "a"}, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = web.get("/api/v1/series", params={"station": "lost"}, headers={"If-None-Match": first.headers["etag"]})
    assert other.status_code == 200


def test_as_of_an_instant_before_any_arrival_there_is_nothing(web: httpx.Client) -> None:
    answer = web.get("/api/v1/series", params={"as_of": "2007-10-01T00:00Z"})
    assert list(csv.reader(io.StringIO(answer.text)))[1:] == []


def test_latest_values(web: httpx.Client, network: hg.OpenArchive) -> None:
    newest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in expected(network):
        if row[:3] not in newest or row[4] > newest[row[:3]][4]:
            newest[row[:3]] = row
    answer = web.get("/api/v1/latest")
    assert answer.headers["content-type"] == "application/geo+json"
    found = [feature["properties"] for feature in answer.json()["features"]]
    listed = [
        (one["station"], one["variable"], one["height_m"], parse_instant(one["start"]), parse_instant(one["end"]),
         one["value"], one["flag"]) for one in found
    ]  # fmt: skip
    assert sorted(listed, key=str) == sorted(newest.values(), key=str)
    assert {one["unit"] for one in found} == {"degC", "mm"}
    places = {f["properties"]["station"]: f["geometry"] for f in answer.json()["features"]}
    assert places["a"] == {"type": "Point", "coordinates": [7.1, 45.8]}
    assert places["lost"] is None
    again = web.get("/api/v1/latest", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304
    rows = list(csv.DictReader(io.StringIO(web.get("/api/v1/latest", params={"variable": RAIN, "f": "csv"}).text)))
    assert {row["station"] for row in rows} == {"a", "lost"}
    assert web.get("/api/v1/latest", params={"variable": "nothing"}).status_code == 404
    assert web.get("/api/v1/latest", params={"f": "xls"}).status_code == 404


def test_latest_values_after_commits_are_those_of_a_server_that_starts_then(
    tmp_path: Path, make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest, "LOOKED_S", 0.0)
    store = Archive.create(
        tmp_path / "archive", name="made", slice_s=60, variables=[KNOWN_VARIABLES[AIR]], now_ns=START_NS
    )
    rows: list[tuple[str, int, float, int]] = [("a", 60, 1.0, 1), ("b", 60, 2.0, 1), ("c", 60, np.nan, 9)]
    changes = [
        (rows, [Station(name, name, (Position(None, 7.0, 45.0, 2000.0),)) for name in "ab"]),
        ([("b", 120, 2.0, 1)], []),  # a later stamp
        ([("b", 120, 5.0, 3)], []),  # another value
        ([("c", 180, 0.0, 1), ("d", 60, 4.0, 1)], []),  # a value after a missing one, and a series that was not there
        ([("d", 60, 4.0, 4)], []),  # another flag
        ([("a", 30, 9.0, 1)], [Station("a", "Upper", (Position(None, 7.5, 45.0, 2000.0),))]),  # it moved
    ]
    app = None
    for number, (readings_due, stations) in enumerate(changes, 1):
        names = list(dict.fromkeys(name for name, *_ in readings_due))
        index = np.array([names.index(name) for name, *_ in readings_due], np.int32)
        seconds, value, flag = (np.array(column) for column in list(zip(*readings_due, strict=True))[1:])
        time_ns = START_NS + seconds.astype(np.int64) * SECOND_NS
        series = tuple(Series(AIR, name, interval_s=60.0) for name in names)
        with store.commit(batch=str(number), message="", now_ns=START_NS + number) as writer:
            writer.stations(stations)
            writer.readings(Readings(series, index, time_ns, value, flag.astype(np.uint8), time_ns + number))
        opened = hg.open(tmp_path / "archive")
        app = app or create_app(make_runner(opened), Catalogue(opened))
        fresh = create_app(make_runner(opened), Catalogue(opened))
        bodies = []
        for served in (app, fresh):
            with TestClient(served, base_url="http://127.0.0.1") as client:
                bodies.append([client.get(f"/api/v1/latest{more}").content for more in ("", "?station=a", "?f=csv")])
        assert bodies[0] == bodies[1]
        assert [to_json(json.loads(body)) for body in bodies[0][:2]] == bodies[0][:2]
        assert opened.snapshot.encode() in bodies[0][0]


def test_a_server_that_starts_has_latest_values_at_hand(
    network: hg.OpenArchive, make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(make_runner(network), Catalogue(network))

    def fail(*_args: object, **_options: object) -> Readings:
        raise AssertionError

    with TestClient(app, base_url="http://127.0.0.1") as client:
        monkeypatch.setattr(Archive, "read", fail)
        assert client.get("/api/v1/latest").status_code == 200


def test_a_server_starts_where_latest_values_cannot_be_read(
    network: hg.OpenArchive,
    make_runner: Callable[..., Runner],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_args: object, **_options: object) -> Readings:
        message = "a chunk is cut"
        raise DamagedArchive(message)

    app = create_app(make_runner(network), Catalogue(network))
    with monkeypatch.context() as patched:
        patched.setattr(Archive, "read", fail)
        with TestClient(app, base_url="http://127.0.0.1") as client:
            assert client.get("/health/live").status_code == 200
            assert client.get("/health/ready").status_code == 503
            assert client.get("/api/v1/variables").status_code == 200
    assert "could not be read before the first request: a chunk is cut" in caplog.text


def test_newest_readings_that_take_long_to_read_do_not_hold_up_a_server(
    network: hg.OpenArchive, make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queries.web.app.PREPARED_S", 0.1)
    begun, go_on = threading.Event(), threading.Event()
    read = Archive.read

    def slow(*args: Any, **options: Any) -> Readings:  # noqa: ANN401 - as of the method
        begun.set()
        assert go_on.wait(20)
        return read(*args, **options)

    monkeypatch.setattr(Archive, "read", slow)
    # What takes long to read holds up nobody who asks for something else.
    with TestClient(create_app(make_runner(network), Catalogue(network)), base_url="http://127.0.0.1") as client:
        try:
            assert begun.wait(20)
            assert client.get("/api/v1/variables").status_code == 200
        finally:
            go_on.set()
        assert client.get("/api/v1/latest").status_code == 200


def test_latest_values_do_not_wait_for_series(web: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(chosen: SelectedReadings) -> list[ReadingsPiece]:
        begun.release()
        assert go_on.wait(20)
        return pieces_of(chosen)

    monkeypatch.setattr(readings, "pieces_of", slow)
    with ThreadPoolExecutor(2 * readings.READERS + 1) as threads:
        asked = [threads.submit(web.get, "/api/v1/series") for _ in range(2 * readings.READERS)]
        for _ in range(readings.READERS):
            assert begun.acquire(timeout=60)
        latest = threads.submit(web.get, "/api/v1/latest")
        try:
            assert latest.result(timeout=60).status_code == 200
            assert not any(one.done() for one in asked)
        finally:
            go_on.set()
    assert [one.result().status_code for one in asked] == [200] * len(asked)


def test_short_series_do_not_wait_for_long_ones(web: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(chosen: SelectedReadings) -> list[ReadingsPiece]:
        if chosen.selection.window is None:
            begun.release()
            assert go_on.wait(20)
        return pieces_of(chosen)

    monkeypatch.setattr(readings, "pieces_of", slow)
    monkeypatch.setattr(readings, "FEW", 20)
    with ThreadPoolExecutor(2 * readings.READERS + 1) as threads:
        asked = [threads.submit(web.get, "/api/v1/series") for _ in range(2 * readings.READERS)]
        for _ in range(readings.READERS):
            assert begun.acquire(timeout=60)
        window = {"start": "2007-10-01T00:00Z", "stop": "2007-10-01T00:05Z", "variable": AIR}
        short = threads.submit(web.get, "/api/v1/series", params=window)
        try:
            assert len(short.result(timeout=60).text.splitlines()) == 17
            assert not any(one.done() for one in asked)
        finally:
            go_on.set()
    assert [one.result().status_code for one in asked] == [200] * len(asked)


@pytest.mark.parametrize(("variable", "hours"), [(AIR, None), (AIR, 1), (RAIN, None), (RAIN, 100)])
def test_about_how_many_are_chosen_is_known_before(network: hg.OpenArchive, variable: str, hours: int | None) -> None:
    window = None if hours is None else window_of("2007-10-01", f"2007-10-{1 + hours // 24:02}T{hours % 24:02}:00Z")
    chosen = SelectedReadings(network.store, Selection((variable,), (), window))
    count = sum(len(piece.readings) for piece in pieces_of(chosen))
    assert 0.5 * count <= estimate_count(chosen) <= 2 * count + 10


def test_too_many_readings_are_refused_before_any_is_read(
    network: hg.OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, good = (SelectedReadings(network.store, Selection((AIR,), (), None, flags)) for flags in ((), (1,)))
    count = sum(len(piece.readings) for piece in pieces_of(good))
    # As many as are chosen may be read, however many there are about.
    assert estimate_count(good) > count
    assert sum(len(piece.readings) for piece in pieces_of(good, count)) == count

    def fail(*_args: object, **_options: object) -> Readings:
        raise AssertionError

    monkeypatch.setattr(Archive, "read", fail)
    for chosen in (everything, good):
        with pytest.raises(TooLarge, match="ask for one part after the other"):
            pieces_of(chosen, count - 1)


def test_functions_say_what_their_parameters_may_be(web: httpx.Client) -> None:
    functions = web.get("/api/v1/functions").json()
    for rows in functions.values():
        for row in rows:
            jsonschema.Draft202012Validator.check_schema(row["schema"])
    schemas = {(kind, row["name"]): row["schema"] for kind, rows in functions.items() for row in rows}

    def fits(kind: str, name: str, params: Any) -> bool:  # noqa: ANN401
        return bool(jsonschema.Draft202012Validator(schemas[kind, name]).is_valid(params))

    assert fits("convert", "valid_range", {"low": -40.0, "high": "50 degC"})
    assert not fits("convert", "valid_range", {"low": -40.0})
    assert not fits("convert", "valid_range", {"low": -40.0, "high": 50.0, "wide": 1})
    assert fits("aggregate", "mean", {"min_coverage": 0.5})
    model = {"model": "exponential", "psill": 1.2, "range_m": 250.0}
    assert fits("interpolate", "ordinary_kriging", {"variogram": model, "neighbours": 20})
    assert fits("interpolate", "ordinary_kriging", {"variogram": "fit", "neighbours": None})
    assert not fits("interpolate", "ordinary_kriging", {"variogram": model, "neighbours": 0})
