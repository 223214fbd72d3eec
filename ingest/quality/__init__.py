"""Tests that set flags: pure functions of arrays, run alike while ingesting, over an archive, and on executors."""
