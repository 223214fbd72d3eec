"""Surfaces of standing queries as relations: the slice that holds at each instant, computed as a query does."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.continuous import surface_catalogue
from hypergrid.continuous.archive_catalogue import list_streams
from hypergrid.continuous.live import LiveOptions, add_tap_query
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound, TooLarge
from hypergrid.core.result_names import by_role
from hypergrid.query import OpenArchive
from ingest.spark.backtest import backtest_on_spark
from queries.continuous.catalogue import describe_catalogue
from queries.continuous.records import BacktestQuestion
from queries.continuous.service import ContinuousQueries
from queries.jobs.admission import Asker, Limits, act_as
from queries.jobs.runner import Runner
from queries.standing.definition import definition_from_json
from queries.standing.repository import EvaluationProgress, StandingStore
from tests.end_to_end.in_process import hypergrid
from tests.support.continuous_archives import random_sources

VARIOGRAM = {"model": "exponential", "psill": 1.2, "range_m": 2500.0, "nugget": 0.05}
GRID = {"lon": "7.176", "lat": "45.866", "step": "0.001", "shape": [3, 5]}
MEANS: dict[str, Any] = {"op": "aggregate", "function": "mean", "time": "10min"}
KRIGED: dict[str, Any] = {
    "op": "interpolate",
    "method": "ordinary_kriging",
    "grid": GRID,
    "params": {"variogram": VARIOGRAM},
}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "frost": {"variable": "air_temperature", "steps": [MEANS, KRIGED], "variance": True},
    "cold-air": {"variable": "air_temperature", "steps": [MEANS, KRIGED]},
    "half-hours": {"variable": "wind_speed", "steps": [{**MEANS, "time": "30min"}]},
    "moving": {"variable": "wind_speed", "steps": [{**MEANS, "time": {"step": "10min", "length": "1h"}}, KRIGED]},
    "days": {
        "variable": "air_temperature",
        "steps": [MEANS, {"op": "aggregate", "function": "mean", "time": {"by": "hour of day"}}, KRIGED],
    },
}


def add_standing(archive: OpenArchive, documents: dict[str, dict[str, Any]]) -> None:
    store = StandingStore(archive.path / "standing" / "standing.sqlite")
    for name, document in documents.items():
        definition = definition_from_json({"name": name, "query": document})
        store.add(definition, EvaluationProgress(archive.snapshot), now_ns=0)
    store.close()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> OpenArchive:
    made, _ = random_sources(tmp_path_factory.mktemp("surfaces") / "a", 4, hours=3)
    add_standing(made, {name: each for name, each in DOCUMENTS.items() if name != "days"})
    return made


Rows = Counter[tuple[object, ...]]


def slices_of(archive: OpenArchive, name: str) -> list[tuple[int, Rows]]:
    """Return the end of each slice of the whole surface [ns] with its rows, from its arrays, cell by cell."""
    result = by_role(archive.query(DOCUMENTS[name]).compute())
    ends = result["time_bounds"].to_numpy()[:, 1].astype("datetime64[ns]").astype(np.int64)
    slices = []
    for number, end in enumerate(ends.tolist()):
        one = result.isel(time=number)
        rows: Rows = Counter()
        for index in np.ndindex(one["value"].shape):
            cell = one.isel(dict(zip(one["value"].dims, index, strict=True)))
            variance = float(cell["variance"]) if "variance" in cell else np.nan
            values = (float(cell["lon"]), float(cell["lat"]), float(cell["value"]), variance)
            station = (str(cell["station"].item()),) if "station" in cell.coords else ()
            rows[(*station, *(round_of(value) for value in values))] += 1
        slices.append((end, rows))
    return slices


def round_of(value: float) -> float | None:
    # A stretch is kriged in blocks of its own, which may change the last bits.
    return None if np.isnan(value) else float(f"{value:.9g}")


def rows_of(frame: pd.DataFrame) -> Rows:
    return Counter(
        tuple(round_of(value) if isinstance(value, float) else value for value in row)
        for row in frame.itertuples(index=False)
    )


RELATIONS = {
    "frost": "surface_frost",
    "cold-air": "surface_cold_air",
    "half-hours": "surface_half_hours",
    "moving": "surface_moving",
}


@pytest.mark.parametrize("name", RELATIONS)
def test_at_each_instant_the_last_slice_that_ended_holds(archive: OpenArchive, name: str) -> None:
    query = hg.continuous(archive).query(f"Select * From {RELATIONS[name]}")
    slices = slices_of(archive, name)
    assert len(slices) > 5
    minute = 60 * 10**9
    for number in range(2, len(slices) - 1, 3):
        end, rows = slices[number]
        following = slices[number + 1][0]
        for tau in (end, end + minute, following - 1):
            assert rows_of(query.relation(tau)) == rows
        # A stretch that begins between two slices has the earlier one from its start on.
        assert rows_of(query.relation(end + 2 * minute, start=end + minute)) == rows
    first = slices[0][0]
    assert rows_of(query.relation(first - 1, start=first - minute)) == Counter()


def test_changes_lead_from_slice_to_slice(archive: OpenArchive) -> None:
    changes = hg.continuous(archive).query("Select * From surface_frost").run()
    held: Rows = Counter()
    slices = dict(slices_of(archive, "frost"))
    taus = changes["tau"].astype("int64")
    for tau in sorted(set(taus)):
        at = changes[taus == tau]
        for sign, rows in at.groupby("sign"):
            counted = rows_of(rows.drop(columns=["tau", "sign"]))
            held = held - counted if sign < 0 else held + counted
        assert held == slices[tau]


@pytest.mark.parametrize("name", ["frost", "half-hours", "moving"])
def test_each_slice_can_be_the_only_one_of_a_stretch(archive: OpenArchive, name: str) -> None:
    query = hg.continuous(archive).query(f"Select x, y, value From surface_{name.replace('-', '_')}")
    before: Rows = Counter()
    for end_ns, rows in slices_of(archive, name):
        held = query.run(end_ns, end_ns + 1)
        # Rows that hold before and go on to hold have no instant.
        tau = pd.NaT if rows == before else pd.Timestamp(end_ns, tz="UTC")
        assert (len(held), set(held["tau"])) == (rows.total(), {tau})
        before = rows


def test_surfaces_meet_readings_by_their_places(archive: OpenArchive) -> None:
    text = """Select Rstream(a.station, a.value, c.value as kriged)
    From air_temperature [Now] a, stations s, surface_cold_air c
    Where a.station = s.station and distance_m(s.lon, s.lat, c.x, c.y) < '80 m'"""
    query = hg.continuous(archive).query(text)
    assert "grid index of stations and surface_cold_air, in cubes of 80 m" in query.explain()
    rows = query.run("2007-10-01T01:00Z", "2007-10-01T02:00Z")
    slices = slices_of(archive, "cold-air")
    assert len(rows) > 5
    for row in rows.itertuples():
        tau = row.tau.value
        last = max(number for number, (end, _) in enumerate(slices) if end <= tau)
        kriged = [values[2] for values in slices[last][1]]
        assert round_of(row.kriged) in kriged


def test_attributes_have_units_and_the_explanation_says_where_a_surface_comes_from(archive: OpenArchive) -> None:
    known = list_streams(archive)
    assert [(part.name, part.unit) for part in known.relations["surface_frost"]] == [
        ("x", "degree"),
        ("y", "degree"),
        ("value", "degC"),
        ("variance", None),
    ]
    assert [part.name for part in known.relations["surface_half_hours"]][0] == "station"
    text = "Select x, y From surface_frost Where value + 2 * sqrt(variance) < 0 and value < '30 degF'"
    lines = hg.continuous(archive).query(text).explain().splitlines()
    assert lines[lines.index("surfaces") + 1] == (
        "  surface_frost: standing query 'frost' of the archive (air_temperature > mean > ordinary_kriging, with "
        "variance), 15 cells, a slice each 10min that holds from its end to that of the next"
    )
    cold = hg.continuous(archive).query("Select x From surface_cold_air").explain()
    assert "it asks for no variance, which is NULL" in cold
    assert "surfaces" not in hg.continuous(archive).query("Select value From air_temperature").explain().splitlines()


def test_commands_and_the_catalogue_know_surfaces(archive: OpenArchive, tmp_path: Path) -> None:
    file, out = tmp_path / "q.cql", tmp_path / "out.csv"
    file.write_text("Select x, y, value From surface_frost")
    assert "standing query 'frost'" in hypergrid("cql", "explain", archive.path, file).stdout
    assert "query 1 is valid" in hypergrid("cql", "check", file, "--archive", archive.path).stderr
    hypergrid(
        "cql", "backtest", archive.path, file, "--from", "2007-10-01T01:00Z", "--to", "2007-10-01T01:30Z", "-o", out
    )
    written = pd.read_csv(out)
    wanted = hg.continuous(archive).query(file.read_text()).run("2007-10-01T01:00Z", "2007-10-01T01:30Z")
    assert len(written) == len(wanted) > 15
    sources = {row["name"]: row for row in describe_catalogue(hg.continuous(archive))["sources"]}  # type: ignore[arg-type]
    assert sources["surface_frost"]["kind"] == "relation"
    assert [part["name"] for part in sources["surface_frost"]["attributes"]] == ["x", "y", "value", "variance"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("Select x From surface_frots", {}, "unknown stream or relation 'surface_frots'; did you mean 'surface_frost'"),
        ("Select z From surface_frost", {}, "unknown column 'z'"),
        ("Select x From surface_frost", {"order": "arrival"}, "surface_frost is computed in order of time"),
    ],
)
def test_bad_input_is_one_message(archive: OpenArchive, text: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(HyperGridError, match=message):
        hg.continuous(archive).query(text).run(**options)


def test_a_query_over_the_tap_is_refused(archive: OpenArchive) -> None:
    message = "surface_frost is computed in order of time.* a query over the tap cannot read it: add a live query"
    with pytest.raises(InvalidQuery, match=message):
        add_tap_query(
            archive,
            "frosty",
            "Select f.x From surface_frost f, air_temperature [Now] r Where f.value = r.value",
            LiveOptions(0),
        )


def test_rows_at_once_are_refused(archive: OpenArchive) -> None:
    text = "Select r.value From air_temperature [Now] r, surface_frost c Where r.value < c.value EMIT NOW"
    with pytest.raises(InvalidQuery, match="it knows no arrivals: leave EMIT NOW out"):
        hg.continuous(archive).query(text).run()


def test_tasks_on_spark_are_refused_before_spark_is_asked(archive: OpenArchive, tmp_path: Path) -> None:
    text = "Select x From surface_frost"
    query = hg.continuous(archive).query(text)
    with pytest.raises(InvalidQuery, match="computed in order of time, in one process; leave --spark out"):
        backtest_on_spark(
            query,
            text,
            (None, None, "time"),
            workers=None,
            folder=tmp_path,
            progress=lambda *_: None,  # type: ignore[arg-type]
        )


def test_too_many_cells_are_refused_before_any_is_computed(
    archive: OpenArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surface_catalogue, "LARGEST_CELLS", 100)
    monkeypatch.setattr(hg.Query, "compute", lambda *_: pytest.fail("computed"))
    query = hg.continuous(archive).query("Select x From surface_frost")
    with pytest.raises(
        TooLarge, match=r"slices of 15 cells, projects \d+ cells, above the 100 allowed; .* at most 6 slices"
    ):
        query.run()


def test_what_is_no_relation_is_refused_with_the_reason(tmp_path: Path) -> None:
    archive, _ = random_sources(tmp_path / "a", 4, hours=3)
    add_standing(archive, {"gone": {"variable": "snow_depth", "steps": []}, "frost": DOCUMENTS["frost"]})
    assert "surface_gone" not in list_streams(archive).relations
    with pytest.raises(
        InvalidQuery, match="standing query 'gone' is no relation surface_gone: it cannot be built: .*snow_depth"
    ):
        hg.continuous(archive).query("Select x From surface_gone")
    table = pd.DataFrame({"x": [1.0]})
    given = hg.continuous(archive, tables={"surface_gone": table, "surface_frost": table})
    # Tables stand for relations of the archive, surfaces among them.
    assert "surfaces\n" not in given.query("Select g.x From surface_gone g, surface_frost f Where g.x = f.x").explain()


ONE_SLICE: dict[str, dict[str, Any]] = {
    "whole": {"variable": "air_temperature", "steps": [{**MEANS, "time": "all"}]},
    "whole-map": {"variable": "air_temperature", "steps": [MEANS, KRIGED, {**MEANS, "time": "all"}]},
    "whole_map": {"variable": "wind_speed", "steps": [MEANS]},
}


def test_a_slice_of_all_readings_has_them_all(tmp_path: Path) -> None:
    made, _ = random_sources(tmp_path / "a", 4, hours=3)
    add_standing(made, {name: ONE_SLICE[name] for name in ("whole", "whole-map")})
    for name, document in (("surface_whole", ONE_SLICE["whole"]), ("surface_whole_map", ONE_SLICE["whole-map"])):
        changes = hg.continuous(made).query(f"Select value From {name}").run(None, "2100-01-01")
        values = by_role(made.query(document).compute())["value"].to_numpy().ravel()
        entered = changes.loc[changes["sign"] > 0, "value"].to_numpy()
        assert np.isfinite(values).any()
        np.testing.assert_allclose(np.sort(entered), np.sort(values), rtol=1e-9)


def test_of_two_titles_the_one_that_is_the_name_is_the_relation(tmp_path: Path) -> None:
    made, _ = random_sources(tmp_path / "a", 4, hours=1)
    add_standing(made, {name: ONE_SLICE[name] for name in ("whole-map", "whole_map")})
    assert surface_catalogue.list_surfaces(made)["surface_whole_map"].title == "whole_map"


def test_a_catalogue_that_cannot_be_read_offers_no_surfaces(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    archive, _ = random_sources(tmp_path / "a", 0, hours=1)
    assert list_streams(archive).origins == {}
    (archive.path / "standing").mkdir()
    (archive.path / "standing" / "standing.sqlite").write_bytes(b"no database" * 100)
    assert list_streams(archive).origins == {}
    assert "surfaces of standing queries are not offered" in caplog.text


def test_no_slices_are_no_rows(archive: OpenArchive) -> None:
    query = hg.continuous(archive).query("Select x, value From surface_frost")
    assert len(query.run("2001-01-01", "2001-01-02")) == 0
    with pytest.raises(NotFound):
        hg.continuous(archive).live_query("surface_frost")  # type: ignore[union-attr]


def test_a_surface_in_a_back_test_of_the_server_obeys_the_limits_of_queries(archive: OpenArchive) -> None:
    runner = Runner(archive)
    queries = ContinuousQueries(archive, runner, clock=lambda: 0)
    question = BacktestQuestion("Select x From surface_frost")
    try:
        with act_as(Asker("small", Limits(cells=10))), pytest.raises(TooLarge, match="surface_frost .* cells, above"):
            queries.submit(question)
        with act_as(Asker("large", Limits(cells=10_000))):
            done = queries.wait(queries.submit(question).id, 60.0)
        assert (done.state, done.error) == ("done", None)
    finally:
        queries.stop()
        runner.stop()
