"""Networks of strangers, from the raw folder to a map, files and an alert, by commands; their maps are judged.

`foreign/` draws them. What a stranger writes by hand is the zone and the units of the proposed deployment file.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries
from queries.web.app import create_app
from tests.end_to_end.foreign.clean_archive import ask_intervals, coarsen, write_clean
from tests.end_to_end.foreign.judging import Score, judge, pick, pool
from tests.end_to_end.foreign.networks import NETWORKS, Network
from tests.end_to_end.foreign.seeds import SEEDS, seed_of
from tests.end_to_end.in_process import hypergrid
from tests.judges import judge_file
from tests.serving import serving

NAMELESS = [
    f'variable "air_temperature_{name}" missing the following attributes:: standard_name'
    for name in ("variance", "count_possible")
]
"""What has no standard name in CF: a variance, and how many readings there could have been."""
COMMANDS = 5
"""How many lead from the raw folder to a map, at most."""
ALERT_S = 60.0
"""How long an alert may take to arrive on a machine that is busy with other things [s]."""


def run(*words: str | Path) -> None:
    """Run a command, which must succeed."""
    done = hypergrid(*words)
    assert done.returncode == 0, f"hypergrid {' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}"


class Visit:
    """What a stranger does with a network's folder; each step is taken once, when something needs it."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network, self.folder, self.archive = network, folder, folder / "archive"
        self.commands: list[str] = []
        """Those that lead to the map."""
        network.write(folder)

    def run(self, *words: str | Path) -> None:
        self.commands.append(" ".join(map(str, words)))
        run(*words)

    @cached_property
    def deployment(self) -> Path:
        """The proposed deployment file, with the zone, and the units that no file states, written in by hand."""
        path = self.folder / "deployment.toml"
        self.run("ingest", "--dry-run", self.folder / "raw", "--write-deployment", path)
        text = path.read_text("utf-8")
        if self.network.units:
            text = re.sub(r"(?m)^(?:# *)?timezone = \S+", f'timezone = "{self.network.zone}"', text)
        for column, unit in self.network.units.items():
            written = re.compile(rf'(?m)^("?{column}"? = \{{variable = "\w+")(?:, unit = "[^"]*")?')
            text, count = written.subn(rf'\1, unit = "{unit}"', text)
            assert count == 1, f"the proposal has {count} lines of {column}:\n{text[:3000]}"
        path.write_text(text, "utf-8")
        return path

    @cached_property
    def ingested(self) -> hg.OpenArchive:
        """The archive, with the terrain where there is some."""
        self.run("ingest", self.folder / "raw", "--archive", self.archive, "--deployment", self.deployment)
        if self.network.elevation is not None:
            self.run("layers", "add", self.folder / "terrain.tif", "--archive", self.archive)
        return hg.open(self.archive)

    @cached_property
    def query(self) -> Path:
        """The suggested query, with its variance."""
        path = self.folder / "first.json"
        assert self.ingested
        self.run("suggest", self.archive, "-o", path)
        path.write_text(json.dumps(ask_intervals(json.loads(path.read_text("utf-8")))), "utf-8")
        return path

    @cached_property
    def map(self) -> Path:
        path = self.folder / "map.nc"
        self.run("query", self.query, "--archive", self.archive, "-o", path)
        return path

    @cached_property
    def readings(self) -> list[Path]:
        """The files of all readings."""
        assert self.ingested
        run("export", self.archive, "-o", self.folder / "readings.nc")
        return sorted(self.folder.glob("readings*.nc"))

    def judged(self) -> Score:
        with xr.open_dataset(self.map, engine="h5netcdf") as answer:
            return judge(self.network, answer)


def add_terrain(network: Network, archive: Path) -> None:
    network.write(archive.parent / "files")
    run("layers", "add", archive.parent / "files/terrain.tif", "--archive", archive)


@contextmanager
def served(archive: Path) -> Iterator[str]:
    """Serve an archive with its standing queries, as `hypergrid serve` does; give the address."""
    opened = hg.open(archive)
    with StandingQueries(opened, clock=time.time_ns) as standing:
        standing.start()
        with serving(create_app(Runner(opened), Catalogue(opened), standing=standing)) as address:
            yield address


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
    found = {
        f"{path.name} by {rules}": [lack for lack in judge_file(path, rules) if lack not in NAMELESS]
        for path in paths
        for rules in ("cf", "acdd")
    }
    assert {name: lacks for name, lacks in found.items() if lacks} == {}


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
        run("ingest", visit.folder / "later", "--archive", visit.archive, "--deployment", visit.deployment)
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
    visits = (Visit(NETWORKS[name](seed_of(number)), tmp_path / f"{number}") for number in range(SEEDS))
    scores = [visit.judged() for visit in visits]
    assert pool(scores).failures == [], report(scores)
