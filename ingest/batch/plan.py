"""Plan of a run: which files are new, their layouts, and their chunks."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hypergrid.archive import FileEntry, Reject
from hypergrid.archive.disk.raw_copies import hash_of
from hypergrid.core.errors import InvalidDeployment, NotFound
from hypergrid.core.times import SECOND_NS
from ingest.deployment.deployment_file import DEFAULT_SLICE_S, UNKNOWN_UNIT, Deployment, Feed
from ingest.formats import FORMATS, DocumentFormat, Format, Layout, Parsed, Unreadable
from ingest.sources.folder import HEAD_BYTES, Chunk, Discovery, SourceFile, cut, decompress_to, first_bytes, layout_of


@dataclass(frozen=True)
class IngestPlan:
    """The new files of a run, and their chunks."""

    files: tuple[SourceFile, ...]
    """New files, the unreadable ones included."""
    skipped: int
    """Number of files whose content is known."""
    chunks: tuple[Chunk, ...]
    layouts: Mapping[int, Layout]
    """By file index; unreadable files have none."""
    unreadable: tuple[Reject, ...]
    """Files that cannot be read at all."""
    files_elsewhere: int = 0
    """Number of known files that were read with another mapping than the current one."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes to parse."""
        return sum(self.files[file_index].size_bytes for file_index in self.layouts)


def make_plan(
    discovery: Discovery,
    deployment: Deployment,
    *,
    ledger: Iterable[FileEntry],
    chunk_bytes: int,
    scratch: Path,
    progress: Callable[[float], None] = lambda _: None,
    requires_columns: bool = True,
) -> IngestPlan:
    """Hash the files, skip known ones, and split the others into chunks.

    Content in the ledger is known if it gave readings, or if this mapping was tried on it before. Compressed files are
    extracted, and text that has no lines is rewritten, into the folder `scratch`, where the copies stay while they are
    parsed.

    Parameters
    ----------
    requires_columns
        Whether each column of a feed must be in one of its files; False if some of its files are not part of this run.

    Raises
    ------
    InvalidDeployment
        A feed names a column that none of its files has.
    """
    feeds = {feed.name: feed for feed in deployment.feeds}
    mapping = {feed.name: deployment.mapping_of(feed) for feed in deployment.feeds}
    entries = list(ledger)
    read = {entry.sha256 for entry in entries if entry.readings}
    tried = {(entry.sha256, entry.mapping) for entry in entries}
    files: list[SourceFile] = []
    layouts: dict[int, Layout] = {}
    chunks: list[Chunk] = []
    unreadable: list[Reject] = []
    telling: list[tuple[str, Layout]] = []
    elsewhere = 0
    for count, file in enumerate(discovery.files):
        progress(count / len(discovery.files))
        feed, wrong = feeds[file.feed], ""
        try:
            file = decompress_to(file, feed, scratch)
        except Unreadable as error:
            wrong = str(error)
        sha256 = hash_of(file.path, file.size_bytes)
        attempt = (sha256, mapping[file.feed])
        # Older archives did not record clock shifts.
        is_same = not tried.isdisjoint({attempt, (sha256, feed.token())})
        if sha256 in read or is_same:
            elsewhere += not is_same
            if sha256 not in read:
                telling += _metadata_files(file, feeds[file.feed])
            continue
        tried.add(attempt)
        file = replace(file, sha256=sha256)
        file_index = len(files)
        files.append(file)
        try:
            if wrong:
                raise Unreadable(wrong)
            layout = layout_of(file, feed)
            chunks += cut(file, file_index, layout, feed.format, chunk_bytes=chunk_bytes, first=len(chunks))
            layouts[file_index] = layout
            # A file repeated within this run is skipped, too.
            read |= {sha256} if layout.columns or layout.long else set()
        except Unreadable as error:
            unreadable.append(Reject(file.name, 0, "", "", str(error)))
    for feed in deployment.feeds:
        file_indices = [file_index for file_index in layouts if files[file_index].feed == feed.name]
        others = [layout for name, layout in telling if name == feed.name]
        # Files of a feed may describe one another's columns.
        layouts |= _link_layouts(feed, {file_index: layouts[file_index] for file_index in file_indices}, others)
        if requires_columns:
            _check_columns(feed, [layouts[file_index] for file_index in file_indices])
    chunks = [replace(chunk, layout=layouts[chunk.file]) for chunk in chunks]
    return IngestPlan(
        tuple(files), len(discovery.files) - len(files), tuple(chunks), layouts, tuple(unreadable), elsewhere
    )


def _metadata_files(file: SourceFile, feed: Feed) -> list[tuple[str, Layout]]:
    """Return the layout of a known file, for its metadata of other files' columns."""
    form = FORMATS[feed.format]
    if not isinstance(form, DocumentFormat) or form.link is None:
        return []
    try:
        return [(feed.name, layout_of(file, feed))]
    except Unreadable:
        return []


