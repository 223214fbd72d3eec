"""Groups and arrays of an archive: cells, side tables, attributes and merging."""
