"""Errors keep their class, and what they hold, when their place is put before their message."""

from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge


def test_an_error_of_a_step_is_of_the_same_class() -> None:
    large = TooLarge("axis 'time'", "cells", 20, 10, "use longer steps").locate("step 2 (aggregate 'mean')")
    assert isinstance(large, TooLarge)
    assert str(large).startswith("step 2 (aggregate 'mean'): axis 'time' projects 20 cells, above the 10 allowed")
    assert (large.projected, large.allowed) == (20, 10)
    assert str(InvalidQuery("no").locate("step 1")) == "step 1: no"
    assert isinstance(NotFound("no").locate("step 1"), LookupError)
