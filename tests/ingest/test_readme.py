"""The way of a reading from CSV to the archive, as the README tells it, is the way that it takes."""

import re
import threading
from pathlib import Path

from ingest.job import ingest
from tests.support.entered_files import list_entered_files

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "ingest/README.md").read_text().split("## One reading, file by file")[1].split("\n## ")[0]


def test_a_reading_passes_every_file_of_the_list(tmp_path: Path) -> None:
    source = tmp_path / "files"
    source.mkdir()
    (source / "a.csv").write_text("time,station,air_temperature\n2024-01-01 00:00,s1,1.5\n2024-01-01 00:10,s1,1.6\n")
    entered = set[str]()

    def run() -> None:
        ingest([source], tmp_path / "archive", now_ns=1_704_100_000_000_000_000, engine="inprocess")

    # Variables are written in threads of their own.
    threading.setprofile(lambda frame, event, _: event == "call" and entered.add(frame.f_code.co_filename))
    try:
        files = set(list_entered_files(run, ROOT))
    finally:
        threading.setprofile(None)
    files |= {Path(name).relative_to(ROOT).as_posix() for name in entered if Path(name).is_relative_to(ROOT)}
    named = set(re.findall(r"`([a-z_/]+\.py)`", SECTION))
    assert {name if name.startswith("hypergrid/") else f"ingest/{name}" for name in named} <= files
    assert len(named) <= 30
