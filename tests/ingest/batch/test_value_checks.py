"""Which numbers and words of a column are proposed as missing values."""

from pathlib import Path

import numpy as np
import pytest

from ingest.batch.dry_run import dry_run
from ingest.batch.proposal import propose_deployment
from ingest.batch.value_checks import find_missing_codes, find_missing_words, number_text
from ingest.formats.file_metadata import COMMON
from ingest.job import ingest

RAIN, AIR = COMMON["precipitation"], COMMON["air_temperature"]
SHOWERS = [0.0] * 40 + [0.2] * 6 + [0.4] * 3


@pytest.mark.parametrize(
    "values",
    [
        [0.0] * 500 + [10.0] * 4,
        [*SHOWERS, 5.0, 5.0, 5.0],
        [0.0] * 9 + [60.0] * 9,
        [0.0] * 9 + [100.0] * 9,
        [0.0] * 9 + [840.0, 841.0, 842.0, 843.0] * 9,
        # Two other values are too few to compare with.
        [0.0, 1.0, 999.0, 999.0, 999.0],
    ],
)
def test_real_values_are_not_missing(values: list[float]) -> None:
    assert find_missing_codes(np.array(values), RAIN, "mm") == {}
    assert find_missing_codes(np.array(values), COMMON["relative_humidity"], "%") == {}


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([*SHOWERS, -999.0], {-999.0: 1}),
        ([*SHOWERS, -9999999.0, -9999999.0], {-9999999.0: 2}),
        ([*SHOWERS, 99.9, 99.9, 99.9], {99.9: 3}),
        ([*SHOWERS, 1e20, 1e20], {1e20: 2}),
    ],
)
def test_numbers_of_a_known_form_are(values: list[float], codes: dict[float, int]) -> None:
    assert find_missing_codes(np.array(values), RAIN, "mm") == codes


def test_frequent_numbers_that_a_variable_cannot_have_are() -> None:
    values = np.array([12.0, 13.0, 14.0, -300.0, -300.0, -300.0])
    assert find_missing_codes(values, AIR, "degC") == {-300.0: 3}
    assert find_missing_codes(values[:5], AIR, "degC") == {}
    # In a unit that is not known, nothing is impossible.
    assert find_missing_codes(values, AIR, "furlong") == {}


def test_words_for_nothing_or_a_trace_are_values() -> None:
    words = dict.fromkeys(("calm", "Calm.", "windstill", "Windstille", "trace", "T", "Spur", "(calm)"), 9)
    assert find_missing_words({**words, "kaputt": 3, "Ausfall": 2, "n.a.": 1}) == {"kaputt": 3, "n.a.": 1}


@pytest.mark.parametrize("number", [-9999999.0, -99.9, 1e20, 0.1 + 0.2, -1e7])
def test_a_number_is_written_exactly(number: float) -> None:
    assert float(number_text(number)) == number


def test_a_long_code_is_proposed_as_it_is_in_the_cells(tmp_path: Path, now_ns: int) -> None:
    cells = [15 + hour % 9 if hour % 5 else -9999999 for hour in range(24)]
    rows = "".join(f"2021-06-01T{hour:02d}:00,{cell}\n" for hour, cell in enumerate(cells))
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.csv").write_text(f"time,T [degC]\n{rows}")
    text = propose_deployment(dry_run([data]))
    assert '"-9999999"]' in text
    (data / "deployment.toml").write_text(text)
    report = ingest([data], tmp_path / "a", now_ns=now_ns)
    assert (report.values, report.missing) == (19, 5)
