"""Layers: static fields such as elevation, read from rasters and interpolated onto regular cells."""
