"""Query rewriting: pure functions from surface to surface, each exact under a stated condition."""

from hypergrid.rewrite.rules import RULES, RULES_FOR_MEMORY, FiredRule, RewriteResult, Rule, rewrite

__all__ = ["RULES", "RULES_FOR_MEMORY", "FiredRule", "RewriteResult", "Rule", "rewrite"]
