"""Flags of readings that no archive surrounds."""

from collections.abc import Mapping
from dataclasses import replace

from hypergrid.core.readings import Readings
from ingest.deployment.quality_settings import VariableTests
from ingest.quality.block_tests import BlockHistory, with_memory
from ingest.quality.blocks import BLOCK_NS
from ingest.quality.run_tests import FlagResult, judge
from ingest.quality.spatial import Places


def judge_by_all(
    readings: Readings, tests: VariableTests, places: Places, companions: Mapping[str, Readings]
) -> FlagResult:
    """Flag readings by all tests of a variable, those with a memory as well, as in an archive of these alone."""
    judged = judge(readings, tests, places, companions)
    flagged = replace(readings, flag=judged.flag, tests=judged.tests)
    if tests.memory_days and len(readings):
        history = BlockHistory(readings.select_window, tests, lambda _: places)
        first, stop = (int(stamp // BLOCK_NS) for stamp in (readings.time_ns.min(), readings.time_ns.max()))
        flagged = with_memory(flagged, history.evaluate(first, stop + 1))
    return FlagResult(flagged.flag, flagged.tests_or_none_set())
