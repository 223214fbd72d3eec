"""Commits numbered batches until it is done or killed: ``committer.py ARCHIVE STATION FIRST LAST ROWS [ledger]``.

With a ledger each batch is that of a file, as ingest brings it: first its raw copy, then readings and its entry.
"""

import hashlib
import sys

import numpy as np
import pyarrow as pa

from hypergrid.archive import Archive, FileEntry
from hypergrid.core.readings import Readings, Series


def copy_raw(archive: Archive, name: str, rows: int) -> FileEntry:
    content = f"{name} {rows}".encode()
    digest = hashlib.sha256(content).hexdigest()
    path = archive.path / "raw" / digest[:2] / f"{digest}.zst"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".partial-{path.name}")
    with pa.CompressedOutputStream(str(partial), "zstd") as packed:
        packed.write(content)
    partial.replace(path)
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
