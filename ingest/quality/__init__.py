"""Quality tests: pure functions of arrays, used during ingest, over an archive, and on executors."""
