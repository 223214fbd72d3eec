"""Jobs: submitted queries, run in fair turns, with their results and history."""
