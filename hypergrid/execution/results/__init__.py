"""Results as datasets with CF attributes, in memory or in a Zarr store."""
