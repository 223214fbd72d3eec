"""Seeds that a commit's hash draws, so that none was chosen by its outcome."""

import hashlib


def seed_of(commit: str, number: int) -> int:
    """Map a commit's hash and a number to a seed of 32 bits."""
    return int.from_bytes(hashlib.sha256(f"{commit}:{number}".encode()).digest()[:4], "big")
