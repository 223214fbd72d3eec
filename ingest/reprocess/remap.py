"""Remap the raw files of an archive after a mistake in their description: differences are amended.

Every file is read twice, with the description of its ingest and with the current one, and the two results are compared
reading by reading. Equal readings are left alone. A changed value replaces the old one; a reading that only the new
description gives is stored; one that only the old description gave (it now belongs to another series or instant) is
withdrawn: a missing value takes its place, because an archive cannot express more than "nothing was measured here".
Replaced readings are retained, and all changes arrive now, so that reading as of an earlier instant gives the archive
of that time. A reading that was replaced otherwise in the meantime is left as it is.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from hypergrid.archive import Archive, FileEntry
from hypergrid.archive.disk.raw_copies import RAW, copy_path, read_back
from hypergrid.core.errors import HyperGridError, InvalidDeployment, NotFound
from hypergrid.core.times import floor_to_microsecond
from ingest.batch.archive_session import STAGING, locked_archive
from ingest.batch.plan import columns_of, is_placed, list_names, make_plan, with_file_metadata
from ingest.batch.report import RunListener, Stages
from ingest.batch.write_staged import StagedBatch, count_by_reason, examples_by_reason
from ingest.deployment.arrival_table import Arrivals, read_arrivals
from ingest.deployment.deployment_file import FILE_NAME, Deployment, Feed, default_deployment, load
from ingest.formats import FORMATS
from ingest.job import WAITING, Engine, choose_engine, stage_chunks
from ingest.reprocess.reading_diff import ParsedAs, ReadingDiff, RemapReport
from ingest.sources.folder import Discovery, SourceFile, discover
from ingest.streaming.stream_commit import is_segment

_PACKED: Final = re.compile(r"(\.gz)?( \(\d+\))?$", re.IGNORECASE)
"""Suffix that the ledger adds to the name of a packed file, or of one of several with the same name."""


def remap(
    archive_path: str | Path,
    *,
    deployment: Path | None = None,
    now_ns: int,
    engine: Engine = "inprocess",
    ingested_ns: Collection[int] | None = None,
    listener: RunListener = RunListener(),  # noqa: B008 - immutable
) -> RemapReport:
    """Read an archive's raw files again, and amend what a new description changes, in one commit.

    Parameters
    ----------
    deployment
        The current description; None: the last that the archive keeps, for example after a program update.
    now_ns
        Current time [ns since 1970 UTC]; in whole microseconds the arrival of all changes.
    engine
        Where to parse, as in `ingest.job.ingest`.
    ingested_ns
        Read only the files of the runs of these instants [ns since 1970 UTC]; None: all.
    listener
        What is called as the run goes on.

    Raises
    ------
    hypergrid.core.errors.InvalidDeployment
        The deployment file is unusable.
    hypergrid.core.errors.ArchiveConflict
        It describes another network or other slices, or gives a variable another unit than the archive does.
    hypergrid.core.errors.NotFound
        The archive has no raw file or no description, or no feed reads any of its files.
    """
    archive, now_ns = Archive.open(archive_path), floor_to_microsecond(now_ns)
    warnings: list[str] = []

    def warn(text: str) -> None:
        warnings.append(text)
        listener.on_warning(text)

    stages = Stages(time.perf_counter, listener.on_progress)
    kept = kept_descriptions(archive)
    # What the archive states may be newer than the description that it keeps.
    described = load(deployment) if deployment is not None else _leave_statements(_latest(archive, kept))
    with locked_archive(archive.path, described, now_ns=now_ns, on_wait=lambda: warn(WAITING)) as opened:
        scratch = Path(tempfile.mkdtemp(prefix="remap-", dir=archive.path / STAGING))
        try:
            run = _RemapRun(opened, _files_of(opened, ingested_ns), scratch, stages, warn, warn, engine=engine)
            report = run.run(described, kept, now_ns)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    report.seconds, report.warnings = dict(stages.seconds), tuple(warnings)
    return report


def _leave_statements(described: Deployment) -> Deployment:
    """Return a deployment without what it states of readings, besides how they are read."""
    return replace(described, publication=None, quality=replace(described.quality, clock_error_s=()))


def versions_of(
    archive: Archive, files: Sequence[FileEntry], scratch: Path, stages: Stages, warn: Callable[[str], None]
) -> list[tuple[ParsedAs, int]]:
    """Return the readings of raw files as ingested, by run and instant, oldest first.

    Stream segments are omitted (`stream_history`), and so are files whose description is unknown, with a warning.
    """
    run = _RemapRun(archive, files, scratch, stages, warn, warn)
    groups = run._parse_by_description(
        run.entries().values(), kept_descriptions(archive), "nothing of them comes back", runs_apart=True
    )
    return [(parsed_as, ingested_ns) for ingested_ns, parsed_as in groups]


def parse_raw_copies(
    archive: Archive, scratch: Path, stages: Stages, warn: Callable[[str], None], on_damage: Callable[[str], None]
) -> tuple[list[ParsedAs], list[ParsedAs]]:
    """Return the readings of raw files read by one mapping only, and of those read again by another mapping.

    Stream segments are omitted, and so are files whose description is unknown, with a call of `warn`; `on_damage` is
    called for unreadable raw copies.
    """
    run = _RemapRun(archive, archive.files(), scratch, stages, warn, on_damage)
    mappings: dict[str, set[str]] = {}
    for entry in run.files:
        mappings.setdefault(entry.sha256, set()).add(entry.mapping)
    kept, by_reading = kept_descriptions(archive), []
    for is_anew in (False, True):
        entries = [entry for sha256, entry in run.entries().items() if (len(mappings[sha256]) > 1) == is_anew]
        run.scratch = scratch / ("anew" if is_anew else "once")
        run.scratch.mkdir()
        by_reading.append(
            [parsed_as for _, parsed_as in run._parse_by_description(entries, kept, "nothing of them is compared")]
        )
    once, anew = by_reading
    return once, anew


def kept_descriptions(archive: Archive, described_by: Mapping[str, str] | None = None) -> dict[str, Deployment]:
    """Return the descriptions that the archive keeps, by hash of their file, oldest first.

    `described_by` has the names of the copies by hash; None: those of the archive.
    """
    described_by = archive.described_by if described_by is None else described_by
    deployments: dict[str, Deployment] = {}
    raw = archive.path / RAW
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE_NAME
        # Tables that a description names are expected in its folder.
        unpack_tables(archive, described_by, path.parent)
        for sha256 in (sha256 for sha256, name in described_by.items() if name.endswith(".toml")):
            # If lost, or written for another version, files read by it are reported as unknown.
            with suppress(OSError, HyperGridError):
                path.write_bytes(read_back(raw, sha256))
                deployments[sha256] = load(path)
    return deployments


def unpack(archive: Archive, entry: FileEntry, folder: Path, warn: Callable[[str], None]) -> Path | None:
    """Unpack a raw copy and return its path; None, with a warning, if unreadable.

    Raw copies of packed files are unpacked, so suffixes for packing and for equal names are removed.
    """
    # Names must not lead out of the folder.
    parts = [part for part in PurePosixPath(entry.name).parts if part not in ("/", "..")]
    path = folder.joinpath(*parts[:-1], _PACKED.sub("", parts[-1]))
    if path.exists():
        path = folder / entry.sha256[:12] / path.name
    try:
        content = read_back(archive.path / RAW, entry.sha256)
    except (OSError, HyperGridError) as error:
        warn(f"{entry.name} cannot be read again: {error}")
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def unpack_tables(archive: Archive, described_by: Mapping[str, str], folder: Path) -> None:
    """Unpack the tables that descriptions name, such as arrivals, if readable."""
    for sha256, name in described_by.items():
        if not name.endswith(".toml"):
            with suppress(OSError, HyperGridError):
                (folder / PurePosixPath(name).name).write_bytes(read_back(archive.path / RAW, sha256))


def descriptions_by_mapping(archive: Archive, kept: Mapping[str, Deployment]) -> dict[str, Deployment]:
    """Return the descriptions that files may have been read by, keyed by `mapping` of the ledger."""
    by_mapping: dict[str, Deployment] = {}
    older: dict[str, list[Deployment]] = {}
    # The default description is that of files ingested without one.
    default = default_deployment(
        name=archive.name, slice_s=archive.slice_s, variables=tuple(archive.variables.values())
    )
    for deployment in (default, *kept.values()):
        for feed in deployment.feeds:
            # `kept` is ordered oldest first, so the latest description of a mapping wins.
            by_mapping[deployment.mapping_of(feed)] = deployment
            older.setdefault(feed.token(), []).append(deployment)
    # Older archives did not record clock shifts: if these changed, the right ones are unknown.
    by_feed_token = {
        key: versions[-1]
        for key, versions in older.items()
        if len({version.quality.clock_shift_h for version in versions}) == 1
    }
    return {**by_feed_token, **by_mapping}


def _files_of(archive: Archive, ingested_ns: Collection[int] | None) -> Sequence[FileEntry]:
    """Return the ledger of the contents that runs of these instants read, with their later entries."""
    entries = archive.files()
    if ingested_ns is None:
        return entries
    read = {entry.sha256 for entry in entries if entry.ingested_ns in ingested_ns}
    return [entry for entry in entries if entry.sha256 in read]


def _latest(archive: Archive, kept: Mapping[str, Deployment]) -> Deployment:
    if not kept:
        raise NotFound(
            f"{archive.path} keeps no description of its files; give the one that holds now: --deployment {FILE_NAME}"
        )
    return list(kept.values())[-1]


@dataclass
class _RemapRun:
    archive: Archive
    files: Sequence[FileEntry]
    """Ledger of files."""
    scratch: Path
    stages: Stages
    warn: Callable[[str], None]
    on_damage: Callable[[str], None]
    """Called for unreadable raw copies."""
    engine: Engine = "inprocess"

    def run(self, described: Deployment, kept: Mapping[str, Deployment], now_ns: int) -> RemapReport:
        report = RemapReport(str(self.archive.path), str(described.path or "the one that the archive keeps"))
        entries = self.entries()
        if streamed := self._stream_segments():
            self.warn(f"what came by streams ({len(streamed)} segments) stays as it is: only files are read again")
        if not entries:
            raise NotFound(f"{self.archive.path} keeps no raw file that could be read again; nothing was changed")
        new = self._parse_with(described, list(entries.values()), "new")
        given = self._usable_contents(new, entries)
        if not given:
            raise NotFound(
                f"no feed of {report.deployment} gives a reading from the {len(entries)} raw files of "
                f"{self.archive.path}; nothing was changed; check patterns, formats and columns of its feeds"
            )
        if len(given) < len(entries):
            left = [entry.name for sha256, entry in entries.items() if sha256 not in given]
            self.warn(f"files that give no reading as described now stay as they are: {list_names(left)}")
        report.files, report.files_left = len(given), len(entries) - len(given)
        again = [entry for sha256, entry in entries.items() if sha256 in given]
        before = self._parse_by_description(again, kept, "nothing of them is withdrawn")
        old = [parsed_as for _, parsed_as in before]
        with self.stages.stage("compare and store") as on_progress:
            ReadingDiff(self.archive, described, new, old, report, now_ns).commit(entries, on_progress)
        self._warn_of_moved(described)
        rejects = new.stock.rejects()
        report.rejects, report.reject_examples = count_by_reason(rejects), examples_by_reason(rejects)
        if rejects:
            self.warn(f"{len(rejects)} rows or files cannot be read as described now, see hypergrid rejects")
        if report.kept:
            self.warn(f"{report.kept:,} readings were replaced by others since they were ingested, and were left alone")
        if report.empty_series:
            self.warn(
                f"series that nothing gives any more are not listed any more; older snapshots have them: "
                f"{list_names(report.empty_series)}"
            )
        if report.rejects_withdrawn:
            self.warn(f"{report.rejects_withdrawn:,} rejects of before hold no more, and are not listed any more")
        return report

    def entries(self) -> dict[str, FileEntry]:
        """Return the last entry of each content, in order of first appearance, without segments."""
        streamed = self._stream_segments()
        return {
            entry.sha256: entry
            for entry in self.files
            if entry.sha256 not in streamed and copy_path(self.archive.path / RAW, entry.sha256).is_file()
        }

    def _stream_segments(self) -> set[str]:
        return {entry.sha256 for entry in self.files if is_segment(entry.name)}

    def _unpack_entries(
        self, entries: Iterable[FileEntry], folder: Path
    ) -> tuple[list[Path], list[tuple[Path, FileEntry]]]:
        """Unpack raw copies into a folder per ingest run; return folders and files in order."""
        # Reversed, so that the first ingest of a content wins.
        order = {entry.sha256: entry.ingested_ns for entry in reversed(self.files)}
        runs: dict[int, Path] = {}
        for instant in sorted({order[entry.sha256] for entry in entries}):
            runs[instant] = folder / f"{len(runs):06d}"
            runs[instant].mkdir(parents=True)
        placed = []
        for entry in entries:
            path = unpack(self.archive, entry, runs[order[entry.sha256]], self.on_damage)
            placed += [(path, entry)] if path is not None else []
        return list(runs.values()), placed

    def _parse_by_description(
        self, entries: Iterable[FileEntry], kept: Mapping[str, Deployment], otherwise: str, *, runs_apart: bool = False
    ) -> list[tuple[int, ParsedAs]]:
        """Parse files by their original descriptions; return each with an instant of ingest, oldest first.

        Parameters
        ----------
        otherwise
            Consequence for files whose description is unknown, for the warning about them.
        runs_apart
            Whether to separate files by instant of ingest.
        """
        known, unknown = descriptions_by_mapping(self.archive, kept), []
        groups: dict[tuple[int, str], list[FileEntry]] = {}
        telling: dict[str, list[FileEntry]] = {}
        for entry in entries:
            if entry.mapping not in known:
                unknown.append(entry.name)
                continue
            described = known[entry.mapping].token()
            # Files of such a feed may describe the columns of others.
            is_linked = FORMATS[_feed_of(entry, known[entry.mapping]).format].link is not None
            # Linked files are parsed together with those of earlier runs, so their runs stay separate.
            run = entry.ingested_ns if runs_apart or is_linked else 0
            groups.setdefault((run, described), []).append(entry)
            telling.setdefault(described, []).extend([entry] if is_linked and not entry.readings else [])
        versions = []
        for number, ((ingested_ns, described), group_entries) in enumerate(
            sorted(groups.items(), key=lambda item: item[0][0])
        ):
            before = [entry for entry in telling[described] if entry.ingested_ns < ingested_ns]
            name = f"by-description-{number}"
            try:
                versions.append(
                    (ingested_ns, self._parse_with(known[group_entries[0].mapping], group_entries, name, before=before))
                )
            except InvalidDeployment as error:
                unknown += [f"{entry.name} ({error})" for entry in group_entries]
        if unknown:
            self.warn(f"nothing tells how these files were read, so that {otherwise}: {list_names(unknown)}")
        return versions

    def _arrivals(self, deployment: Deployment) -> dict[str, Arrivals]:
        """Return the tables of arrivals that a description names, if their raw copies are kept."""
        names = {name: sha256 for sha256, name in self.archive.described_by.items()}
        arrivals = {}
        for feed in deployment.feeds:
            if feed.arrivals is not None and (sha256 := names.get(PurePosixPath(feed.arrivals).name)):
                path = self.scratch / f"arrivals-{sha256}.csv"
                try:
                    path.write_bytes(read_back(self.archive.path / RAW, sha256))
                    arrivals[feed.name] = read_arrivals(path)
                except (OSError, HyperGridError) as error:
                    self.on_damage(f"the arrivals of feed {feed.name} cannot be read again: {error}")
        return arrivals

    def _parse_with(
        self,
        deployment: Deployment,
        entries: Sequence[FileEntry],
        name: str,
        *,
        before: Sequence[FileEntry] | None = None,
    ) -> ParsedAs:
        """Parse files with a description.

        Parameters
        ----------
        before
            Files of earlier ingests that may describe the columns of these; each is then read by its original feed.
            None: by the feed that matches its name.
        """
        folder = self.scratch / name
        roots, placed = self._unpack_entries(entries, folder / "files")
        plain, staging = folder / "plain", folder / "staging"
        plain.mkdir()
        staging.mkdir()
        names = {entry.sha256: entry.name for entry in entries}
        with self.stages.stage("plan") as on_progress:
            if before is None:
                discovery = discover(roots, deployment)
            else:
                _, others = self._unpack_entries(before, folder / "before")
                discovery = Discovery(tuple(_source(*pair, deployment) for pair in [*placed, *others]), ())
            plan = make_plan(
                discovery, deployment, ledger=before or (), scratch=plain,
                progress=on_progress, requires_columns=before is None,
            )  # fmt: skip
        files = tuple(replace(file, name=names.get(file.sha256, file.name)) for file in plan.files)
        plan = replace(plan, files=files)
        full_deployment = with_file_metadata(
            deployment, plan, variables=self.archive.variables, stations=self.archive.stations
        )
        staged = stage_chunks(plan.chunks, staging, choose_engine(self.engine, plan), self.stages)
        stock = StagedBatch(plan, full_deployment, staged, staging, columns_of(plan, full_deployment), {})
        if before is not None:
            ingested_ns = {entry.sha256: entry.ingested_ns for entry in entries}
            by_place = {file_index: ingested_ns[file.sha256] for file_index, file in enumerate(files)}
            stock = replace(stock, arrivals=self._arrivals(deployment), ingested_ns=by_place)
        return ParsedAs(stock, stock.series())

    @staticmethod
    def _usable_contents(parsed_as: ParsedAs, entries: Mapping[str, FileEntry]) -> set[str]:
        """Return the contents from which a description gives at least one reading."""
        plan = parsed_as.stock.plan
        return {
            plan.files[chunk.file].sha256
            for chunk, staged in zip(plan.chunks, parsed_as.stock.staged, strict=True)
            if staged.rows and (plan.layouts[chunk.file].long or parsed_as.stock.width(chunk.file))
        } & entries.keys()

    def _warn_of_moved(self, described: Deployment) -> None:
        before = self.archive.stations
        moved = [
            station.id
            for station in described.stations
            if station.id in before and is_placed(station) and station.position != before[station.id].position
        ]
        if moved:
            self.warn(f"stations stand elsewhere now, as the description says: {list_names(moved)}")


def _feed_of(entry: FileEntry, deployment: Deployment) -> Feed:
    return next(feed for feed in deployment.feeds if entry.mapping in (deployment.mapping_of(feed), feed.token()))


def _source(path: Path, entry: FileEntry, deployment: Deployment) -> SourceFile:
    status = path.stat()
    return SourceFile(path, entry.name, _feed_of(entry, deployment).name, status.st_size, status.st_mtime_ns)
