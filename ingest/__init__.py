"""From the files of stations to the archive. `ingest.job.ingest` is the way in."""
