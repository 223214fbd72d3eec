"""What machines read from the command line is JSON, whatever the numbers are."""

import json
import math

import pytest

from hypergrid.console import show_json


def test_what_json_does_not_have_becomes_null(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"lon": math.nan, "rows": [(1.5, math.inf), {"deep": -math.inf, "text": "NaN"}], "none": None, "yes": True}
    show_json(given)

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found == {"lon": None, "rows": [[1.5, None], {"deep": None, "text": "NaN"}], "none": None, "yes": True}


def test_a_list_of_records_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    show_json([{"elevation_m": math.nan}])
    assert json.loads(capsys.readouterr().out) == [{"elevation_m": None}]
