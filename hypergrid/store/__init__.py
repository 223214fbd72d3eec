"""The archive: readings, flags, arrivals, stations, layers and snapshots on disk, with one committer.

The only folder that knows Icechunk and the layout of the Zarr arrays; `README.md` beside this file describes it.
"""

from hypergrid.store.archive import Archive, StoreError
from hypergrid.store.branch import Branch, Fork, Result, Written
from hypergrid.store.care import CARE, Care, Maintained
from hypergrid.store.changes import Change, compared, told
from hypergrid.store.checks import Defect, check_files
from hypergrid.store.folder import MARKER, read_layout, readable_layouts
from hypergrid.store.folder import VERSION as LAYOUT
from hypergrid.store.layers import LayerChange, LayerEntry, Layers
from hypergrid.store.place import S3Store
from hypergrid.store.records import Conservation, FileEntry, Reject, Snapshot
from hypergrid.store.writer import Writer

__all__ = [
    "CARE", "LAYOUT", "MARKER", "Archive", "Branch", "Care", "Change", "Conservation", "Defect", "FileEntry", "Fork",
    "LayerChange", "LayerEntry", "Layers", "Maintained", "Reject", "Result", "S3Store", "Snapshot", "StoreError",
    "Writer", "Written", "check_files", "compared", "read_layout", "readable_layouts", "told",
]  # fmt: skip
