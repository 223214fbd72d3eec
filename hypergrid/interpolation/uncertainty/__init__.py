"""Error variances of means over space and time, and simulated fields."""
