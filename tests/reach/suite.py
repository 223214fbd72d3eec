"""Tests that use the product as users do: commands, HTTP, pages, `hypergrid`, and the code of documents."""

from typing import Final

SERVERS: Final = ("tests/serving.py",)
"""Files of the tests on the stack of each request that they serve; they call nothing themselves."""
SUITE: Final = (
    # Commands, and the code of READMEs and of the guide.
    "tests/end_to_end",
    "tests/hypergrid/cli",
    "tests/ingest/cli",
    "tests/queries/standing/test_commands.py",
    "tests/queries/test_backup_commands.py",
    # HTTP, by clients of all kinds.
    "tests/queries/web",
    "tests/queries/test_damaged_state.py",
    # Pages.
    "tests/browser",
    # Python.
    "tests/hypergrid/analysis",
    "tests/hypergrid/execution",
    "tests/hypergrid/formats",
    "tests/hypergrid/interpolation/test_methods_in_queries.py",
    "tests/hypergrid/perspective",
    "tests/hypergrid/plots",
    "tests/hypergrid/topology",
    "tests/hypergrid/wo_join/test_join.py",
    "tests/hypergrid",
    # Streams, quality tests and repairs, by their commands.
    "tests/ingest/importing",
    "tests/ingest/repair",
    "tests/ingest/reprocess",
    "tests/ingest/sources",
    "tests/ingest/test_kill.py",
    "tests/ingest/test_publication.py",
    "tests/ingest/test_readme.py",
    "tests/ingest/test_s3.py",
    "tests/ingest/test_stream.py",
    "tests/ingest/test_stream_kill.py",
)
