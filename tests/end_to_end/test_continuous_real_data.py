"""Continuous queries over stations that others built; each hit was looked at, and the README says what it is."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery
from ingest.job import ingest
from queries.continuous.catalogue import describe_catalogue
from queries.continuous.forms import list_forms
from tests.support.continuous_forms import fill_form
from tests.support.planted_answers import episodes_of

NOW_NS = 1_300_000_000 * 10**9
Fill = Callable[[str], pd.DataFrame]


def archive_of(root: Path, name: str, folder: Path, deployment: Path | None = None) -> hg.OpenArchive:
    files = root.parent / "shared/data" / name
    if not files.is_dir():
        pytest.skip(f"the real data set ../shared/data/{name} is not here")
    ingest([files], folder / "archive", deployment=deployment, engine="inprocess", now_ns=NOW_NS)
    return hg.open(folder / "archive")


@pytest.fixture(scope="module")
def gsb(root: Path, tmp_path_factory: pytest.TempPathFactory) -> hg.OpenArchive:
    """Fourteen stations of the Grand-St-Bernard pass, every two minutes."""
    deployment = root / "station_data/deployments/gsb.toml"
    return archive_of(root, "sensorscope_gsb", tmp_path_factory.mktemp("gsb"), deployment)


@pytest.fixture(scope="module")
def imis(root: Path, tmp_path_factory: pytest.TempPathFactory) -> hg.OpenArchive:
    """Seven alpine stations with hourly readings, and two of another winter."""
    return archive_of(root, "meteoio_imis", tmp_path_factory.mktemp("imis"))


def form_filler(archive: hg.OpenArchive) -> Fill:
    source = hg.continuous(archive)
    known = source.inputs.of_archive
    forms = {form.name: form for form in list_forms(archive, known.streams.keys() | known.relations.keys())}
    return lambda name: source.query(fill_form(forms[name])).run()


def list_stuck(fill: Fill) -> dict[str, dict[str, int]]:
    """Return the number of episodes of each station, by variable."""
    episodes = episodes_of(fill("stuck"), ["station", "variable"])
    return {
        str(variable): dict(sorted(Counter(group["station"]).items()))
        for variable, group in episodes.groupby("variable")
    }


def test_the_pass_has_three_thermometers_that_leave_their_neighbours(gsb: hg.OpenArchive) -> None:
    episodes = episodes_of(form_filler(gsb)("drift"), ["station"])
    assert dict(zip(episodes["station"], episodes["start"].dt.strftime("%m-%d"), strict=True)) == {
        "2": "09-22", "15": "09-29", "9": "10-02",
    }  # fmt: skip


def test_the_pass_has_sensors_that_rest_at_minus_one(gsb: hg.OpenArchive) -> None:
    assert list_stuck(form_filler(gsb)) == {
        "air_temperature": {"2": 5, "4": 1, "6": 3, "9": 20},
        "watermark": {"10": 13, "12": 20, "2": 3, "3": 4, "4": 4, "5": 13, "9": 16},
    }
    stuck = hg.continuous(gsb).query("Select Rstream(station, value) From air_temperature [Now] Where flag < 9")
    values = stuck.run("2007-09-15", "2007-09-19")
    assert set(values.loc[values["station"] == "4", "value"]) == {-1.0}


def test_stations_of_the_pass_fall_silent_together_while_they_are_set_up(gsb: hg.OpenArchive) -> None:
    (only,) = episodes_of(form_filler(gsb)("silent").assign(network="all"), ["network"])["start"]
    assert only == pd.Timestamp("2007-09-13T14:05:46Z")


def test_rain_of_the_pass_is_seen_by_many_gauges_except_one(gsb: hg.OpenArchive) -> None:
    episodes = episodes_of(form_filler(gsb)("rain"), ["station"])
    days = {day: set(group["station"]) for day, group in episodes.groupby(episodes["start"].dt.strftime("%m-%d"))}
    assert {day: len(at) for day, at in days.items()} == {
        "09-16": 10, "09-17": 10, "09-18": 2, "09-21": 1, "09-27": 2, "09-28": 7, "09-30": 9, "10-03": 14, "10-04": 3,
    }  # fmt: skip
    assert days["09-21"] == {"7"}


def test_hourly_stations_are_silent_after_three_hours_and_too_far_apart_to_compare(imis: hg.OpenArchive) -> None:
    fill = form_filler(imis)
    (only,) = episodes_of(fill("silent").assign(network="all"), ["network"])["start"]
    # The files of all seven end at 2009-01-31T22:00Z.
    assert only == pd.Timestamp("2009-02-01T01:00Z")
    assert fill("drift").empty


def test_hourly_stations_have_ground_that_rests_below_snow_and_fog(imis: hg.OpenArchive) -> None:
    stuck = list_stuck(form_filler(imis))
    assert sorted(stuck) == ["ground_surface_temperature", "relative_humidity"]
    assert stuck["relative_humidity"] == {"GLA2": 1, "ISEE2": 2}
    assert len(stuck["ground_surface_temperature"]) == 8


def test_an_hourly_gauge_gives_rain_in_sunshine(imis: hg.OpenArchive) -> None:
    episodes = episodes_of(form_filler(imis)("rain"), ["station"])
    assert list(zip(episodes["station"], episodes["start"].astype(str), strict=True)) == [
        ("GLA2", "2008-12-22 14:00:00+00:00"), ("GLA2", "2008-12-23 11:00:00+00:00"),
    ]  # fmt: skip


def test_examples_that_are_offered_run_or_say_which_stations_are_missing(
    gsb: hg.OpenArchive, imis: hg.OpenArchive
) -> None:
    rows: dict[str, dict[int, int]] = {}
    for name, archive in (("gsb", gsb), ("imis", imis)):
        source = hg.continuous(archive)
        rows[name] = {}
        for example in describe_catalogue(source)["examples"]:
            if (name, example["number"]) == ("imis", 7):
                with pytest.raises(InvalidQuery, match="the archive has none of air_temperature at station '3' or '7'"):
                    source.query(example["text"]).run()
            else:
                rows[name][example["number"]] = len(source.query(example["text"]).run())
    assert rows["gsb"] == {1: 1070, 2: 0, 3: 253027, 4: 40773, 5: 4, 7: 32, 8: 217}
    assert rows["imis"] == {2: 0, 3: 0, 4: 5895, 5: 2, 8: 241}
