"""What users are told of functions is what there is."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hypergrid as hg
from hypergrid.cli.main import app
from hypergrid.perspective.functions import catalogue as module
from hypergrid.perspective.functions.aggregates import AGGREGATES
from hypergrid.perspective.functions.catalogue import list_catalogue, replace_tables
from hypergrid.query import Query

README = Path(module.__file__).parents[1] / "README.md"


def test_the_readme_lists_the_functions_that_there_are() -> None:
    text = README.read_text()
    assert replace_tables(text) == text, "run python -m hypergrid.perspective.functions.catalogue"
    assert "| `quantile` | " in text
    assert "vapour pressure deficit" not in text.split("| merge |")[0]


def test_help_tells_what_each_aggregate_needs() -> None:
    told = re.search(
        r"Where absent 1 for (.*?), 0 \(any reading is enough\) for (.*?), 0\.8 for all others\.",
        " ".join((Query.aggregate.__doc__ or "").split()),
    )
    assert told
    whole, none = ({name for name, row in AGGREGATES.items() if row.min_coverage == share} for share in (1.0, 0.0))
    assert [set(re.findall(r"\w+", words)) - {"and"} for words in told.groups()] == [whole, none]
    assert {row.min_coverage for name, row in AGGREGATES.items() if name not in whole | none} == {0.8}


def test_functions_of_users_are_listed_but_not_in_the_readme() -> None:
    @hg.convert_function("catalogued_by_a_test")
    def halved(values: float) -> float:
        """Half of it."""
        return values / 2

    try:
        entry = next(entry for entry in list_catalogue() if entry.name == "catalogued_by_a_test")
        assert (entry.step, entry.summary, entry.is_added) == ("convert", "Half of it.", True)
        assert replace_tables(README.read_text()) == README.read_text()
    finally:
        hg.forget_function("catalogued_by_a_test")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "quantile",
            ["aggregate quantile: The value below", "needs 80 % of the readings", "share of the values, 0 to 1"],
        ),
        ("dew_point", ["needs relative humidity [%], air temperature [degC]"]),
        ("exceedance", ["[side=above]"]),
    ],
)
def test_the_command_line_says_more_of_one(name: str, said: list[str]) -> None:
    shown = CliRunner().invoke(app, ["functions", name])
    assert shown.exit_code == 0
    for words in said:
        assert words in shown.stdout


def test_the_command_line_lists_all() -> None:
    listed = json.loads(CliRunner().invoke(app, ["functions", "--json"]).stdout)
    assert {entry["step"] for entry in listed} == {"convert", "aggregate", "merge", "interpolate"}
    assert len(listed) == len(list_catalogue())
    shown = CliRunner().invoke(app, ["functions"])
    assert shown.exit_code == 0
    assert "exceedance" in shown.stdout
