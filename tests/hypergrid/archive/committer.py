"""Commits numbered batches until it is done or killed: ``committer.py ARCHIVE STATION FIRST LAST ROWS [ledger]``.

With a ledger each batch is that of a file, as ingest brings it: first its raw copy, then readings and its entry.
"""

import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np

from hypergrid.archive import Archive, FileEntry
from hypergrid.archive.disk.raw_copies import RAW, keep
from hypergrid.core.readings import Readings, Series


def copy_raw(archive: Archive, name: str, rows: int) -> FileEntry:
    content = f"{name} {rows}".encode()
    digest = hashlib.sha256(content).hexdigest()
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        keep(Path(file.name), archive.path / RAW, sha256=digest, size_bytes=len(content))
    return FileEntry(name, digest, len(content), rows, rows, 0, 0, "")


def main(folder: str, station: str, first: int, last: int, rows: int, *, with_ledger: bool) -> None:
    archive = Archive.open(folder)
    for batch in range(first, last):
        # Batch k fills the k-th run of slices with the value k; every second reading lies beyond the first of its cell.
        time_ns = (batch * rows + np.arange(rows)) * 60_000_000_000
        value = np.full(rows, float(batch))
        series = (Series("v", station),)
        given = Readings(series, np.zeros(rows, np.int32), time_ns, value, np.full(rows, 2, np.uint8), time_ns)
        entries = [copy_raw(archive, f"{station}-{batch}.csv", rows)] if with_ledger else []
        with archive.commit(batch=f"{station}-{batch}", message="", now_ns=batch) as writer:
            if not writer.already_committed:
                writer.readings(given)
                writer.files(entries)
        sys.stdout.write(f"{batch}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), with_ledger=sys.argv[6:] == ["ledger"])
