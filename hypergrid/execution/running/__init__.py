"""Runs: compute the blocks of a plan in sequence, with buffers and measurements."""
