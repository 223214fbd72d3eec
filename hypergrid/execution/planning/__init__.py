"""Query planning: cells, blocks, memory and time, projected before a run starts."""
