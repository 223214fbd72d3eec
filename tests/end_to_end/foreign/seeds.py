"""Seeds that a commit's hash draws, so that none was chosen by its outcome."""

import hashlib
from typing import Final

GENERATOR_COMMIT: Final = "a422050a40861089491c34146747b9ac58554303"
"""The commit that added the networks; no seed was known before."""
SEEDS: Final = 20
"""How many weathers of each network are judged."""


def seed_of(number: int, commit: str = GENERATOR_COMMIT) -> int:
    """Map a number, and a commit's hash, to a seed of 32 bits."""
    return int.from_bytes(hashlib.sha256(f"{commit}:{number}".encode()).digest()[:4], "big")
