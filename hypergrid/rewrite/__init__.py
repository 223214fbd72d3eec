"""Rewriting: pure functions from surface to surface, one a file, each exact under a stated condition."""

from hypergrid.rewrite.rules import RULES, Fired, Rewritten, Rule, rewrite

__all__ = ["RULES", "Fired", "Rewritten", "Rule", "rewrite"]
