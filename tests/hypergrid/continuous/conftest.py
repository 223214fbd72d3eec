"""Tests of continuous queries look at the types of what compiled functions are given; others call them as users do."""

import pytest


@pytest.fixture(autouse=True)
def _types_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from hypergrid.continuous.engine.kernels.compiled import SpecialisedFunction  # noqa: PLC0415 - numba

    monkeypatch.setattr(SpecialisedFunction, "checks_types", True)
