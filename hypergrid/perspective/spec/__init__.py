"""Query specifications: what a user writes, parsed and frozen."""
