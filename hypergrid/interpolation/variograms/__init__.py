"""Variograms: models, empirical estimates, fits, and conversion to other programs' conventions."""
