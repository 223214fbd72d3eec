"""The archive: readings, flags, arrivals, stations, layers and snapshots on disk, with one committer.

The only folder that knows Icechunk and the layout of the Zarr arrays; `README.md` beside this file describes it.
"""

from hypergrid.archive.archive import Archive, StoreError
from hypergrid.archive.arrays.layer_store import LayerChange, LayerEntry, Layers
from hypergrid.archive.arrays.records import Conservation, FileEntry, Reject, Snapshot
from hypergrid.archive.branch import Branch, Fork, Result, Written
from hypergrid.archive.diff import Change, compared, told
from hypergrid.archive.disk.folder import MARKER, read_layout, readable_layouts
from hypergrid.archive.disk.folder import VERSION as LAYOUT
from hypergrid.archive.disk.retention import CARE, Care, Maintained
from hypergrid.archive.disk.storage import S3Store
from hypergrid.archive.integrity import Defect, check_files
from hypergrid.archive.writer import Writer

__all__ = [
    "CARE", "LAYOUT", "MARKER", "Archive", "Branch", "Care", "Change", "Conservation", "Defect", "FileEntry", "Fork",
    "LayerChange", "LayerEntry", "Layers", "Maintained", "Reject", "Result", "S3Store", "Snapshot", "StoreError",
    "Writer", "Written", "check_files", "compared", "read_layout", "readable_layouts", "told",
]  # fmt: skip
