"""When queries run: jobs, one bounded queue, and the results that are kept."""
