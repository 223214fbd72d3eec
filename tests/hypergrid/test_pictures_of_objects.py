"""Archives, stations, queries and comparisons as a notebook shows them, and as mappings and tables."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Position, Station
from hypergrid.overview import MAP_PIXELS, StationTable, draw_stations
from hypergrid.query import OpenArchive, Query
from tests.support.chains import network
from tests.support.named_network import TOWNS, named_archive
from tests.support.networks import START_NS


class Page(HTMLParser):
    """Text and tags of a piece of HTML, in which each tag that opens must close."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags, self._open = "", list[str](), list[str]()
        self.circles = list[dict[str, str | None]]()
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "circle":
            self.circles.append(dict(attrs))
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> OpenArchive:
    return named_archive(tmp_path_factory.mktemp("named") / "archive")


def test_an_archive_shows_its_stations_on_a_map_and_its_variables_with_units_and_spans(archive: OpenArchive) -> None:
    page = Page(archive._repr_html_())
    assert "svg" in page.tags
    assert len(page.circles) == len(TOWNS)
    for words in ("made-up", archive.snapshot, "air_temperature", "°C", "m s⁻¹", "2007-10-01T00:00Z", "576"):
        assert words in page.text
    # Names are text, whatever they hold.
    assert "b" not in page.tags[page.tags.index("svg") :]
    assert "<b>Plan</b>" in page.text
    assert "Lac & Pré" in page.text


def test_the_map_has_north_up_and_east_right() -> None:
    page = Page(draw_stations({key: _station(key) for key in TOWNS}))
    x, y = ([float(circle[name] or "nan") for circle in page.circles] for name in ("cx", "cy"))
    assert np.argsort(x).tolist() == np.argsort([place[1] for place in TOWNS.values()]).tolist()
    assert np.argsort(y).tolist() == np.argsort([-place[2] for place in TOWNS.values()]).tolist()
    assert max(*x, *y) < MAP_PIXELS


def _station(key: str, lon: float | None = None) -> Station:
    name, *place = TOWNS[key]
    return Station(key, name, (Position(None, place[0] if lon is None else lon, *place[1:]),))


def test_a_map_of_one_station_of_none_and_of_stations_without_positions() -> None:
    assert len(Page(draw_stations({"s1": _station("s1")})).circles) == 1
    assert draw_stations({}) == ""
    nowhere = _station("s2", lon=np.nan)
    assert "No station has a position" in Page(draw_stations({"s2": nowhere})).text
    assert "1 without a position" in Page(draw_stations({"s1": _station("s1"), "s2": nowhere})).text
    many = {str(number): _station("s1", lon=float(number) / 100) for number in range(5000)}
    page = Page(draw_stations(many))
    assert len(page.circles) <= 2000
    assert "1 of 3 drawn" in page.text


def test_stations_are_a_mapping_and_a_table(archive: OpenArchive) -> None:
    stations = archive.stations
    assert len(stations) == 4
    assert list(stations) == list(TOWNS)
    assert stations["s1"].name == "Col de la Vue"
    assert stations == archive.store.stations
    assert stations.get("s9") is None
    assert "s9" not in stations
    with pytest.raises(NotFound, match="unknown station 's9'. There are: s1, s2, s3, s4"):
        stations["s9"]
    table = stations.to_pandas()
    assert table.index.name == "station"
    assert table.loc["s2"].tolist() == [*TOWNS["s2"], 1]
    assert "Lac & Pré" in repr(stations)
    assert len(Page(stations._repr_html_()).circles) == 4
    assert "positions" not in Page(stations._repr_html_()).text
    moved = StationTable({"s": Station("s", "S", (Position(None, 7, 46, 1), Position(START_NS, 8, 46, 1)))})
    assert moved.to_pandas().loc["s", ["lon", "positions"]].tolist() == [8, 2]
    assert stations._ipython_key_completions_() == list(TOWNS)


def test_an_archive_is_a_mapping_of_its_variables(archive: OpenArchive) -> None:
    assert list(archive) == ["air_temperature", "wind_speed"]
    assert len(archive) == 2
    assert archive._ipython_key_completions_() == ["air_temperature", "wind_speed"]
    assert all(isinstance(query, Query) for query in archive.values())
    assert {name: query.question.variable for name, query in archive.items()} == {name: name for name in archive}
    assert archive.get("rain") is None
    assert "rain" not in archive
    with pytest.raises(NotFound, match="unknown variable 'rain'"):
        archive["rain"]
    # Two archives are equal only if they are one: they may read different snapshots.
    assert archive != hg.open(archive.path)
    assert len({archive, archive}) == 1


