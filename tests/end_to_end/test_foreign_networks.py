"""Networks of strangers, from the raw folder to a map, files and an alert, by commands; their maps are judged.

`foreign/` draws them. What a stranger writes by hand is the zone and the units of the proposed deployment file.
"""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from tests.end_to_end.foreign.clean_archive import coarsen, write_clean
from tests.end_to_end.foreign.judging import Score, judge, pick, pool
from tests.end_to_end.foreign.networks import NETWORKS, Network
from tests.end_to_end.foreign.seeds import SEEDS, seed_of
from tests.end_to_end.foreign.visit import Visit, find_lacks, run, served
from tests.end_to_end.in_process import process

COMMANDS = 5
"""How many lead from the raw folder to a map, at most."""
ALERT_S = 60.0
"""How long an alert may take to arrive on a machine that is busy with other things [s]."""


def add_terrain(network: Network, archive: Path) -> None:
    network.write(archive.parent / "files")
    run("layers", "add", archive.parent / "files/terrain.tif", "--archive", archive)


def wait_for_alerts(address: str) -> list[dict[str, Any]]:
    """Wait until there are alerts, and return those that there are then."""
    end = time.monotonic() + ALERT_S
    while time.monotonic() < end:
        if alerts := httpx.get(f"{address}/api/v1/standing/alerts").raise_for_status().json():
            return list(alerts)
        time.sleep(0.1)
    pytest.fail(f"no alert within {ALERT_S:g} s")


def report(scores: list[Score]) -> str:
    """Return a line for each weather: correlation, mean error and coverage beside what is possible."""
    lines = []
    for number, score in enumerate(scores):
        ours, best = score.chosen, score.possible
        lines.append(
            f"{number:2d} correlation {ours.correlation:.3f} of {best.correlation:.3f}, mean error "
            f"{ours.error_k / score.spread_k:+.2f} ({best.error_k / score.spread_k:+.2f}) deviations, "
            f"covered {ours.covered:.2f} ({best.covered:.2f}): {score.method[:100]}"
        )
    return "\n".join([f"{pool(scores)}", *lines])


@pytest.fixture(scope="module", params=NETWORKS)
def visit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    """Give a network of each kind, in the first weather that is drawn for it."""
    return Visit(NETWORKS[request.param](seed_of(0)), tmp_path_factory.mktemp(request.param))


def test_a_map_is_five_commands_away(visit: Visit) -> None:
    assert visit.map.is_file()
    assert len(visit.commands) <= COMMANDS, visit.commands
    document = json.loads(visit.query.read_text("utf-8"))
    assert document["variable"] == "air_temperature"
    assert document["steps"][-1]["method"] == "auto"


def test_every_reading_is_understood(visit: Visit) -> None:
    network, archive = visit.network, visit.ingested
    stations = network.weather.stations
    assert set(archive.stations) == set(network.ids)
    for at, name in enumerate(network.ids):
        (position,) = archive.stations[name].positions
        assert abs(position.lon - stations.lon[at]) < 1e-6
        assert abs(position.lat - stations.lat[at]) < 1e-6
        assert position.elevation_m == stations.elevation[at]
    found = archive.store.read("air_temperature")
    names = [series.station for series in found.series]
    time_at, station_at = np.nonzero(network.rows[: network.raw_count])
    assert archive.variables["air_temperature"].unit == "degC"
    for at, name in enumerate(network.ids):
        mine = found.index == names.index(name)
        order = np.argsort(found.time_ns[mine])
        wanted = time_at[station_at == at]
        np.testing.assert_array_equal(found.time_ns[mine][order], network.weather.times_ns[wanted], err_msg=name)
        # What says that it is missing is missing, and nothing else.
        np.testing.assert_allclose(
            found.value[mine][order], network.written_c[wanted, at], rtol=0.0, atol=1e-9, err_msg=name
        )
    assert archive.store.rejects() == []


def test_the_map_is_that_of_the_readings_as_they_are_meant(visit: Visit, tmp_path: Path) -> None:
    clean = write_clean(visit.network, tmp_path / "archive")
    if visit.network.elevation is not None:
        add_terrain(visit.network, tmp_path / "archive")
    wanted = clean.latest().query(json.loads(visit.query.read_text("utf-8"))).compute()
    with xr.open_dataset(visit.map, engine="h5netcdf") as answer:
        for what in ("", "variance"):
            np.testing.assert_allclose(pick(answer, what).values, pick(wanted, what).values, rtol=1e-6)


def test_map_and_readings_are_files_as_the_conventions_ask(visit: Visit) -> None:
    paths = [visit.map, *visit.readings]
    assert len(paths) > 1
    assert find_lacks(paths) == {}


def test_an_alert_arrives(visit: Visit) -> None:
    assert visit.ingested
    hot = {
        "name": "hot",
        "query": {"variable": "air_temperature", "steps": []},
        "condition": {"kind": "threshold", "above": visit.network.threshold_c, "clear": visit.network.threshold_c - 1},
    }
    (visit.folder / "hot.json").write_text(json.dumps(hot))
    run("standing", "add", visit.archive, visit.folder / "hot.json")
    with served(visit.archive) as address:
        assert httpx.get(f"{address}/api/v1/standing/alerts").raise_for_status().json() == []
        visit.ingest_later()
        raised = wait_for_alerts(address)
    rows = visit.network.written_c[visit.network.raw_count :]
    above = {name for at, name in enumerate(visit.network.ids) if np.nanmax(rows[:, at]) > visit.network.threshold_c}
    assert len(above) > len(visit.network.ids) / 2
    assert {alert["place"] for alert in raised if alert["happening"] == "raised"} <= above


@pytest.mark.parametrize("name", NETWORKS)
def test_maps_are_nearly_as_good_as_kriging_with_the_true_covariance(name: str, tmp_path: Path) -> None:
    scores = []
    for number in range(SEEDS):
        network = NETWORKS[name](seed_of(number))
        archive = write_clean(network, tmp_path / f"{number}")
        if network.elevation is not None:
            add_terrain(network, archive.path)
        query = coarsen(hg.suggest(archive.latest(), "air_temperature").to_json())
        scores.append(judge(network, archive.latest().query(query).compute()))
    assert pool(scores).failures == [], report(scores)


@pytest.mark.parametrize("name", NETWORKS)
def test_maps_of_raw_folders_are_nearly_as_good(name: str, tmp_path: Path) -> None:
    scores = []
    for number in range(SEEDS):
        visit = Visit(NETWORKS[name](seed_of(number)), tmp_path / f"{number}", execute=process)
        scores.append(visit.judged())
        assert len(visit.commands) <= COMMANDS, visit.commands
        shutil.rmtree(visit.folder)
    print(report(scores))
    assert pool(scores).failures == [], report(scores)