def _link_layouts(feed: Feed, layouts: Mapping[int, Layout], telling: list[Layout]) -> dict[int, Layout]:
    form = FORMATS[feed.format]
    if not isinstance(form, DocumentFormat) or form.link is None or not layouts:
        return dict(layouts)
    return dict(zip(layouts, form.link([*layouts.values(), *telling]), strict=False))


def _check_columns(feed: Feed, layouts: list[Layout]) -> None:
    headers = {name for layout in layouts for name in layout.header}
    if any(layout.long for layout in layouts):
        # Columns of long rows are known only after parsing.
        return
    for column in feed.columns:
        if layouts and column.name not in headers:
            unknown = NotFound.among("column", column.name, headers)
            raise InvalidDeployment(
                f"feed {feed.name!r} of the deployment reads a column that no file of it has: {unknown}"
            )


def layout_warnings(plan: IngestPlan, deployment: Deployment) -> list[str]:
    """Return warnings about the columns of the files."""
    warnings: list[str] = []
    for feed in deployment.feeds:
        layouts = {plan.files[p].name: layout for p, layout in plan.layouts.items() if plan.files[p].feed == feed.name}
        ignored = sorted({name for layout in layouts.values() for name in layout.ignored})
        if ignored:
            warnings.append(f"columns that nothing maps were left out: {', '.join(ignored)}")
        for column in feed.columns:
            lacking = [name for name, layout in layouts.items() if not layout.long and column.name not in layout.header]
            if lacking:
                warnings.append(f"column {column.name!r} is missing in {_list_names(lacking)}")
        silent = any(set(layout.columns) - set(layout.metadata.columns) for layout in layouts.values())
        if deployment.declared and not feed.columns and silent:
            warnings.append(f"feed {feed.name!r} declares no columns: all were taken, with unknown units")
        for name, layout in layouts.items():
            warnings += [f"{name}: {note}" for note in layout.metadata.notes]
    if not deployment.declared and plan.layouts:
        warnings += _default_warnings(plan, deployment)
    formats = {feed.name: FORMATS[feed.format] for feed in deployment.feeds}
    lines = [file for file_index, file in enumerate(plan.files) if file_index in plan.layouts]
    lines = [file for file in lines if isinstance(formats[file.feed], Format)]
    unended = [file.name for file in lines if _is_unended(file)]
    if unended:
        warnings.append(f"the last line has no line end and may be cut off within a number: {_list_names(unended)}")
    return warnings


def _is_unended(file: SourceFile) -> bool:
    with file.path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) not in (b"\n", b"\r")


def _default_warnings(plan: IngestPlan, deployment: Deployment) -> list[str]:
    named = [
        plan.files[file_index].name
        for file_index, layout in plan.layouts.items()
        if layout.columns
        and layout.options.station_column not in layout.header
        and layout.station not in {station.id for station in layout.metadata.stations}
    ]
    columns = sorted(
        {
            name
            for layout in plan.layouts.values()
            for name in layout.columns
            if (column_metadata := layout.metadata.columns.get(name)) is None or column_metadata.unit is None
        }
    )
    feed = deployment.feeds[0]
    kept = [deployment.variable(feed.column(name).variable) for name in columns]
    taken = [f"{variable.name} as {variable.unit}" for variable in kept if variable.unit != UNKNOWN_UNIT]
    as_kept = f" ({', '.join(taken)}, which the archive keeps)" if taken else ""
    zoned = all(layout.metadata.zone for layout in plan.layouts.values())
    warnings = ["no deployment.toml was found" + ("" if zoned else ": times without a zone were taken as UTC")]
    if columns:
        warnings.append(f"units are unknown and values were taken as they are: {', '.join(columns)}{as_kept}")
    return [*warnings, f"the station was taken from the file's name: {_list_names(named)}"] if named else warnings


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _first_rows(file: SourceFile, feed: Feed, layout: Layout) -> Parsed:
    form = FORMATS[feed.format]
    if not isinstance(form, Format):
        start, stop = form.cut(file.path, layout, HEAD_BYTES)[:2]
        return form.parse(file.path, layout, start, stop)
    head = first_bytes(file, feed)[layout.data_start :]
    return form.parse(head[: head.rfind(b"\n") + 1], layout, last=False)


def guess_slice_s(discovery: Discovery, deployment: Deployment) -> float:
    """Return a station's usual interval [s], from the first file with enough rows."""
    feeds = {feed.name: feed for feed in deployment.feeds}
    for file in discovery.files[:20]:
        if file.refused or (file.member and isinstance(FORMATS[feeds[file.feed].format], DocumentFormat)):
            continue
        try:
            layout = layout_of(file, feeds[file.feed])
        except Unreadable:
            continue
        rows = _first_rows(file, feeds[file.feed], layout)
        gaps = np.diff(rows.time_ns[rows.code == 0])
        gaps = gaps[gaps > 0]
        if len(gaps) >= 2:
            return max(1.0, round(float(np.median(gaps)) / SECOND_NS))
    return DEFAULT_SLICE_S
