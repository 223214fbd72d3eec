"""The sample's archive, as a data manager looks after it."""

import json
import random
import re
import shutil
from pathlib import Path

from hypergrid.archive import Archive
from tests.end_to_end.in_process import hypergrid
from tests.ingest.repair.test_restoring import chunks_of, flip


def test_what_ingest_made_is_whole(five_days: Path) -> None:
    assert list(Archive.open(five_days / "build/demo/archive").check(deep=True, grace_s=0)) == []


def test_a_damaged_chunk_is_named_with_its_readings_and_what_to_do(five_days: Path, tmp_path: Path) -> None:
    archive = Path(shutil.copytree(five_days / "build/demo/archive", tmp_path / "archive"))
    largest = chunks_of(archive)[0]
    flip(largest, random.Random(1))
    report = hypergrid("check", archive, "--json")
    assert report.returncode != 0
    chunk, readings = json.loads(report.stdout)["defects"]
    assert chunk["where"] == str(largest.relative_to(archive))
    assert re.fullmatch(r"\w+ from 2007-09-29T\d\d:\d0Z, series 0 to \d+", readings["where"])
    assert re.fullmatch(r"the checksums of \w+ differ", readings["what"])
    assert all("hypergrid check --repair" in defect["remedy"] for defect in (chunk, readings))
