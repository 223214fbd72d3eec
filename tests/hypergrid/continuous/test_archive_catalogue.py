"""Streams and relations of an archive, and queries that name them."""

from pathlib import Path

import pytest

from hypergrid.continuous.archive_catalogue import list_streams
from hypergrid.continuous.expressions import Attribute
from hypergrid.continuous.language import InvalidCql, explain_query, parse_query
from tests.support.named_network import named_archive


def test_each_variable_is_a_stream_with_its_unit(tmp_path: Path) -> None:
    catalogue = list_streams(named_archive(tmp_path / "archive"))
    assert catalogue.names == ("air_temperature", "neighbours", "obs", "readings", "stations", "wind_speed")
    attributes = catalogue.streams["wind_speed"]
    assert [each.name for each in attributes] == [
        "station", "series", "height_m", "value", "flag", "slice", "time", "arrival"]  # fmt: skip
    assert attributes[3] == Attribute("value", "number", "m s-1")
    assert catalogue.static == {"stations", "neighbours"}
    # Four stations report every ten minutes for a day.
    assert catalogue.rates["wind_speed"] == pytest.approx(4 / 600, rel=0.02)
    assert catalogue.rates["readings"] == pytest.approx(8 / 600, rel=0.02)
    assert catalogue.groups["wind_speed"] == {"station": 4, "series": 4}
    assert catalogue.groups["obs"] == {"station": 4}
    assert catalogue.groups["readings"] == {"station": 4, "variable": 2, "series": 8}


def test_queries_take_flags_and_units_from_the_archive(tmp_path: Path) -> None:
    catalogue = list_streams(named_archive(tmp_path / "archive"))
    query = parse_query(
        "Select w.station, s.elevation_m From wind_speed [Range 1 Hour] w, stations s "
        "Where w.station = s.station And w.value > '20 km/h'",
        catalogue,
    )
    text = explain_query(query, rates=catalogue.rates, groups=catalogue.groups)
    assert (
        "wind_speed: rows whose flag is 1 (good) or 2 (not evaluated), as the query does not name `flag` (R8)." in text
    )
    assert "value > 5.55555555556" in text
    assert "filtered wind_speed [range 1 h]: 2 of 8 columns, 32 bytes a row, 24 rows: 768 bytes" in text
    with pytest.raises(InvalidCql, match="did you mean 'wind_speed'"):
        parse_query("Select * From wind_sped", catalogue)
