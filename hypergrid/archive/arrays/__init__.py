"""Groups and arrays of an archive: cells, side tables, attributes, and how readings are merged into them."""
