"""Names are made of titles, and found by them."""

import pytest

from hypergrid.core.names import find_name, make_slug

TITLES = {"air_temperature": "Air temperature", "air-2": "Air", "9": "Combe, bas", "wind_a": "Wind", "wind_b": "Wind"}


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("Frost in the Vallée", "frost-in-the-vallee"),
        ("  Größe (m²) ", "grosse-m2"),
        ("a_b", "a_b"),
        ("Мороз", ""),
        ("", ""),
    ],
)
def test_a_title_makes_a_slug(title: str, slug: str) -> None:
    assert make_slug(title) == slug
    assert make_slug(slug) == slug


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("air_temperature", "air_temperature"),
        ("Air temperature", "air_temperature"),
        ("AIR-TEMPERATURE", "air_temperature"),
        ("combe bas", "9"),
        ("air", "air-2"),
        ("wind", "wind"),  # two are meant
        ("rain", "rain"),
        ("", ""),
    ],
)
def test_a_name_is_found_however_it_is_written(given: str, name: str) -> None:
    assert find_name(given, TITLES) == name
