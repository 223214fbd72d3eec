"""What people read of an ingest."""

from ingest.shown import ledger


def test_the_ledger_tells_where_all_readings_went() -> None:
    report = {"readings": 90, "readings_rejected": 10, "stored": 70, "superseded": 5, "duplicates": 15}
    assert ledger(report) == (
        "ledger: 100 readings in = 70 in the archive + 5 superseded (retained) + 10 rejected + 15 exact duplicates"
    )
