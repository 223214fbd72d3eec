"""First queries of archives of every kind, and queries that are carried over to another variable."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.analysis.suggestion import LEAST_STATIONS, adapt, make_grid, suggest_document
from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import DAY_NS, SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from ingest.job import ingest

ROOT = Path(__file__).parents[3]
HOUR_NS = 3600 * SECOND_NS
START_NS = parse_instant("2021-03-01T00:00Z")
MAP = {
    "variable": "air_temperature",
    "steps": [
        {"op": "convert", "function": "valid_range", "params": {"low": -40.0, "high": 50.0}},
        {"op": "aggregate", "function": "mean", "time": "1h"},
        {"op": "interpolate", "method": "ordinary_kriging",
         "grid": {"lon": 7.0, "lat": 46.0, "step": "60arcsec", "shape": [12, 12]},
         "params": {"neighbours": 8, "variogram": {"model": "exponential", "psill": 1.0, "range_m": 5000.0}}},
        {"op": "aggregate", "function": "mean", "time": "all"},
    ],
    "clip": {"time": ["2021-03-02T00:00Z", "2021-03-03T00:00Z"]},
}  # fmt: skip

Values = Callable[[np.ndarray, int], np.ndarray]
"""Values of hours since the start, at a station."""


def wave(hours: np.ndarray, number: int) -> np.ndarray:
    return 10 + 0.5 * number + 5 * np.sin(2 * np.pi * hours / 24)


def counts(hours: np.ndarray, number: int) -> np.ndarray:
    return np.floor(hours * (1 + 0.1 * number)) * 0.2


def turns(hours: np.ndarray, number: int) -> np.ndarray:
    return (350.0 + 5 * number + hours) % 360


class Network:
    """An archive of variables whose stations are on a square of a fifth of a degree, or nowhere."""

    def __init__(self, folder: Path, *variables: Variable, slice_s: float = 3600.0) -> None:
        self.archive = Archive.create(
            folder, name="foreign", slice_s=slice_s, variables=list(variables), now_ns=START_NS
        )
        self.folder, self.batches = folder, 0

    def add(
        self,
        variable: str,
        values: Values,
        *,
        stations: int = 9,
        hours: np.ndarray | None = None,
        placed: bool = True,
        **series: Any,  # noqa: ANN401 - fields of a series
    ) -> None:
        hours = np.arange(96) if hours is None else hours
        at = [divmod(number, 3) for number in range(stations)]
        nowhere = (float("nan"), float("nan"))
        places = [(7.0 + 0.1 * column, 46.0 + 0.1 * row) if placed else nowhere for row, column in at]
        of_stations = [
            Station(f"s{number}", f"Station {number}", (Position(None, lon, lat, float("nan")),))
            for number, (lon, lat) in enumerate(places)
        ]
        rows = tuple(
            replace(Series(variable, f"s{number}", 2.0, 1, "sample", 3600.0), **series) for number in range(stations)
        )
        stamps = np.tile(START_NS + hours.astype(np.int64) * HOUR_NS, stations)
        value = np.concatenate([values(hours, number) for number in range(stations)])
        index = np.repeat(np.arange(stations, dtype=np.int32), len(hours))
        flags = np.where(np.isfinite(value), 1, 9).astype(np.uint8)
        self.batches += 1
        with self.archive.commit(batch=str(self.batches), message="more", now_ns=START_NS) as writer:
            writer.stations(of_stations)
            writer.readings(Readings(rows, index, stamps, value, flags, stamps))
        self.archive = self.archive.latest()

    def open(self) -> hg.OpenArchive:
        return hg.open(self.folder)


@pytest.fixture(scope="module")
def sample_network(tmp_path_factory: pytest.TempPathFactory) -> hg.OpenArchive:
    path = tmp_path_factory.mktemp("suggestion") / "archive"
    ingest([ROOT / "station_data" / "sample"], path, engine="inprocess", now_ns=parse_instant("2007-10-02"))
    return hg.open(path)


@pytest.fixture
def network(tmp_path: Path) -> Callable[..., Network]:
    return lambda *names, **words: Network(tmp_path / "archive", *(variable(name) for name in names), **words)


def variable(name: str) -> Variable:
    own = {
        "wind": Variable("wind", "m s-1", "wind_speed"),
        "from_where": Variable("from_where", "degree", "wind_from_direction"),
        "rain": Variable("rain", "mm", "precipitation_amount"),
    }
    return own.get(name) or KNOWN_VARIABLES[name]


def steps(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(step["op"], step.get("function") or step["method"]) for step in document["steps"]]


def test_the_sample_network_is_asked_for_a_map_of_its_newest_day(sample_network: hg.OpenArchive) -> None:
    suggestion = suggest_document(sample_network)
    query = suggestion.query
    assert query["variable"] == "air_temperature"
    assert steps(query) == [("aggregate", "mean"), ("interpolate", "auto")]
    start, stop = (parse_instant(bound) for bound in query["clip"]["time"])
    assert stop - start == DAY_NS
    assert start % DAY_NS == 0
    dataset = hg.suggest(sample_network).compute()
    assert 50 <= max(dataset["value"].shape) <= 200
    assert np.isfinite(dataset["value"]).all()
    assert float(dataset["value"].max() - dataset["value"].min()) > 0.5
    positions = [station.position for station in sample_network.stations.values()]
    assert float(dataset["lon"].min()) < min(position.lon for position in positions)
    assert float(dataset["lat"].max()) > max(position.lat for position in positions)
    assert any("newest whole day" in note for note in suggestion.notes)


def test_a_query_that_was_suggested_is_the_same_through_json(sample_network: hg.OpenArchive) -> None:
    asked = hg.suggest(sample_network, "wind_speed")
    assert sample_network.query(asked.to_json()).token == asked.token


@pytest.mark.parametrize("stations", [1, LEAST_STATIONS - 1])
def test_too_few_stations_are_shown_as_lines(network: Callable[..., Network], stations: int) -> None:
    made = network("air_temperature")
    made.add("air_temperature", wave, stations=stations)
    suggestion = suggest_document(made.open())
    assert steps(suggestion.query) == [("aggregate", "mean")]
    assert suggestion.query["steps"][0]["time"] == "1h"
    assert f"of the {stations} here {stations} have one" in suggestion.notes[-1]
    assert np.isfinite(hg.suggest(made.open()).compute()["value"]).all()


def test_without_positions_it_says_what_is_missing(network: Callable[..., Network]) -> None:
    made = network("air_temperature")
    made.add("air_temperature", wave, placed=False)
    suggestion = suggest_document(made.open())
    assert steps(suggestion.query) == [("aggregate", "mean")]
    assert "deployment.toml" in suggestion.notes[-1]
    assert "--remap" in suggestion.notes[-1]


def test_a_counter_is_asked_what_it_grew_by(network: Callable[..., Network]) -> None:
    made = network("rain_meter")
    made.add("rain_meter", counts)
    assert steps(suggest_document(made.open()).query) == [("aggregate", "rain_accumulation"), ("interpolate", "auto")]
    values = hg.suggest(made.open()).compute()["value"]
    # A fifth of a millimetre an hour and station, more at the later ones.
    assert 4.0 < float(values.mean()) < 10.0


def test_totals_are_summed_and_maxima_stay_maxima(network: Callable[..., Network]) -> None:
    made = network("rain", "air_temperature")
    made.add("rain", lambda hours, number: 0.1 * number + 0 * hours, statistic="total", stamp="end")
    made.add("air_temperature", wave, statistic="max", stamp="end")
    rain = suggest_document(made.open(), "rain").query
    assert steps(rain)[0] == ("aggregate", "sum")
    assert rain["select"] == {"statistic": "total"}
    warmest = suggest_document(made.open(), "air_temperature").query
    assert steps(warmest)[0] == ("aggregate", "max")
    day = made.open().query(rain).compute()["value"]
    assert float(day.max()) == pytest.approx(0.8 * 24, rel=0.2)


def test_directions_are_mapped_by_their_components_under_any_name(network: Callable[..., Network]) -> None:
    made = network("wind", "from_where")
    made.add("from_where", turns)
    # There is no speed yet.
    assert steps(suggest_document(made.open(), "from_where").query) == [("aggregate", "circular_mean")]
    made.add("wind", lambda hours, number: 3 + 0.1 * number + 0 * hours)
    suggestion = suggest_document(made.open(), "from_where")
    assert steps(suggestion.query) == [("aggregate", "circular_mean"), ("interpolate", "recipe")]
    dataset = made.open().query(suggestion.query).compute()
    assert dataset["value"].attrs["units"] == "degree"
    # All stations turn through the same hours, and are at most 40 degrees apart.
    last = turns(np.arange(72.0, 96.0), 4).mean() % 360
    away = np.abs((dataset["value"].to_numpy() - last + 180) % 360 - 180)
    assert np.nanmax(away) < 60
    assert suggest_document(made.open()).query["variable"] == "wind"


def test_what_does_not_vary_is_not_the_first_to_be_shown(network: Callable[..., Network]) -> None:
    made = network("air_temperature", "soil_moisture")
    made.add("air_temperature", lambda hours, _: 7.0 + 0 * hours)
    made.add("soil_moisture", wave)
    assert suggest_document(made.open()).query["variable"] == "soil_moisture"
    assert suggest_document(made.open(), "air_temperature").query["variable"] == "air_temperature"


def test_daily_readings_get_more_than_a_day(network: Callable[..., Network]) -> None:
    made = network("air_temperature")
    made.add("air_temperature", wave, hours=np.arange(0, 24 * 60, 24), interval_s=86_400.0)
    start, stop = (parse_instant(bound) for bound in suggest_document(made.open()).query["clip"]["time"])
    assert stop - start == 7 * DAY_NS


def test_less_than_a_day_is_shown_whole(network: Callable[..., Network]) -> None:
    made = network("air_temperature")
    made.add("air_temperature", wave, hours=np.arange(8))
    suggestion = suggest_document(made.open())
    start, stop = (parse_instant(bound) for bound in suggestion.query["clip"]["time"])
    assert (start, stop) == (START_NS, START_NS + 8 * HOUR_NS)
    assert any("all readings" in note for note in suggestion.notes)


def test_one_clock_that_runs_ahead_does_not_decide_the_day(network: Callable[..., Network]) -> None:
    made = network("air_temperature")
    made.add("air_temperature", wave)
    made.add("air_temperature", wave, stations=1, hours=np.arange(24 * 300, 24 * 300 + 5))
    start, stop = (parse_instant(bound) for bound in suggest_document(made.open()).query["clip"]["time"])
    assert (start, stop) == (START_NS + 3 * DAY_NS, START_NS + 4 * DAY_NS)


def test_most_stations_died_years_before_the_others(network: Callable[..., Network]) -> None:
    made = network("air_temperature")
    made.add("air_temperature", wave)
    made.add("air_temperature", wave, stations=2, hours=np.arange(24 * 3600, 24 * 3604))
    start, _ = (parse_instant(bound) for bound in suggest_document(made.open()).query["clip"]["time"])
    assert start == START_NS + 3 * DAY_NS
    # Where a third goes on, the newest day is theirs.
    made.add("air_temperature", wave, stations=4, hours=np.arange(24 * 3604, 24 * 3608))
    start, _ = (parse_instant(bound) for bound in suggest_document(made.open()).query["clip"]["time"])
    assert start == START_NS + 3607 * DAY_NS


def test_a_station_on_another_continent_is_left_outside_the_map(network: Callable[..., Network]) -> None:
    made = network("air_temperature")
    made.add("air_temperature", wave)
    with made.archive.commit(batch="far", message="overseas", now_ns=START_NS) as writer:
        writer.stations([Station("s8", "Station 8", (Position(None, -68.3, 12.1, float("nan")),))])
    suggestion = suggest_document(made.open())
    grid = next(step["grid"] for step in suggestion.query["steps"] if step["op"] == "interpolate")
    assert 6.9 < grid["lon"] < 7.0
    assert 45.9 < grid["lat"] < 46.0
    assert "around 8 of them" in suggestion.notes[-1]


def test_a_network_across_the_date_line_has_a_map_around_it() -> None:
    west_of_it = np.array([[179.0, -17.0], [-179.5, -16.5], [-179.0, -17.5]])
    grid = make_grid(west_of_it)
    assert 178.5 < grid["lon"] < 179.0
    assert grid["shape"][0] == pytest.approx(grid["shape"][1] * 1.2 / 2.2, abs=10)
    everywhere = make_grid(np.array([[-170.0, -80.0], [0.0, 0.0], [170.0, 85.0]]))
    hg.grid(**everywhere)
    line = make_grid(np.array([[7.0, 46.0], [8.0, 46.0], [9.0, 46.0]]))
    assert line["shape"][0] > 10


def test_a_map_ends_where_the_terrain_does_if_that_holds_all_stations() -> None:
    places = np.array([[7.0, 46.0], [7.2, 46.2], [7.1, 46.05]])
    free, held = make_grid(places), make_grid(places, (6.99, 45.99, 7.3, 46.21))
    assert free["lon"] < 6.99
    assert (held["lon"], held["lat"]) == (6.99, 45.99)
    bounds = hg.grid(**held).y.bounds
    assert len(bounds) > 50
    assert 46.2 < bounds.max() <= 46.21
    assert make_grid(places, (7.05, 45.0, 7.3, 47.0)) == free


def test_totals_of_most_stations_are_taken_though_one_has_samples(network: Callable[..., Network]) -> None:
    made = network("rain")
    made.add("rain", wave, statistic="total", stamp="end")
    made.add("rain", wave, stations=1)
    query = suggest_document(made.open()).query
    assert query["select"]["statistic"] == "total"
    assert steps(query) == [("aggregate", "sum"), ("interpolate", "auto")]


def test_lines_of_long_totals_have_cells_of_whole_totals(network: Callable[..., Network]) -> None:
    made = network("rain")
    made.add("rain", wave, stations=2, statistic="total", stamp="end", hours=np.arange(0, 96, 6), interval_s=21_600.0)
    query = suggest_document(made.open()).query
    assert query["steps"] == [{"op": "aggregate", "function": "sum", "time": "6h"}]


def test_of_two_heights_one_is_taken(network: Callable[..., Network]) -> None:
    made = network("air_temperature")
    made.add("air_temperature", wave)
    made.add("air_temperature", wave, stations=4, height_m=10.0)
    query = suggest_document(made.open()).query
    assert query["select"] == {"height_m": 2.0}
    assert made.open().query(query).compute()["value"].notnull().all()


def test_an_archive_without_readings_says_so(network: Callable[..., Network]) -> None:
    made = network("air_temperature")
    with pytest.raises(InvalidQuery, match="no readings yet"):
        hg.suggest(made.open())
    with pytest.raises(InvalidQuery, match="'air_temperature' has no readings yet"):
        hg.suggest(made.open(), "air_temperature")
    with pytest.raises(NotFound, match="did you mean 'air_temperature'"):
        hg.suggest(made.open(), "air_temprature")


def test_only_missing_readings_are_still_a_query(network: Callable[..., Network]) -> None:
    made = network("air_temperature")
    made.add("air_temperature", lambda hours, _: np.full(len(hours), np.nan))
    query = suggest_document(made.open()).query
    dataset = made.open().query(query).compute()
    assert dataset["value"].isnull().all()
    assert dataset.attrs["comment"]


# Another variable


def test_a_suggestion_becomes_that_of_the_other_variable(sample_network: hg.OpenArchive) -> None:
    names = list(sample_network.variables)
    document = suggest_document(sample_network, names[0]).query
    for name in [*names[1:], names[0]]:
        document = adapt(sample_network, document, name).query
        assert document == suggest_document(sample_network, name).query


def test_a_map_is_carried_over_to_every_variable(network: Callable[..., Network]) -> None:
    made = network("air_temperature", "rain_meter", "wind", "from_where", "relative_humidity")
    for name, values in {"air_temperature": wave, "rain_meter": counts, "wind": wave, "from_where": turns}.items():
        made.add(name, values)
    made.add("relative_humidity", wave)
    archive = made.open()
    wanted = {
        "rain_meter": [("aggregate", "rain_accumulation"), ("interpolate", "auto"), ("aggregate", "sum")],
        "wind": [("aggregate", "mean"), ("interpolate", "auto"), ("aggregate", "mean")],
        "from_where": [("aggregate", "circular_mean"), ("interpolate", "recipe"), ("aggregate", "circular_mean")],
        "relative_humidity": [("aggregate", "mean"), ("interpolate", "auto"), ("aggregate", "mean")],
    }
    for name in wanted:
        adapted = adapt(archive, MAP, name)
        assert steps(adapted.query) == wanted[name]
        assert adapted.query["clip"] == MAP["clip"]
        grid = next(step["grid"] for step in adapted.query["steps"] if step["op"] == "interpolate")
        assert grid == MAP["steps"][2]["grid"]  # type: ignore[index]
        assert archive.query(adapted.query).compute()["value"].notnull().any(), name
        assert any("auto" in note or "recipe" in note for note in adapted.notes)


def test_bounds_become_those_of_the_quality_tests(sample_network: hg.OpenArchive) -> None:
    document = {"variable": "air_temperature", "steps": MAP["steps"][:2]}  # type: ignore[index]
    humid = adapt(sample_network, document, "relative_humidity")
    tests = sample_network.store.quality
    if "relative_humidity" in tests:
        assert humid.query["steps"][0]["params"] == {"low": 0.0, "high": 105.0}
    else:
        assert steps(humid.query) == [("aggregate", "mean")]
        assert "left out" in humid.notes[0]


def test_what_the_user_chose_besides_stays(sample_network: hg.OpenArchive) -> None:
    given = {"snapshot": sample_network.snapshot, "variance": True, "accept_flags": [1, 2, 3]}
    document = {**suggest_document(sample_network).query, **given}
    adapted = adapt(sample_network, document, "surface_temperature").query
    assert {name: adapted[name] for name in given} == given
    again = adapt(sample_network, document, "air_temperature")
    assert again.query == document


def test_a_time_without_readings_moves(network: Callable[..., Network]) -> None:
    made = network("air_temperature", "soil_moisture")
    made.add("air_temperature", wave)
    made.add("soil_moisture", wave, hours=np.arange(24 * 40, 24 * 44))
    adapted = adapt(made.open(), MAP, "soil_moisture")
    assert adapted.query["clip"] == suggest_document(made.open(), "soil_moisture").query["clip"]
    assert "has no readings in the one before" in adapted.notes[-1]


def test_a_climatology_is_carried_over_with_its_query(network: Callable[..., Network]) -> None:
    made = network("air_temperature", "relative_humidity")
    made.add("air_temperature", wave)
    made.add("relative_humidity", wave)
    normal = {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "hour_of_day"}]}
    document = {
        "variable": "air_temperature",
        "steps": [{"op": "aggregate", "function": "mean", "time": "1h"},
                  {"op": "merge", "function": "difference", "with": [normal]}],
    }  # fmt: skip
    adapted = adapt(made.open(), document, "relative_humidity").query
    assert [other["variable"] for other in adapted["steps"][1]["with"]] == ["relative_humidity"]
    assert adapted["steps"][1]["with"][0]["snapshot"] is None


def test_what_the_other_variable_cannot_have_is_left_out_with_a_note(network: Callable[..., Network]) -> None:
    made = network("air_temperature", "wind", "from_where")
    made.add("air_temperature", wave)
    made.add("wind", lambda hours, number: 3 + 0.1 * number + 0 * hours)
    made.add("from_where", turns)
    adapted = adapt(made.open(), {**MAP, "variance": True}, "from_where")
    assert adapted.query["variance"] is False
    assert "variance is left out" in adapted.notes
    made.open().query(adapted.query).surface()


def test_a_document_that_is_no_query_is_refused(network: Callable[..., Network]) -> None:
    made = network("air_temperature", "soil_moisture")
    made.add("air_temperature", wave)
    made.add("soil_moisture", wave)
    with pytest.raises(NotFound, match="did you mean 'aggregate'"):
        adapt(made.open(), {"variable": "air_temperature", "steps": [{"op": "agregate"}]}, "soil_moisture")
    with pytest.raises(NotFound, match="did you mean 'soil_moisture'"):
        adapt(made.open(), MAP, "soil_moistre")
