"""The archive: readings, flags, arrivals, stations, layers and snapshots on disk, with one committer.

The only folder that knows Icechunk and the layout of the Zarr arrays; `README.md` beside this file describes it.
"""

from hypergrid.store.archive import Archive
from hypergrid.store.changes import Change, compared, told
from hypergrid.store.checks import Defect
from hypergrid.store.folder import MARKER
from hypergrid.store.layers import LayerChange, LayerEntry, Layers
from hypergrid.store.records import Conservation, FileEntry, Reject, Snapshot
from hypergrid.store.writer import Writer

__all__ = [
    "MARKER", "Archive", "Change", "Conservation", "Defect", "FileEntry", "LayerChange", "LayerEntry", "Layers",
    "Reject", "Snapshot", "Writer", "compared", "told",
]  # fmt: skip
