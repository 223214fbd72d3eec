"""Analyses of a query's stations and results: variograms, cross-validation, incremental surfaces, reproduction."""
