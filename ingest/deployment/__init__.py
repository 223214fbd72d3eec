"""Deployments: the description of a network, and the mapping of file columns to variables."""
