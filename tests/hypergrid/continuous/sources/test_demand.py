"""What trees ask of their inputs."""

from pathlib import Path

import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.continuous.expressions import Attribute
from hypergrid.continuous.language import parse_query
from hypergrid.continuous.records import StreamCatalogue
from hypergrid.continuous.rewrite import rewrite
from hypergrid.continuous.sources import list_demands
from hypergrid.continuous.sources.demand import Demand
from tests.support.continuous_archives import elements_of, random_sources

S = (
    Attribute("station", "text"),
    Attribute("variable", "text"),
    Attribute("value", "number"),
    Attribute("other", "number"),
)
R = (Attribute("station", "text"), Attribute("limit", "number"))
CATALOGUE = StreamCatalogue({"S": S}, {"R": R}, static=frozenset(("R",)))


def demands(text: str) -> dict[str, Demand]:
    return list_demands(rewrite(parse_query(text, CATALOGUE).tree, CATALOGUE.static).tree)


def test_columns_that_nothing_reads_are_not_asked_for() -> None:
    of_stream = demands("Select station, avg(value) From S [Range 1 Hour] Where variable = 'x' Group By station")["S"]
    assert of_stream.columns == {0, 1, 2}
    assert of_stream.restrictions == {"variable": {"x"}}


def test_uses_are_united() -> None:
    text = """Select a.value From S [Range 1 Hour Where station = '1'] a, S [Range 1 Hour Where station In ('2', '3')] b
    Where a.value < b.value"""
    assert demands(text)["S"].restrictions == {"station": {"1", "2", "3"}}
    both = "Select a.value From S [Range 1 Hour Where station = '1'] a, S [Range 1 Hour] b Where a.value < b.value"
    assert demands(both)["S"].restrictions == {}


def test_filters_above_a_window_of_rows_do_not_restrict() -> None:
    assert demands("Select value From S [Rows 5] Where station = '1'")["S"].restrictions == {}
    assert demands("Select value From S [Rows 5 Where station = '1']")["S"].restrictions == {"station": {"1"}}


def test_an_or_of_one_column_restricts_and_one_of_two_does_not() -> None:
    one = "Select value From S [Range 1 Hour] Where station = '1' or station = '2'"
    assert demands(one)["S"].restrictions == {"station": {"1", "2"}}
    two = "Select value From S [Range 1 Hour] Where station = '1' or variable = '2'"
    assert demands(two)["S"].restrictions == {}


def test_rows_that_show_from_the_first_instant_need_all_elements() -> None:
    # The count is 0 from the first element on, whichever station it is of.
    assert demands("Select count(*) From S [Range 1 Hour] Where station = '1'")["S"].restrictions == {}


def test_rows_that_are_repeated_from_the_first_instant_need_all_elements() -> None:
    union = "(Select station From R Union All Select station From S [Range 1 Hour Slide 1 Minute] Where station = '1')"
    assert demands(f"Select Rstream(station) From {union}")["S"].restrictions == {}
    assert demands(f"Select Istream(station) From {union}")["S"].restrictions == {"station": {"1"}}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", ["Rstream", "Istream"])
def test_rows_from_the_start_show_with_the_first_reading_of_any_quality(tmp_path: Path, form: str, seed: int) -> None:
    """Compare an archive with a table of all its readings, those that failed tests of quality included."""
    archive, table = random_sources(tmp_path / "a", seed, hours=1)
    elements = elements_of(table)
    elements = elements[elements["variable"] == "air_temperature"][["tau", "station", "series", "value", "flag"]]
    last = elements.groupby("station")["tau"].min().idxmax()
    limits = pd.DataFrame({"station": ["zz"]})
    end = int(elements["tau"].max()) + 60 * 10**9
    text = f"""{form}(Select station From limits Union All Select station
    From air_temperature [Range 10 Minutes Slide 1 Minute] Where station = '{last}' and flag In (1, 2))"""
    source = hg.continuous({"air_temperature": elements, "limits": limits})
    expected = source.query(text).run(until=end - 1)
    rows = hg.continuous(archive, tables={"limits": limits}).query(text.replace(" and flag In (1, 2)", "")).run(end=end)
    assert len(expected) > 0
    assert rows["tau"].astype("int64").tolist() == expected["tau"].astype("int64").tolist()
    assert rows["station"].tolist() == expected["station"].tolist()


def test_a_sample_reads_all_columns() -> None:
    sampled = demands("Select value From S [Range 1 Hour] Sample(10) Where station = '1'")["S"]
    assert sampled.columns == {0, 1, 2, 3}
