"""Compiled loops of kriging, and the threads that run them."""
