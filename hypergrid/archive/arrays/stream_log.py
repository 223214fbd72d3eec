"""How the stream of an archive stood over the last hours: a line of JSON every few seconds, for those who watch it.

It is no truth: whoever streams appends, whoever serves reads, and a line that is torn or lost is passed over.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FILE: Final = Path("stream") / "progress.jsonl"
"""Within the folder of an archive."""
MAX_BYTES: Final = 4 << 20
"""Of the file; the older half goes then [bytes]."""
SHOWN_BYTES: Final = 512 << 10
"""What is read, from its end: about an hour [bytes]."""

Record = dict[str, Any]


def append_record(archive: Path, record: Mapping[str, Any]) -> None:
    """Add a record, which has `at_ns`, to the log of an archive; one process at a time.

    Raises
    ------
    OSError
        It cannot be written, as on a full disk.
    """
    path = archive / FILE
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        size = file.tell()
    if size > MAX_BYTES:
        kept = path.read_bytes()[-MAX_BYTES // 2 :].partition(b"\n")[2]
        draft = path.with_suffix(".draft")
        draft.write_bytes(kept)
        draft.replace(path)


def read_records(archive: Path) -> list[Record]:
    """Return the newest records of an archive, oldest first; none where nothing was streamed into it."""
    try:
        with (archive / FILE).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - SHOWN_BYTES))
            text = file.read()
    except OSError:
        return []
    lines = text.split(b"\n")
    # The first may begin within a line, the last may not be whole yet.
    parsed = map(_parse_record, lines[1 if size > SHOWN_BYTES else 0 :])
    return [record for record in parsed if record is not None]


def _parse_record(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("at_ns"), int) else None
