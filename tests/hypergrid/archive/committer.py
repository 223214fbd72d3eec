"""Commits numbered batches until it is done or killed: ``committer.py ARCHIVE STATION FIRST LAST ROWS``."""

import sys

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.readings import Readings, Series


def main(folder: str, station: str, first: int, last: int, rows: int) -> None:
    archive = Archive.open(folder)
    for batch in range(first, last):
        # Batch k fills the k-th run of slices with the value k; every second reading lies beyond the first of its cell.
        time_ns = (batch * rows + np.arange(rows)) * 60_000_000_000
        value = np.full(rows, float(batch))
        series = (Series("v", station),)
        given = Readings(series, np.zeros(rows, np.int32), time_ns, value, np.full(rows, 2, np.uint8), time_ns)
        with archive.commit(batch=f"{station}-{batch}", message="", now_ns=batch) as writer:
            if not writer.already_committed:
                writer.readings(given)
        sys.stdout.write(f"{batch}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
