"""Runs: the blocks of a plan, one after the other, with buffers and measurements."""
