"""Results: arrays to datasets with CF attributes, in memory or in a Zarr store."""
