"""The archive: readings, flags, arrivals, stations, layers and snapshots on disk, with one committer.

The only folder that knows Icechunk and the layout of the Zarr arrays; `README.md` beside this file describes it.
"""

from hypergrid.archive.archive import Archive, StoreError
from hypergrid.archive.arrays.layer_store import LayerChange, LayerEntry, Layers
from hypergrid.archive.arrays.records import Conservation, FileEntry, Reject, Snapshot
from hypergrid.archive.branch import Branch, BranchResult, Fork, ForkResult
from hypergrid.archive.diff import Change, compare_snapshots, diff_from_log
from hypergrid.archive.disk.folder import MARKER, describe_readable_layouts, read_layout
from hypergrid.archive.disk.folder import VERSION as LAYOUT
from hypergrid.archive.disk.retention import DEFAULT_RETENTION, MaintenanceReport, RetentionPolicy
from hypergrid.archive.disk.storage import S3Store
from hypergrid.archive.integrity import Defect, check_files
from hypergrid.archive.writer import Writer

__all__ = [
    "DEFAULT_RETENTION",
    "LAYOUT",
    "MARKER",
    "Archive",
    "Branch",
    "BranchResult",
    "Change",
    "Conservation",
    "Defect",
    "FileEntry",
    "Fork",
    "ForkResult",
    "LayerChange",
    "LayerEntry",
    "Layers",
    "MaintenanceReport",
    "Reject",
    "RetentionPolicy",
    "S3Store",
    "Snapshot",
    "StoreError",
    "Writer",
    "check_files",
    "compare_snapshots",
    "describe_readable_layouts",
    "diff_from_log",
    "read_layout",
]  # fmt: skip
