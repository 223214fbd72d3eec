"""What people read of an ingest."""

from ingest.cli.report_text import engine_text, ledger, skipped_text


def test_the_ledger_tells_where_all_readings_went() -> None:
    report = {"readings": 90, "readings_rejected": 10, "stored": 70, "superseded": 5, "duplicates": 15}
    assert ledger(report) == (
        "ledger: 100 readings in = 70 in the archive + 5 superseded (retained) + 10 rejected + 15 exact duplicates"
    )


def test_the_place_of_parsing_is_told_with_the_size_that_chose_it() -> None:
    assert engine_text("inprocess", 1_500_000) == (
        "parsed in one process, without Spark: 1.4 MiB of new files (--engine auto takes Spark from 32 MiB on)"
    )
    assert engine_text("spark", 2 << 30).startswith("parsed on Spark: 2,048.0 MiB of new files (")


def test_stations_that_no_neighbours_test_are_counted_by_the_reason() -> None:
    assert skipped_text({}) == ""
    assert skipped_text({"air_temperature": {"no_position": 2, "isolated": 3}, "wind": {"no_elevation": 1}}) == (
        "not tested by neighbours: air_temperature at 5 stations (3 with too few neighbours, 2 without a known "
        "position); wind at 1 stations (1 without a known elevation)"
    )
