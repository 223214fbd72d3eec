"""What the guide prints of the language; its queries are read where its pages are tested."""

import re
from pathlib import Path

import pytest

from hypergrid.continuous.language import InvalidCql, parse_query
from hypergrid.continuous.records import StreamCatalogue

GUIDE = Path(__file__).parents[4] / "viz" / "docs" / "how_to" / "continuous_queries.md"


def test_the_error_of_the_guide_is_that_of_the_language() -> None:
    texts = re.findall(r"```(?:sql|text)\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    schema, printed = texts[0].partition(";")[0], texts[1]
    with pytest.raises(InvalidCql) as raised:
        parse_query(f"{schema};\n\n\nSelect sped\nFrom wind", StreamCatalogue())
    assert str(raised.value) == printed.rstrip("\n")
