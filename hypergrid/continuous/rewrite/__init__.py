"""Rewriting of continuous queries: pure functions from tree to tree, each exact under a stated condition."""

from hypergrid.continuous.rewrite.rules import RULES, Rewritten, Rule, rewrite

__all__ = ["RULES", "Rewritten", "Rule", "rewrite"]
