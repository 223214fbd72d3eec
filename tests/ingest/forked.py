"""Processes that are forked by one that has everything imported: a start costs milliseconds instead of seconds."""

import multiprocessing

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["ingest.sources.receiver"])
