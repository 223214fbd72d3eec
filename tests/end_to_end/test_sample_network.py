"""The reference queries on the sample network, against its truth."""

import json
from pathlib import Path

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.cli.demo import compare
from ingest.job import ingest
from station_data.generate import generate
from station_data.truth import truth_mean

NOW_NS = 1_200_000_000 * 10**9


@pytest.mark.parametrize("seed", [2007, 1, 2])
def test_q1_halves_the_error_of_the_plain_mean(root: Path, tmp_path: Path, seed: int) -> None:
    generate(tmp_path / "stations", start="2007-09-30", days=5, seed=seed, formats=("sensorscope",))
    ingest([tmp_path / "stations"], tmp_path / "archive", engine="inprocess", now_ns=NOW_NS)
    archive = hg.open(tmp_path / "archive")
    document = json.loads((root / "station_data/queries/q1.json").read_text())
    errors = compare(archive, archive.query(document).compute(), document, truth_mean)
    assert errors["rmse_K"] <= 0.5 * errors["rmse_plain_mean_K"]


@pytest.mark.parametrize(
    ("name", "shape"),
    [("q1", (1, 23, 23)), ("q2", (1, 23, 23)), ("q4", (1, 33, 33)), ("q5", (864, 23, 23)), ("q5_fine", (864, 92, 92))],
)
def test_reference_queries_have_their_shapes(root: Path, five_days: Path, name: str, shape: tuple[int, ...]) -> None:
    archive = hg.open(five_days / "build/demo/archive")
    query = archive.query(json.loads((root / f"station_data/queries/{name}.json").read_text()))
    assert query.plan().surface.topology.shape == shape
    if name != "q5_fine":  # the browser tests compute it
        dataset = query.compute()
        assert dataset["value"].shape == shape
        assert np.isfinite(dataset["value"].to_numpy()).all()


@pytest.mark.parametrize("name", ["q1", "q2", "q3", "q4", "q5"])
def test_pykrige_agrees_with_the_reference_queries(root: Path, five_days: Path, name: str) -> None:
    archive = hg.open(five_days / "build/demo/archive")
    document = json.loads((root / f"station_data/queries/{name}.json").read_text())
    # The six days of Q3 are more than these five, and too few of them for a mean.
    document["clip"]["time"][1] = min(document["clip"]["time"][1], "2007-10-04T00:00Z")
    dataset = archive.query(document).compute(second_opinion=50)
    opinion = json.loads(dataset.attrs["hypergrid_second_opinion"])
    (compared,) = opinion["comparisons"]
    assert compared["subject"] == "", "of the surface"
    assert (compared["cells"], compared["total"]) == (50, dataset["value"].size)
    assert compared["relative"] <= compared["allowed"] == 1e-10
    assert compared["greatest"] <= 1e-10 * float(np.abs(dataset["value"]).max())


def test_q3_covers_six_days(root: Path, five_days: Path) -> None:
    archive = hg.open(five_days / "build/demo/archive")
    dataset = archive.query(json.loads((root / "station_data/queries/q3.json").read_text())).compute()
    start, stop = dataset["time_bounds"].to_numpy()[0]
    assert stop - start == np.timedelta64(6, "D")


def test_fluent_and_json_forms_are_one_query(root: Path, five_days: Path) -> None:
    archive = hg.open(five_days / "build/demo/archive")
    written = archive.query(json.loads((root / "station_data/queries/q1.json").read_text()))
    fluent = (
        archive["air_temperature"]
        .convert("valid_range", low=-40.0, high=50.0)
        .aggregate("mean", time="10min")
        .interpolate(
            "ordinary_kriging",
            grid=hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(23, 23)),
            neighbours=20,
            variogram=hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05),
        )
        .aggregate("mean", time="all")
        .clip(time=("2007-10-01", "2007-10-04"))
    )
    assert fluent.token == written.token
