"""Stations and targets, and the distances between them."""
