"""Live queries of surfaces: what they gave, corrections included, is one back-test in every bit."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.continuous import surface_catalogue
from hypergrid.continuous.archive_query import ArchiveQuery, open_inputs
from hypergrid.continuous.live import LiveOptions, LiveQuery, add_query, archive_versions, open_store
from hypergrid.continuous.live.archive_versions import ArchiveVersions
from hypergrid.continuous.surface_catalogue import list_surfaces
from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.result_names import by_role
from hypergrid.core.times import DAY_NS, SECOND_NS, Window
from hypergrid.execution import Plan
from hypergrid.query import open_archive
from tests.hypergrid.continuous.test_surfaces import GRID, KRIGED, MEANS, add_standing
from tests.support.continuous_live_archives import NAMES, backtest, commit, create, draw_commits, given
from tests.support.networks import START_NS

MOVING: Final[dict[str, Any]] = {**MEANS, "time": {"step": "10min", "length": "30min"}}
DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "frost": {"variable": "air_temperature", "steps": [MEANS, KRIGED], "variance": True},
    "halves": {"variable": "wind_speed", "steps": [{**MEANS, "time": "30min"}]},
    "moving": {"variable": "air_temperature", "steps": [MOVING, KRIGED]},
    # Values at instants depend on readings after them.
    "between": {
        "variable": "wind_speed",
        "steps": [{"op": "interpolate", "method": "linear", "time": "10min", "params": {"max_gap": "20min"}}],
    },
}
QUERIES: Final = {
    "cells": "Select x, y, value, variance From surface_frost Where value + 2 * sqrt(variance) > 4",
    "warmest": "Select max(value) as most, avg(value) as mean, count(*) as k From surface_moving",
    "entered": "Select Istream(station, value) From surface_halves Where value > 3",
    "between": "Select station, value From surface_between",
    "met": "Select Rstream(a.station, a.value, c.value as kriged) From air_temperature [Now] a, surface_frost c, "
    "stations s Where a.station = s.station and distance_m(s.lon, s.lat, c.x, c.y) < '80 m'",
    "both": "Select count(*) as k From wind_speed [Range 20 Minutes] w, surface_halves h "
    "Where w.station = h.station and w.value > h.value",
}
START: Final = START_NS + 25 * 60 * SECOND_NS
END: Final = START_NS + 4 * 3600 * SECOND_NS


def make_archive(folder: Path, seed: int, count: int) -> list[Any]:
    """Write an archive with the readings of a first commit and standing queries; returns the commits to come."""
    create(folder)
    first, *others = draw_commits(seed, count)
    commit(folder, 0, first)
    add_standing(open_archive(folder), DOCUMENTS)
    return others


@pytest.mark.parametrize("seed", range(3))
def test_live_results_of_surfaces_are_one_backtest(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a"
    if seed == 1:
        # Few cells at once, and none of them kept.
        monkeypatch.setattr(archive_versions, "_CELLS_AT_ONCE", 30)
        monkeypatch.setattr(surface_catalogue, "_KEPT_SLICES", 0)
    commits = make_archive(folder, seed, 7)
    queries = follow(folder, QUERIES, START)
    rng = np.random.default_rng(seed)
    for number, parts in enumerate(commits, 1):
        commit(folder, number, parts)
        for name, text in QUERIES.items():
            if rng.random() < 0.3:
                queries[name] = LiveQuery(open_archive(folder), open_store(folder), name)
            if rng.random() < 0.7:
                queries[name].step()
            entry = queries[name].entry
            if entry.snapshot is not None and (entry.heartbeat_ns or 0) > START and rng.random() < 0.4:
                archive = open_archive(folder, snapshot=entry.snapshot)
                assert given(folder, name) == backtest(archive, text, START, entry.heartbeat_ns or 0), (name, number)
    for name, text in QUERIES.items():
        queries[name].step(END)
        results = given(folder, name)
        assert results
        assert results == backtest(open_archive(folder), text, START, END), name
        elements = open_store(folder).list_elements(name, limit=10**6)
        assert any(each.corrects is not None for each in elements), f"no late reading reached what {name!r} had given"


def test_slices_that_late_readings_do_not_reach_are_not_given_again(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    commits = make_archive(folder, 3, 6)
    for number, parts in enumerate(commits, 1):
        commit(folder, number, parts)
    archive = open_archive(folder)
    text = "Select x, value From surface_frost"
    query = hg.continuous(archive).query(text)
    assert isinstance(query, ArchiveQuery)
    source = ArchiveVersions(query, START, idle_s=3600.0, disorder_s=60.0)
    new, old = [item.id for item in Archive.open(folder).snapshots][:2]
    assert new == archive.snapshot
    window = Window(START, START + 2 * 3600 * SECOND_NS)
    changed = source.list_changed(old, new, window, 0)
    assert changed
    texts = [backtest(open_archive(folder, snapshot=each), text, START, window.stop_ns) for each in (old, new)]
    differing = {
        tau for tau, row in texts[0].keys() | texts[1].keys() if texts[0].get((tau, row)) != texts[1].get((tau, row))
    }
    assert differing
    assert all(any(part.start_ns <= tau < part.stop_ns for part in changed) for tau in differing)
    # Windows begin with the first slice that differs.
    assert sum(part.stop_ns - part.start_ns for part in changed) < window.stop_ns - window.start_ns


def test_a_station_that_moves_lets_all_be_evaluated_again(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    first, second, third = make_archive(folder, 6, 4)
    texts = {name: QUERIES[name] for name in ("cells", "met")}
    queries = follow(folder, texts, START)
    commit(folder, 1, first)
    for query in queries.values():
        query.step()
    earlier, moved = Position(None, 7.177, 45.867, 2300.0), Position(START_NS, 7.179, 45.868, 2310.0)
    with Archive.open(folder).commit(batch="moved", message="moved", now_ns=START_NS + SECOND_NS) as writer:
        writer.stations([Station("s0", "S0", (earlier, moved))])
    commit(folder, 2, second)
    for query in queries.values():
        query.step()
    commit(folder, 3, third)
    for name, query in queries.items():
        query.step(END)
        assert given(folder, name) == backtest(open_archive(folder), texts[name], START, END), name
        assert any(each.corrects is not None for each in open_store(folder).list_elements(name, limit=10**6))


H: Final = 3600


def make_readings(
    variable: str, rows: list[tuple[str, int, float]], *, interval_s: float = 150.0, statistic: str = "sample"
) -> Readings:
    """Return readings of stations at seconds after the start; those of an interval have its start as their stamp."""
    stamp = "instant" if statistic == "sample" else "start"
    series = tuple(
        Series(variable, name, 2.0, 1, interval_s=interval_s, stamp=stamp, statistic=statistic)  # type: ignore[arg-type]
        for name in NAMES
    )
    rows = sorted(rows)
    stamps = np.array([START_NS + second * SECOND_NS for _, second, _ in rows], np.int64)
    numbers = np.array([NAMES.index(name) for name, *_ in rows], np.int32)
    values = np.array([value for *_, value in rows], float)
    return Readings(series, numbers, stamps, values, np.ones(len(rows), np.uint8), stamps + SECOND_NS)


def draw_rows(first_s: int, stop_s: int, step_s: int = 150) -> list[tuple[str, int, float]]:
    return [
        (name, second, 5.0 + number + float(np.sin(second / 1000.0)))
        for number, name in enumerate(NAMES)
        for second in range(first_s, stop_s, step_s)
    ]


def follow(folder: Path, texts: dict[str, str], start_ns: int) -> dict[str, LiveQuery]:
    for name, text in texts.items():
        add_query(open_inputs(open_archive(folder)), name, text, LiveOptions(start_ns, disorder_s=60.0))
    return {name: LiveQuery(open_archive(folder), open_store(folder), name) for name in texts}


def check_given(folder: Path, texts: dict[str, str], start_ns: int) -> None:
    for name, text in texts.items():
        heartbeat = open_store(folder).find(name).heartbeat_ns
        assert heartbeat is not None
        assert given(folder, name) == backtest(open_archive(folder), text, start_ns, heartbeat), name


def test_an_outage_of_what_a_surface_is_of_is_seen_when_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    variables = ("air_temperature", "wind_speed")
    commit(folder, 0, [make_readings(name, draw_rows(0, 2 * H)) for name in variables])
    add_standing(
        open_archive(folder), {"halves": {"variable": "air_temperature", "steps": [{**MEANS, "time": "30min"}]}}
    )
    texts = {
        "held": "Select station, value From surface_halves",
        "met": "Select h.station, h.value From surface_halves h, wind_speed [Now] w Where h.station = w.station",
    }
    queries = follow(folder, texts, START_NS)
    for query in queries.values():
        query.step()
    commit(folder, 1, [make_readings("wind_speed", draw_rows(2 * H, 7 * H))])
    for query in queries.values():
        query.step(START_NS + 7 * H * SECOND_NS)
    check_given(folder, texts, START_NS)
    # Slices without readings come into being.
    commit(folder, 2, [make_readings(name, draw_rows(7 * H, 8 * H)) for name in variables])
    for query in queries.values():
        query.step()
    check_given(folder, texts, START_NS)
    assert any(each.corrects is not None for each in open_store(folder).list_elements("held"))


def test_values_of_intervals_reach_instants_around_their_middle(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    hours = [(name, hour * H, float(hour + number)) for number, name in enumerate(NAMES) for hour in range(12)]
    commit(folder, 0, [make_readings("air_temperature", hours, interval_s=3600.0, statistic="mean")])
    linear = {"op": "interpolate", "method": "linear", "time": "10min", "params": {"max_gap": "1h"}}
    add_standing(open_archive(folder), {"between": {"variable": "air_temperature", "steps": [linear]}})
    texts = {"between": "Select station, value From surface_between"}
    start = START_NS + 378 * 60 * SECOND_NS
    (query,) = follow(folder, texts, start).values()
    query.step()
    amended = make_readings("air_temperature", [("s1", 5 * H, 50.0)], interval_s=3600.0, statistic="mean")
    commit(folder, 1, [amended])
    query.step()
    check_given(folder, texts, start)
    assert any(each.corrects is not None for each in open_store(folder).list_elements("between"))


@pytest.mark.parametrize("first_s", [600, 1200])
def test_a_late_reading_of_the_slice_that_holds_at_the_start_is_seen(tmp_path: Path, first_s: int) -> None:
    folder = tmp_path / "a"
    create(folder)
    commit(folder, 0, [make_readings("air_temperature", draw_rows(0, 2 * H))])
    add_standing(open_archive(folder), {"frost": DOCUMENTS["frost"]})
    # From 25 minutes on; the slice of the readings from 10 to 20 minutes holds until 30.
    texts = {name: QUERIES[name] for name in ("cells", "met")}
    queries = follow(folder, texts, START)
    for query in queries.values():
        query.step()
    before = given(folder, "met")
    commit(folder, 1, [make_readings("air_temperature", [("s1", first_s + 150, 9.0), ("s0", first_s + 300, 9.0)])])
    for query in queries.values():
        query.step()
    check_given(folder, texts, START)
    assert before != given(folder, "met")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("linear", {}),
        ("radial_basis", {}),
        ("inverse_distance", {}),
        ("universal_kriging", {"variogram": KRIGED["params"]["variogram"]}),
        ("ordinary_kriging", {**KRIGED["params"], "neighbours": 2}),
    ],
)
def test_a_slice_with_few_stations_has_what_the_whole_query_gives_it(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    folder = tmp_path / "a"
    create(folder)
    stations = [
        Station(name, name.upper(), (Position(None, 7.177 + 0.001 * number, 45.867 + 0.0015 * (number % 2), 2300.0),))
        for number, name in enumerate(NAMES)
    ]
    with Archive.open(folder).commit(batch="places", message="places", now_ns=START_NS + 1) as writer:
        writer.stations(stations)
    # Slices of 10 minutes with two stations, with one and without any.
    present = {3: ("s0", "s1"), 5: ("s0",), 7: ()}
    rows = [row for row in draw_rows(0, 2 * H) if row[0] in present.get(row[1] // 600, NAMES)]
    commit(folder, 1, [make_readings("air_temperature", rows)])
    step = {"op": "interpolate", "method": method, "grid": GRID, "params": params}
    document = {"variable": "air_temperature", "steps": [MEANS, step]}
    add_standing(open_archive(folder), {"map": document})
    result = by_role(open_archive(folder).query(document).compute())
    surface = list_surfaces(open_archive(folder))["surface_map"]
    value, _ = surface.compute(range(len(surface.ends)))
    np.testing.assert_allclose(value, result["value"].to_numpy().reshape(value.shape), rtol=1e-9)
    assert np.isfinite(value).any()


def test_the_plan_of_a_slice_does_not_follow_from_free_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a"
    make_archive(folder, 0, 2)
    large = {**KRIGED, "grid": {"lon": "7.176", "lat": "45.866", "step": "0.000001", "shape": [4000, 4000]}}
    add_standing(open_archive(folder), {"large": {"variable": "air_temperature", "steps": [MEANS, large]}})
    surface = list_surfaces(open_archive(folder))["surface_large"]
    plans = []
    for free in (64 << 30, 2 << 30):
        monkeypatch.setattr(surface_catalogue, "free_bytes", lambda free=free: free)
        plans.append(surface._plan_slice(0))
    assert plans[0].block_cells == plans[1].block_cells < surface.cells
    monkeypatch.setattr(surface_catalogue, "free_bytes", lambda: 1 << 20)
    with pytest.raises(TooLarge, match="bytes of memory"):
        surface.compute(range(1))


def test_values_that_a_library_gives_in_other_bits_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"
    commits = make_archive(folder, 9, 4)
    texts = {"met": "Select h.station, h.value From surface_halves h, wind_speed [Now] w Where h.station = w.station"}
    (query,) = follow(folder, texts, START).values()
    commit(folder, 1, commits[0])
    query.step()
    held = given(folder, "met")
    assert held
    run_slice = surface_catalogue._run_slice

    def drift(plan: Plan) -> tuple[Any, Any]:
        value, variance = run_slice(plan)
        return np.nextafter(value, np.inf), variance

    monkeypatch.setattr(surface_catalogue, "_run_slice", drift)
    for number in (2, 3):
        commit(folder, number, commits[number - 1])
        LiveQuery(open_archive(folder), open_store(folder), "met").step()
        check_given(folder, texts, START)
    assert held.keys() - given(folder, "met").keys()


def test_a_new_series_lets_all_be_evaluated_again(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    rows = draw_rows(0, 4 * H)
    commit(folder, 0, [make_readings("air_temperature", [row for row in rows if row[1] < 2 * H and row[0] != "s2"])])
    add_standing(open_archive(folder), {"frost": DOCUMENTS["frost"]})
    texts = {"cells": QUERIES["cells"]}
    (query,) = follow(folder, texts, START).values()
    query.step()
    commit(folder, 1, [make_readings("air_temperature", [row for row in rows if row[1] >= H])])
    query.step()
    check_given(folder, texts, START)


def test_what_cannot_be_live_is_refused_when_it_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a"
    make_archive(folder, 0, 2)
    inputs, options = open_inputs(open_archive(folder)), LiveOptions(START)
    with pytest.raises(InvalidQuery, match="it knows no arrivals: leave EMIT NOW out"):
        add_query(inputs, "now", "Select x From surface_frost EMIT NOW", options)
    monkeypatch.setattr(archive_versions, "LARGEST_CELLS", 29)
    with pytest.raises(TooLarge, match="two slices of surface_frost projects 30 cells, above the 29 allowed"):
        add_query(inputs, "large", "Select x From surface_frost", options)


BOUND: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "fitted": (
        {"steps": [MEANS, {"op": "interpolate", "method": "ordinary_kriging", "grid": GRID}]},
        "its variogram is fitted to all slices, or its trend chosen by them; give the standing query both",
    ),
    "chosen": (
        {"steps": [MEANS, {"op": "interpolate", "method": "auto", "grid": GRID}]},
        "its method is chosen by all readings; give the standing query a method",
    ),
    "whole": ({"steps": [{**MEANS, "time": "all"}]}, "a slice is of all readings; give the standing query slices"),
    "averaged": (
        {"steps": [MEANS, KRIGED, {**MEANS, "time": "1h"}], "variance": True},
        "its variance depends on all slices; give the standing query a correlation_time",
    ),
}


@pytest.mark.parametrize("name", BOUND)
def test_surfaces_whose_slices_depend_on_each_other_are_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a"
    make_archive(folder, 0, 2)
    document, reason = BOUND[name]
    add_standing(open_archive(folder), {name: {"variable": "air_temperature", **document}})
    inputs = open_inputs(open_archive(folder))
    with pytest.raises(InvalidQuery, match=f"cannot read surface_{name}, slice by slice: {reason}"):
        add_query(inputs, "kept", f"Select value From surface_{name}", LiveOptions(START))
    # A back-test computes them together.
    assert len(hg.continuous(open_archive(folder)).query(f"Select value From surface_{name}").run(None, "2100-01-01"))


def test_a_surface_stays_as_it_was_when_its_query_was_added(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    commits = make_archive(folder, 4, 4)
    text = "Select x, value From surface_frost"
    add_query(open_inputs(open_archive(folder)), "cold", text, LiveOptions(START, disorder_s=60.0))
    LiveQuery(open_archive(folder), open_store(folder), "cold").step()
    (folder / "standing" / "standing.sqlite").unlink()
    for number, parts in enumerate(commits, 1):
        commit(folder, number, parts)
    LiveQuery(open_archive(folder), open_store(folder), "cold").step(END)
    add_standing(open_archive(folder), {"frost": {**DOCUMENTS["frost"], "steps": [MOVING, KRIGED]}})
    LiveQuery(open_archive(folder), open_store(folder), "cold").step(END + 1)
    results = given(folder, "cold")
    (folder / "standing" / "standing.sqlite").unlink()
    add_standing(open_archive(folder), {"frost": DOCUMENTS["frost"]})
    assert results == backtest(open_archive(folder), text, START, END + 1)
    assert {tau for tau, _ in results if tau > START + 3600 * SECOND_NS}


@pytest.mark.parametrize("seed", range(2))
def test_what_is_kept_of_a_surface_is_the_end_of_a_back_test(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "a"
    commits = make_archive(folder, seed, 6)
    text = "Select x, value From surface_frost Where value > 4"
    add_query(open_inputs(open_archive(folder)), "cold", text, LiveOptions(START, disorder_s=60.0), keep_s=86_400.0)
    query = LiveQuery(open_archive(folder), open_store(folder), "cold")
    for number, parts in enumerate(commits, 1):
        commit(folder, number, parts)
        query.step()
    query.step(END + 2 * DAY_NS)
    kept = query.entry.retention.kept_ns
    assert kept > START
    whole = backtest(open_archive(folder), text, START, END + 2 * DAY_NS)
    held: dict[tuple[Any, ...], int] = {}
    for (tau, row), count in whole.items():
        if tau < kept:
            held[row] = held.get(row, 0) + count
    rows = {row: count for row, count in held.items() if count}
    results = given(folder, "cold")
    assert {row: count for row, count in _count_rows(results, kept).items() if count} == rows
    assert {key: count for key, count in results.items() if key[0] >= kept} == {
        key: count for key, count in whole.items() if key[0] >= kept
    }


def _count_rows(results: dict[tuple[int, Any], int], before_ns: int) -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for (tau, row), count in results.items():
        if tau < before_ns:
            counts[row] = counts.get(row, 0) + count
    return counts
