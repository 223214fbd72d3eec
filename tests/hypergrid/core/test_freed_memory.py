"""Freed memory goes back to the system: looked at from outside, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

GAPS = """
import sys
from pathlib import Path
import numpy as np
from hypergrid.core.freed_memory import LARGE_BYTES, return_large_blocks

def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if sys.argv[1] == "limited":
    return_large_blocks()
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
def test_large_blocks_are_returned_though_small_ones_lie_between() -> None:
    full, after = held("limited")
    assert full > 100 << 20
    assert after < full / 10
    # Otherwise the function would not be needed.
    _, kept = held("unlimited")
    assert kept > full / 2
