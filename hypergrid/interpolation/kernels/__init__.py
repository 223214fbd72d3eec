"""Compiled loops of kriging, with the threads that they run on."""
