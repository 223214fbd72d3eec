"""Freed memory goes back to the system: looked at from outside, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

GAPS = """
import sys
from pathlib import Path
import numpy as np
from hypergrid.core.freed_memory import LARGE_BYTES, keep_freed_blocks, return_large_blocks

def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if "keeping" in sys.argv[1].split():
    keep_freed_blocks()
if "limited" in sys.argv[1].split():
    return_large_blocks()
    keep_freed_blocks()
# A large block that is freed raises the threshold of glibc.
del_me = np.ones(3 * 2**20)
del del_me
before = held()
large, small = [], []
for _ in range(60):
    large.append(np.ones(LARGE_BYTES // 4))
    # It keeps the heap from shrinking.
    small.append(np.ones(1000))
full = held()
large.clear()
print(full - before, held() - before)
"""


def held(how: str) -> tuple[int, int]:
    """Return what a process holds more with large arrays, and once they are freed [bytes]."""
    words = [sys.executable, "-c", GAPS, how]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    full, after = map(int, printed.split())
    return full, after


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.parametrize("how", ["limited", "keeping limited"])
def test_large_blocks_are_returned_though_small_ones_lie_between(how: str) -> None:
    full, after = held(how)
    assert full > 100 << 20
    assert after < full / 10
    # Otherwise the function would not be needed.
    _, kept = held("unlimited")
    assert kept > full / 2


BATCHES = """
import resource
from tests.bench.bench_cql import BATCH, encode_stations, make_engine, make_feeds

def count_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

engine = make_engine("sliding_mean")
# One batch at later and later instants: longer input would raise the threshold of glibc when it is freed.
[batch] = encode_stations("sliding_mean", make_feeds("sliding_mean", BATCH), engine).values()
span = batch.tau[-1] + 1
for number in range(40):
    if number == 10:
        before, size = count_faults(), 0
    engine.push("readings", batch._replace(tau=batch.tau + number * span))
    engine.advance(int((number + 1) * span))
    results = engine.results()
    if number >= 10:
        size += sum(part.tau.nbytes + part.sign.nbytes + sum(c.nbytes for c in part.columns) for part in results)
    # Results are gone before the next ones, as in a stream.
    del results
print(count_faults() - before, size // resource.getpagesize())
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_pages_of_results_are_not_cleared_for_each_batch() -> None:
    words = [sys.executable, "-c", BATCHES]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    faults, pages = map(int, printed.split())
    # Without `keep_freed_blocks` each page of results, and of what is made on the way, is taken from the system again.
    assert pages > 10_000
    assert faults < pages / 10
