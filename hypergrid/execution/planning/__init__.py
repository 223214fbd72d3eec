"""Plans: cells, blocks, bytes and seconds, known before a run starts."""
