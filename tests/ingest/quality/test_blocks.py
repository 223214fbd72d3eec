"""Blocks of three hours: what of readings is kept of each, and rates that are zero while the neighbours' are not."""

import numpy as np

from hypergrid.core.readings import Readings, Series
from hypergrid.core.units import Variable
from ingest.deployment.quality_overrides import default_tests
from ingest.quality.blocks import BLOCK_NS, blocks_of, means, medians, sums

HOUR_NS = 3_600 * 10**9


def _readings(value: list[float]) -> Readings:
    stamps = np.arange(len(value)) * HOUR_NS
    flag = np.full(len(value), 2, np.uint8)
    return Readings((Series("x", "s"),), np.zeros(len(value), np.int32), stamps, np.array(value), flag, stamps)


def test_a_block_has_a_median_a_sum_and_a_mean() -> None:
    given, rows = _readings([1.0, 2.0, 6.0, 0.0, 0.0]), np.arange(5)
    assert BLOCK_NS == 3 * HOUR_NS
    assert medians(given, rows, 0, 2).tolist() == [[2.0, 0.0]]
    assert sums(given, rows, 0, 2).tolist() == [[9.0, 0.0]]
    assert means(given, rows, 0, 2).tolist() == [[3.0, 0.0]]
    np.testing.assert_array_equal(means(given, rows, 1, 3), [[0.0, np.nan]])


def test_blocks_of_rates_are_means_in_any_unit() -> None:
    """Rates had no test of faulty zeros."""
    for unit, factor in (("mm/h", 1.0), ("kg m-2 s-1", 1.0 / 3600.0)):
        tests = default_tests(Variable("rr", unit, "precipitation_flux"))
        assert tests.faulty_zeros is not None
        assert (tests.faulty_zeros.of, round(tests.faulty_zeros.wet / factor, 6)) == ("rate", round(0.5 / 3.0, 6))
        total = blocks_of(_readings([1.2 * factor, 0.0, 0.0]), tests, 0, 1)[1]
        np.testing.assert_allclose(total, [[0.4 * factor]])


def test_dew_point_and_pressure_at_sea_level_have_a_test_of_shifts() -> None:
    """They had none; soil temperature has none, as snow and frost shift it for weeks at one site and not another."""
    dew, pressure = Variable("td", "degC", "dew_point_temperature"), Variable("p0", "hPa", "air_pressure_at_sea_level")
    assert [default_tests(one).level_shift is not None for one in (dew, pressure)] == [True, True]
    assert default_tests(Variable("ts", "degC", "soil_temperature")).level_shift is None
