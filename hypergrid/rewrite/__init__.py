"""Rewriting: pure functions from surface to surface, one a file, each exact under a stated condition."""

from hypergrid.rewrite.rules import RULES, Rewritten, Rule, rewrite

__all__ = ["RULES", "Rewritten", "Rule", "rewrite"]
