"""Tests of continuous queries check the argument types of compiled functions; other tests call them as users do."""

import pytest


@pytest.fixture(scope="session")
def _loops_are_loaded() -> None:
    from hypergrid.continuous.engine.warm import warm  # noqa: PLC0415 - numba

    warm()


@pytest.fixture(autouse=True)
def _types_are_checked(_loops_are_loaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from hypergrid.continuous.engine.kernels.compiled import SpecialisedFunction  # noqa: PLC0415 - numba

    monkeypatch.setattr(SpecialisedFunction, "checks_types", True)
