"""Log of a stream's progress over the last hours, a JSON line every few seconds.

It is not authoritative: the streaming process appends, the server reads, and torn or lost lines are skipped.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hypergrid.core.files import replace_atomically

FILE: Final = Path("stream") / "progress.jsonl"
"""Path within the folder of an archive."""
MAX_BYTES: Final = 4 << 20
"""Size at which the older half of the file is dropped [bytes]."""
SHOWN_BYTES: Final = 512 << 10
"""Length of the tail that is read, about an hour [bytes]."""

Record = dict[str, Any]


def append_record(archive: Path, record: Mapping[str, Any]) -> None:
    """Append a record, which must have `at_ns`, to an archive's log; one process only.

    Raises
    ------
    OSError
        The log cannot be written, for example because the disk is full.
    """
    path = archive / FILE
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        size = file.tell()
    if size > MAX_BYTES:
        kept = path.read_bytes()[-MAX_BYTES // 2 :].partition(b"\n")[2]
        with replace_atomically(path) as draft:
            draft.write_bytes(kept)


def read_records(archive: Path) -> list[Record]:
    """Return the newest records of an archive, oldest first; empty if it has no stream."""
    try:
        with (archive / FILE).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - SHOWN_BYTES))
            text = file.read()
    except OSError:
        return []
    # The tail may begin within a line, and the last line may be incomplete.
    parsed = map(_parse_record, text.split(b"\n")[1 if size > SHOWN_BYTES else 0 :])
    return [record for record in parsed if record is not None]


def _parse_record(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("at_ns"), int) else None
