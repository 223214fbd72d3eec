"""Which tests a variable has by default: by what it is declared to be, by its names and by its unit."""

import numpy as np
import pytest

from hypergrid.core.flags import FAIL, GOOD
from hypergrid.core.units import Variable
from ingest.deployment.quality_overrides import default_tests
from tests.ingest.quality.test_intervals import judged, readings_of


@pytest.mark.parametrize(
    "variable",
    [
        Variable("gauge", "mm", is_counter=True, rollover=1000.0),
        Variable("precipitation", "mm", "lwe_thickness_of_precipitation_amount", is_counter=True, rollover=1000.0),
        Variable("gauge", "inch", "precipitation_amount", is_counter=True, resolution=0.01),
    ],
    ids=str,
)
def test_a_declared_counter_is_held_against_no_limit_of_amounts(variable: Variable) -> None:
    """A gauge that holds 300 mm has not received them in an interval."""
    tests = default_tests(variable)
    assert tests.counter_fall is not None
    assert tests.faulty_zeros is not None
    assert tests.gross_range is not None
    scale = 1.0 if variable.unit == "mm" else 25.4
    content = (300.0 + 0.2 * np.arange(144)) / scale
    assert (judged(readings_of(content, variable=variable.name, step_s=600.0), tests).flag == GOOD).all()
    if variable.rollover is not None:
        content[7] = variable.rollover + 87.0
        assert judged(readings_of(content, variable=variable.name, step_s=600.0), tests).flag[7] == FAIL


@pytest.mark.parametrize(
    ("name", "unit"), [("precipitation", "mm/h"), ("rain", "mm"), ("rain", "mm/h"), ("rainfall", "kg m-2 s-1")]
)
def test_rain_has_tests_by_its_unit_without_a_standard_name(name: str, unit: str) -> None:
    tests = default_tests(Variable(name, unit))
    assert judged(readings_of(np.array([0.0, -99.0, 0.0]), variable=name, step_s=600.0), tests).flag[1] == FAIL
