"""How much an archive holds of each variable, by reading all of it."""

import numpy as np

from hypergrid.archive import Archive


def count_content(archive: Archive) -> dict[str, dict[str, int]]:
    """Count the content of each variable; what the archive says of its readings must be what it holds.

    The keys are "series", "readings", "values", "missing", "superseded" and "slices". "readings" excludes superseded
    ones and is the sum of "values" and "missing" (reported without a value).
    """
    counts = {}
    for name in archive.variables:
        current = archive.read(name)
        missing = int(np.isnan(current.value).sum())
        assert archive.readings(name) == len(current)
        counts[name] = {
            "series": len(archive.list_series(name)),
            "readings": len(current),
            "values": len(current) - missing,
            "missing": missing,
            "superseded": len(archive.read(name, superseded=True)),
            "slices": len(np.unique(archive.slices.index(current.time_ns))),
        }
    return counts
