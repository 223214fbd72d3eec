"""The limit of one BLAS thread holds for whichever threads set it and leave it."""

import os
import subprocess
import sys

import pytest

from hypergrid.core.blas import count_cores

BY_SEVERAL_THREADS = """
from concurrent.futures import ThreadPoolExecutor
import numpy
import scipy.linalg
from threadpoolctl import threadpool_info
from hypergrid.core.blas import one_thread

def count():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

def limited():
    with one_thread():
        return count()

free = count()
assert free == {2}, free
with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
    for pool in (first, second, first):
        assert pool.submit(limited).result() == {1}
        assert count() == free
    assert limited() == {1}
    first_limit, second_limit = one_thread(), one_thread()
    first.submit(first_limit.__enter__).result()
    second.submit(second_limit.__enter__).result()
    first.submit(first_limit.__exit__, None, None, None).result()
    assert count() == {1}, "one user is left"
    second.submit(second_limit.__exit__, None, None, None).result()
assert count() == free
"""


@pytest.mark.skipif(count_cores() < 2, reason="one processor has one BLAS thread")
def test_each_thread_limits_and_the_last_one_restores() -> None:
    process = subprocess.run(
        [sys.executable, "-c", BY_SEVERAL_THREADS], env={**os.environ, "OPENBLAS_NUM_THREADS": "2"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
