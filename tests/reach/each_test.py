"""Plugin of pytest: what a test calls is looked at, however often the tests before it called the same."""

import builtins

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin to count anew the calls that no user could have caused."""
    forget = getattr(builtins, "__reach_anew__", None)
    if forget is not None:
        forget()
