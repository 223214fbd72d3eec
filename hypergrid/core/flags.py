"""Quality flags of QARTOD (US IOOS, Manual for Real-Time Oceanographic Data Quality Control Flags)."""

from typing import Final

ABSENT: Final = 0
"""No reading in this cell; never the flag of a reading."""
GOOD: Final = 1
"""All tests that ran were passed."""
NOT_EVALUATED: Final = 2
"""No test ran, or none was conclusive."""
SUSPECT: Final = 3
"""Of interest, or doubtful."""
FAIL: Final = 4
"""Not to be used."""
MISSING: Final = 9
"""The station reported, but without a value."""

MEANINGS: Final = {GOOD: "good", NOT_EVALUATED: "not_evaluated", SUSPECT: "suspect", FAIL: "fail", MISSING: "missing"}
"""Flag value to its CF `flag_meanings` word."""

TESTS: Final = (
    "gross_range",
    "climatology",
    "spike",
    "flat_line",
    "rate_of_change",
    "attenuated_signal",
    "gap",
    "buddy_check",
    "spatial_consistency",
    "given_suspect",
    "given_fail",
    "level_shift",
    "faulty_zeros",
    "counter_fall",
)
"""Tests that can set a flag to suspect or fail.

Each index is the test's bit in the stored `flag_tests`, so the tuple is append-only. `given_suspect` and `given_fail`
are not tests: the value arrived with that flag."""

ACCEPTED_BY_DEFAULT: Final = (GOOD, NOT_EVALUATED)
"""Flags that a query reads by default."""
