"""Jobs: queries that were asked for, run in fair turns, with their results and history."""
