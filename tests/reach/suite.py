"""Tests that use the product as users do: commands, HTTP, pages, `hypergrid`, and the code of documents."""

from typing import Final

SERVERS: Final = ("tests/serving.py",)
"""Files of the tests on the stack of each request that they serve; they call nothing themselves."""
SUITE: Final = (
    # Commands, and the code of READMEs and of the guide.
    "tests/end_to_end/test_*.py",
    "tests/hypergrid/cli",
    "tests/ingest/cli",
    "tests/queries/test_backup_commands.py",
    # HTTP, by clients of all kinds, and what a server's own threads do.
    "tests/queries/jobs",
    "tests/queries/standing",
    "tests/queries/test_damaged_state.py",
    "tests/queries/web",
    "tests/viz/test_site.py",
    # Python.
    "tests/hypergrid/test_*.py",
    "tests/hypergrid/analysis",
    "tests/hypergrid/continuous",
    "tests/hypergrid/formats",
    "tests/hypergrid/plots",
    "tests/hypergrid/topology",
    "tests/hypergrid/wo_join",
    "tests/hypergrid/archive/test_as_of.py",
    "tests/hypergrid/archive/test_layers.py",
    "tests/hypergrid/interpolation/test_bad_input.py",
    "tests/hypergrid/interpolation/test_conventions.py",
    "tests/hypergrid/interpolation/test_fitted.py",
    "tests/hypergrid/interpolation/test_methods_in_queries.py",
    "tests/hypergrid/rewrite",
    "tests/hypergrid/perspective",
    "tests/hypergrid/execution",
    # Files, streams, quality tests and repairs, by their commands.
    "tests/ingest/batch",
    "tests/ingest/formats/test_sensorthings.py",
    "tests/ingest/importing",
    "tests/ingest/repair",
    "tests/ingest/reprocess",
    "tests/ingest/sources",
    "tests/ingest/spark",
    "tests/ingest/streaming/test_anew.py",
    "tests/ingest/streaming/test_spooled.py",
    "tests/ingest/streaming/test_tap.py",
    "tests/ingest/test_*.py",
    # Pages.
    "tests/browser",
)
"""Patterns of files and folders."""
LEFT_OUT: Final = {
    "tests/end_to_end/test_wheel.py": "an installation has other files than the checkout, whose functions are counted"
}
"""Files that the patterns meet and that are not run, with the reason."""
