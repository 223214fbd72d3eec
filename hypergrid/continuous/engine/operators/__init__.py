"""Operators of continuous queries: one idea a file, all with the interface of `operators/base.py`."""
