"""When queries run: one bounded queue for what is asked, strategies for what stands, and the results that are kept."""
