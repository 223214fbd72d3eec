"""Sources of readings: archives at a snapshot, and arrays in memory."""
