"""Scheduling on a moved clock: random query graphs, bursts, and what each strategy earns of them (thesis 4.9, 5.11)."""
