"""The benchmark of recipes: what it reports, on one day."""

import json

from tests.bench.bench_recipes import BANDS_M, CASES, JUDGED, SETUPS, measure, tables


def test_errors_by_band_of_elevation() -> None:
    told: list[str] = []
    measured = measure("air_temperature", days=1, notify=lambda stage, _done: told.append(stage))
    rows = measured["errors"]
    assert [row["elevation_m"] for row in rows][:2] == ["2380 to 2520", "2380 to 2400"]
    assert len(rows) == len(BANDS_M)
    assert rows[0]["cells"] == sum(row["cells"] for row in rows[1:]) == 23 * 23
    assert rows[0]["recipe_rmse"] < rows[0]["plain_rmse"]
    assert rows[0]["ratio"] == rows[0]["plain_rmse"] / rows[0]["recipe_rmse"]
    assert set(told) == {"make the sample network", "air_temperature"}
    json.dumps(measured)
    [(title, columns, listed)] = tables(measured)
    assert "1 days" in title
    assert all(len(row) == len(columns) for row in listed)


def test_directions_have_no_plain_kriging() -> None:
    rows = measure("wind_direction", days=1)["errors"]
    assert {row["plain_rmse"] for row in rows} == {None}
    assert all(row["recipe_rmse"] < 15.0 for row in rows)


def test_each_variable_is_a_case() -> None:
    assert set(CASES) == {"all", *SETUPS, *JUDGED}
