"""Methods of interpolation, one row each."""
