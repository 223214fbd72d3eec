"""The sample's archive, as a data manager looks after it."""

from pathlib import Path

from hypergrid.archive import Archive


def test_what_ingest_made_is_whole(five_days: Path) -> None:
    assert list(Archive.open(five_days / "build/demo/archive").check(deep=True, grace_s=0)) == []