def test_a_query_shows_its_steps_with_their_parameters(archive: OpenArchive) -> None:
    model = hg.variogram("exponential", psill=1.2, range_m=250.0)
    query = (
        archive["air_temperature"]
        .select(station=["<i>", "s1"])
        .convert("valid_range", low=-40.0, high="50 degC")
        .aggregate("mean", time="hourly")
        .interpolate("ordinary_kriging", grid=hg.grid(lon=(7, 8), lat=(46, 47), step=0.5), variogram=model)
        .merge("difference", archive["wind_speed"])
        .with_variance()
        .clip(time=slice("2007-10-01", "2007-10-02"))
    )
    page = Page(query._repr_html_())
    assert page.tags.count("tr") == 1 + 6
    for words in (
        "Query: air_temperature", "valid_range", "low=-40.0", "high=50 degC", "time=1h", '"psill": 1.2', "step",
        '"station": ["<i>", "s1"]', "with query 1=wind_speed", 'clip={"time": ["2007-10-01"', "variance=true",
    ):  # fmt: skip
        assert words in page.text, words
    assert "i" not in page.tags


def test_a_long_value_is_shortened() -> None:
    edges = {"edges": [f"1970-01-01T{hour:02}:00" for hour in range(10)]}
    page = Page(network().aggregate("mean", time=edges)._repr_html_())
    assert "…" in page.text
    assert all(len(cell) < 200 for cell in re.split(r"\s{2,}", page.text))


def test_comparisons_and_cross_validations_are_tables() -> None:
    hourly = network().aggregate("mean", time="1h", min_coverage=0)
    compared = hg.compare_methods(hourly)
    table = compared.to_pandas()
    assert table.index.tolist() == [each.label for each in compared]
    assert table["rmse"].dropna().is_monotonic_increasing
    assert table.attrs["unit"] == "degC"
    page = Page(compared._repr_html_())
    assert f"best: {compared[0].label}" in page.text
    assert "errors in °C" in page.text
    assert all(each.label in page.text for each in compared)
    notes = {each.problem or "; ".join(each.notes) for each in compared} - {""}
    assert page.tags.count("li") == len(notes)
    assert compared[0].label in repr(compared)
    validated = hg.cross_validate(hourly, "inverse_distance")
    page = Page(validated._repr_html_())
    assert "CrossValidation of inverse_distance by station" in page.text
    assert page.tags.count("tr") == 2 + len(validated.stations)


def test_stations_are_selected_by_name_as_by_id(archive: OpenArchive, tmp_path: Path) -> None:
    query = archive["air_temperature"]
    by_name = query.select(station=["Tête", "Col de la Vue", "s2"])
    assert by_name.token == query.select(station=["s1", "s2", "s4"]).token
    assert by_name.compute()["station"].values.tolist() == ["s1", "s2", "s4"]
    assert query.select(station="Tête").compute()["station"].values.tolist() == ["s4"]
    assert archive.stations["Tête"] is archive.stations["s4"]
    # The JSON form keeps what was written.
    assert by_name.to_json()["select"] == {"station": ["Col de la Vue", "Tête", "s2"]}
    assert archive.query(by_name.to_json()).token == by_name.token
    with pytest.raises(InvalidQuery, match="no series of 'air_temperature' has .*station='Tete'; there are: .*s1, s2"):
        query.select(station="Tete").compute()


def test_a_name_that_several_stations_have_is_no_choice(tmp_path: Path) -> None:
    opened = named_archive(tmp_path / "archive", renamed={"s2": "Col de la Vue"})
    with pytest.raises(InvalidQuery, match="2 stations have the name 'Col de la Vue'; select one by its id: s1, s2"):
        opened["air_temperature"].select(station="Col de la Vue").compute()


def test_an_id_that_looks_like_a_number_is_text() -> None:
    numbered = network().select(station=3)
    assert numbered.to_json()["select"] == {"station": "3"}
    assert numbered.compute()["station"].values.tolist() == ["3"]
