"""Verification of stored values against raw copies, and their restoration."""
