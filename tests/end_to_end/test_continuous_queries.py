"""The twelve queries of station networks on four weeks of the sample network, judged by what was planted there."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.core.geodesy import arc_m, places_m
from ingest.job import ingest
from queries.continuous.forms import list_forms
from station_data.events import HEAT_FLUX, make_commands, make_lightning
from station_data.faults import ALL, Fault, plan
from station_data.generate import generate
from station_data.network import stations
from tests.support.continuous_forms import fill_form
from tests.support.planted_answers import (
    cut_rows,
    episodes_of,
    judge_drift,
    judge_frost,
    judge_rain,
    judge_rain_of_stations,
    judge_silence,
    judge_stuck,
)

NOW_NS = 1_200_000_000 * 10**9
START_S, STOP_S = (pd.Timestamp(day).value // 10**9 for day in ("2007-09-20", "2007-10-18"))
OUTAGES = {
    "lac": ("2007-09-26T03:00Z", "2007-09-26T05:00Z"),
    "col": ("2007-10-15T10:00Z", "2007-10-15T10:50Z"),
    # Too short to be called silence.
    "est": ("2007-10-02T06:00Z", "2007-10-02T06:20Z"),
}
Ask = Callable[[str], pd.DataFrame]


@pytest.fixture(scope="session")
def of_stations(root: Path) -> pd.DataFrame:
    """Stations with their catchments and gateways."""
    return pd.read_csv(root / "station_data/queries/continuous/stations.csv", dtype={"station": str})


@pytest.fixture(scope="session")
def outages(of_stations: pd.DataFrame) -> list[tuple[str, int, int]]:
    """Outages of gateways as those of their stations: station, first second, end."""
    return [
        (station, *(pd.Timestamp(bound).value // 10**9 for bound in OUTAGES[gateway]))  # type: ignore[misc]
        for gateway, group in of_stations.groupby("gateway")
        for station in group["station"]
    ]


@dataclass(frozen=True)
class Month:
    """Four weeks of the sample network, in which gateways fail, and what was planted there."""

    archive: hg.OpenArchive
    faults: tuple[Fault, ...]
    ask: Ask
    """Run the query of a file."""

    def fill(self, form: str) -> pd.DataFrame:
        """Run the query that a form writes as it begins."""
        own = hg.continuous(self.archive)
        known = own.inputs.of_archive
        forms = {item.name: item for item in list_forms(self.archive, known.streams.keys() | known.relations.keys())}
        return own.query(fill_form(forms[form])).run()


@pytest.fixture(scope="session")
def months(
    tmp_path_factory: pytest.TempPathFactory, root: Path, outages: list[tuple[str, int, int]]
) -> Callable[[int], Month]:
    """Months by the seed of their noise and faults, each made once."""
    folder, events = root / "station_data/queries/continuous", tmp_path_factory.mktemp("events")
    subprocess.run([sys.executable, "-m", "station_data.events", str(events)], cwd=root, check=True)
    tables = {name: folder / f"{name}.csv" for name in ("stations", "thresholds")}
    tables |= {name: events / f"{name}.csv" for name in ("lightning", "commands", "acks", "sonic")}

    @cache
    def make(seed: int) -> Month:
        made = tmp_path_factory.mktemp(f"month_{seed}")
        generate(made / "stations", seed=seed, formats=("sensorscope",))
        cut_rows(made / "stations", outages)
        ingest([made / "stations"], made / "archive", engine="inprocess", now_ns=NOW_NS)
        archive = hg.open(made / "archive")
        source = hg.continuous(archive, tables=tables)

        def ask(name: str) -> pd.DataFrame:
            return source.query((folder / f"{name}.cql").read_text()).run()

        return Month(archive, plan(seed, stations(), START_S, STOP_S), ask)

    return make


@pytest.fixture(params=[2007, 1], ids="seed_{}".format)
def either(request: pytest.FixtureRequest, months: Callable[[int], Month]) -> Month:
    """The month of the documents, and one of other noise and faults."""
    return months(request.param)


@pytest.fixture
def month(months: Callable[[int], Month]) -> hg.OpenArchive:
    """Archive of the month of the documents."""
    return months(2007).archive


@pytest.fixture
def ask(months: Callable[[int], Month]) -> Ask:
    """Run the query of a file in the month of the documents."""
    return months(2007).ask


def test_heavy_rain_is_that_of_the_three_events(either: Month) -> None:
    score = judge_rain(episodes_of(either.ask("01_flash_flood"), ["catchment"]))
    print(f"flash flood: {score}")
    assert (score.precision, score.recall) == (1.0, 1.0)
    score = judge_rain_of_stations(episodes_of(either.fill("rain"), ["station"]))
    print(f"form of rain: {score}")
    assert (score.precision, score.recall) == (1.0, 1.0)


def test_the_thermometer_that_drifts_is_reported_and_no_other(either: Month) -> None:
    episodes = episodes_of(either.ask("03_drifting_station"), ["station"])
    score = judge_drift(episodes, either.faults)
    (fault,) = (each for each in either.faults if (each.kind, each.variable) == ("drift", "air_temperature"))
    days = (episodes["start"].iloc[0].timestamp() - fault.start_s) / 86_400
    print(f"drifting station: {score}, after {days:.1f} days of {fault.magnitude} K")
    assert (score.precision, score.recall) == (1.0, 1.0)
    # It begins once, and goes on to the end.
    assert len(episodes) == 1
    pd.testing.assert_frame_equal(either.fill("drift"), either.ask("03_drifting_station"))


def test_drift_as_the_specification_writes_it_is_also_the_cold_air_of_hollows(either: Month) -> None:
    (fault,) = (each for each in either.faults if (each.kind, each.variable) == ("drift", "air_temperature"))
    plain = either.ask("03_drift")
    at_end = plain[plain["tau"] >= "2007-10-16"]
    with_drift = (at_end[["station", "neighbour"]] == fault.station).any(axis=1)
    print(f"drift as written: {with_drift.mean():.3f} of the changes of the last two days with {fault.station}")
    assert with_drift.mean() < 0.5


def test_frost_is_warned_of_before_it_comes(either: Month) -> None:
    score = judge_frost(either.ask("04_frost"))
    print(f"frost: {score}")
    assert score.precision > 0.85
    assert score.recall > 0.85


def test_silences_are_those_planted_and_nothing_else(either: Month, outages: list[tuple[str, int, int]]) -> None:
    whole = [each for each in either.faults if each.variable == ALL and each.kind != "timezone"]
    own = [(each.station, each.start_s, each.end_s) for each in whole]
    planted = own + [
        (station, start, end)
        for station, start, end in outages
        if end - start > 1800 and not any(name == station and first < end and start < last for name, first, last in own)
    ]
    score = judge_silence(either.ask("05_silent_stations"), planted)
    print(f"silent stations: {score}")
    assert (score.precision, score.recall) == (1.0, 1.0)


def test_gateways_that_fail_are_those_planted_and_nothing_else(either: Month) -> None:
    wanted = {name: pd.Timestamp(start) for name, (start, _) in OUTAGES.items() if name != "est"}
    changes = either.ask("05_silent_gateway")
    episodes = episodes_of(changes, ["gateway"])
    longest = changes.groupby("gateway")["silent"].max()
    print(f"silent gateways: {len(episodes)} episodes, of up to {longest.to_dict()} stations")
    assert sorted(set(episodes["gateway"])) == sorted(wanted)
    check_outages(episodes, {gateway: wanted[gateway] for gateway in episodes["gateway"]})
    # The form does not know the gateways.
    together = either.fill("silent")
    episodes = episodes_of(together.assign(network="all"), ["network"])
    print(f"form of silence: {len(episodes)} episodes, of up to {together['silent'].max()} stations")
    assert len(episodes) == len(wanted)
    check_outages(episodes, dict(zip(episodes.index, sorted(wanted.values()), strict=True)))


def check_outages(episodes: pd.DataFrame, starts: Mapping[object, pd.Timestamp]) -> None:
    """Check that episodes begin half an hour after outages, within two intervals, and end a quarter later."""
    keys = episodes["gateway"] if "gateway" in episodes else episodes.index
    for key, group in episodes.groupby(keys):
        late = group["start"].min() - starts[key] - pd.Timedelta("30min")
        assert pd.Timedelta("-4min") <= late <= pd.Timedelta("4min")
        assert group["end"].max() - group["start"].min() <= pd.Timedelta("15min")


def test_stuck_sensors_are_those_planted_and_nothing_else(either: Month) -> None:
    faults = [each for each in either.faults if each.kind == "stuck"]
    changes = either.ask("08_stuck_but_calm")
    score = judge_stuck(episodes_of(changes, ["station", "variable"]), faults)
    print(f"stuck sensors: {score}")
    assert (score.precision, score.recall) == (1.0, 1.0)
    pd.testing.assert_frame_equal(either.fill("stuck"), changes)
    # Rain gauges and radiation by night repeat their values, too.
    assert len(episodes_of(either.ask("08_stuck"), ["series"])) > 10 * len(faults)


def test_commands_without_acknowledgement_are_those_planted(ask: Ask) -> None:
    missed = ask("10_commands")
    assert missed["command"].to_list() == make_commands().late
    assert len(missed) > 10


def test_rain_near_lightning_is_that_of_all_pairs(ask: Ask, month: hg.OpenArchive, of_stations: pd.DataFrame) -> None:
    rain = hg.continuous(month).query("Select Rstream(station, mm) From rain [Now] Where mm >= 0.2").run()
    rain = rain[(rain["tau"] >= "2007-09-28T09:00Z") & (rain["tau"] <= "2007-09-28T17:00Z")]
    rain = rain.merge(of_stations, on="station")
    places, taus = places_m(rain["lon"].to_numpy(), rain["lat"].to_numpy()), rain["tau"].astype("int64").to_numpy()
    ten_minutes = 600 * 10**9
    changes: Counter[tuple[object, ...]] = Counter()
    for tau, lon, lat, _ in make_lightning():
        near = arc_m(np.linalg.norm(places - places_m(np.array(lon), np.array(lat)), axis=-1)) < 5000
        for at in np.flatnonzero(near & (np.abs(taus - tau) < ten_minutes)).tolist():
            row = (lon, lat, rain["station"].iloc[at], rain["mm"].iloc[at])
            changes[max(tau, int(taus[at])), *row] += 1
            # Equal rows that enter and leave at one instant do not show (R2).
            changes[min(tau, int(taus[at])) + ten_minutes, *row] -= 1
    told = ask("06_lightning")
    wanted = sum(max(count, 0) for count in changes.values())
    print(f"rain near lightning: {len(told)} pairs")
    assert len(told) == wanted > 0


def test_the_heat_flux_of_a_sample_is_near_that_of_all(ask: Ask) -> None:
    flux = ask("11_heat_flux")
    last = flux[flux["sign"] == 1].set_index("tau")["heat_flux"].loc["2007-10-01T12:30Z"]
    # The covariance of 7,200 pairs has a standard error of about sqrt((s_w s_t)**2 + c**2) / sqrt(7200).
    error = np.hypot(0.6 * np.hypot(0.3, HEAT_FLUX / 0.6), HEAT_FLUX) / np.sqrt(7200)
    assert abs(last - HEAT_FLUX) < 4 * error


@pytest.mark.parametrize("name", ["02_foehn", "07_cold_air_pool"])
def test_questions_of_weather_that_the_sample_lacks_have_no_answer(ask: Ask, name: str) -> None:
    # Nowhere is the air above 12 degC in a wind of 6 m/s, nor the hollow 4 K colder than the crest at these stations.
    assert ask(name).empty


def test_milder_foehn_is_that_of_the_packets(month: hg.OpenArchive) -> None:
    text = "Select Rstream(station, wind_speed) From obs [Now] Where wind_speed > '3 m/s' and relative_humidity < 90"
    told = hg.continuous(month).query(text).run("2007-09-27", "2007-09-29")
    days = ("2007-09-27", "2007-09-29")
    wind, humidity = (month[name].clip(time=days).to_pandas() for name in ("wind_speed", "relative_humidity"))
    both = wind.merge(humidity, on=["station", "time"])
    wanted = both[(both["value_x"] > 3) & (both["value_y"] < 90)]
    given, direct = (sorted(zip(*columns, strict=True)) for columns in (
        (told["tau"], told["station"]), (wanted["time"], wanted["station"])
    ))  # fmt: skip
    assert given == direct
    assert given


def test_rain_on_snow_joins_three_variables_of_one_packet(month: hg.OpenArchive, root: Path) -> None:
    packets = hg.continuous(month).query("Select Rstream(station, slice, time) From air_temperature [Now]")
    snow = packets.run("2007-09-28T10:00Z", "2007-09-28T16:00Z").drop(columns=["sign", "time"])
    snow["value"] = np.where(snow["station"].astype(int) % 2 == 0, 30.0, 10.0)
    text = (root / "station_data/queries/continuous/09_rain_on_snow.cql").read_text()
    source = hg.continuous(month, tables={"snow_depth": snow})
    given = source.query(text.replace("r.mm > 0.5", "r.mm >= 0.2")).run("2007-09-28T10:00Z", "2007-09-28T16:00Z")
    assert len(given) > 0
    assert (given["station"].astype(int) % 2 == 0).all()


def test_vineyards_are_sure_of_frost_where_the_surface_is(month: hg.OpenArchive, root: Path) -> None:
    cells = [(x, y) for x in range(10) for y in range(10)]
    surface = pd.DataFrame({"x": [float(x) for x, _ in cells], "y": [float(y) for _, y in cells]})
    surface["value"], surface["variance"] = surface["x"] - 5.0, 1.0
    vineyards = pd.DataFrame(
        {
            "name": ["west", "east"],
            "shape": ["POLYGON ((-1 -1, 1.5 -1, 1.5 11, -1 11, -1 -1))", "POLYGON ((6 0, 8 0, 8 8, 6 8, 6 0))"],
        }
    )
    text = (root / "station_data/queries/continuous/12_vineyards.cql").read_text()
    sure = hg.continuous(month, tables={"surface_frost": surface, "vineyards": vineyards}).query(text).run()
    assert sure[["name", "coldest"]].to_numpy().tolist() == [["west", -5.0]]
