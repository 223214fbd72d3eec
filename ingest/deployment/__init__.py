"""Deployments: what a network is, and which column of which file is which variable."""
