"""Slow, obvious oracles and made-up networks, for tests."""
