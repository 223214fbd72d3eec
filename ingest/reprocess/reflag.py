"""Reflag a whole archive with other test parameters: same values, new flags, in one commit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.errors import NotFound
from hypergrid.core.times import Window
from hypergrid.core.tokens import token
from hypergrid.core.units import Variable
from ingest.batch.archive_session import check_same
from ingest.deployment.deployment_file import load
from ingest.deployment.quality_overrides import QualityOverrides, from_json
from ingest.quality.flagging import Summary, count_gaps, count_isolated, places_of, reflag_part, select_reflagged
from ingest.quality.zone import RADIATION, ZoneGuard, bound_clocks

READINGS_AT_ONCE: Final = 4_000_000
"""Readings of a variable in memory at a time, not counting those around them."""


@dataclass(frozen=True)
class QualityReport:
    """Result of reflagging an archive."""

    archive: str
    snapshot: str | None
    """Committed snapshot; None if neither a flag nor a parameter changed."""
    parameters: str
    """Origin of the parameters."""
    readings: int
    changed: int
    """Readings whose flag, or the tests that set it, changed."""
    before: Mapping[str, Mapping[str, int]]
    """Counts of flags, tests and gaps, by station."""
    after: Mapping[str, Mapping[str, int]]
    skipped: Mapping[str, Mapping[str, int]]
    """Number of stations that could not be tested against neighbours, by variable and reason."""
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "warnings": list(self.warnings)}


def run_quality(
    archive_path: str | Path,
    *,
    deployment: Path | None = None,
    variables: tuple[str, ...] = (),
    now_ns: int,
    progress: Callable[[str, float], None] = lambda _stage, _done: None,
) -> QualityReport:
    """Reflag all readings of an archive with other test parameters, in one commit.

    Values, timestamps and arrivals do not change; older snapshots keep the old flags. The parameters are kept with the
    snapshot (`Archive.quality`), and identified in its message.

    Parameters
    ----------
    deployment
        Deployment file with the parameters under `[quality]`; None: those of the archive, with defaults for missing
        ones.
    variables
        Variables to reflag; empty: all.
    now_ns
        Current time [ns since 1970 UTC].

    Raises
    ------
    hypergrid.core.errors.InvalidDeployment
        The deployment file is unusable.
    hypergrid.core.errors.NotFound
        The archive has no such variable.
    """
    archive = Archive.open(archive_path)
    quality, source = parameters_of(archive, deployment)
    chosen = select_variables(archive, variables)
    before, after, guard = Summary(), Summary(), ZoneGuard()
    readings = changed = 0
    kept = {**archive.quality, **quality.to_json(chosen)}
    batch = f"quality {token(kept, *quality.clock_error_s, quality.bound_clocks)} after {archive.snapshot}"
    message = f"quality of {', '.join(chosen)} by parameters {token(kept)[:12]}"
    with archive.commit(batch=batch, message=message, now_ns=now_ns) as writer:
        writer.quality(kept)
        writer.clock_errors(quality.clock_errors)
        for name, variable in chosen.items():
            tests = quality.tests(variable)
            window = archive.extent(name)
            pieces = max(1, -(-archive.readings(name) // READINGS_AT_ONCE))
            for number, part in enumerate(split_window(window, pieces) if window is not None else ()):
                progress(name, number / pieces)
                context, judged, inside = reflag_part(writer.read, archive, variable, tests, part)
                old, new = context.take_rows(inside), judged.take_rows(inside)
                for summary, readings_of in ((before, old), (after, new)):
                    summary.add(readings_of)
                    count_gaps(summary, context, tests, inside)
                    count_isolated(summary, context, tests, places_of(context.series, archive.stations), inside)
                if name == RADIATION:
                    guard.add(new)
                readings += len(new)
                changed += writer.flags(select_reflagged(old, new))
            progress(name, 1.0)
        suspicions = guard.suspicions(archive.stations) if quality.zone_guard else []
        if quality.bound_clocks:
            writer.clock_errors(bound_clocks(suspicions, quality.clock_errors), replacing=False)
    warnings = tuple(suspicion.describe() for suspicion in suspicions)
    return QualityReport(
        str(archive.path),
        writer.snapshot,
        source,
        readings,
        changed,
        before.count_by_station(),
        after.count_by_station(),
        after.count_skipped(),
        warnings,
    )


def select_variables(archive: Archive, variables: Sequence[str]) -> dict[str, Variable]:
    """Return the variables with the given names, all for no name.

    Raises
    ------
    hypergrid.core.errors.NotFound
        The archive has no such variable.
    """
    for name in variables:
        if name not in archive.variables:
            raise NotFound.among("variable", name, archive.variables)
    return {name: variable for name, variable in archive.variables.items() if name in (variables or archive.variables)}


def parameters_of(archive: Archive, deployment: Path | None) -> tuple[QualityOverrides, str]:
    """Return the test parameters of a deployment file, else of the archive, and their origin.

    Raises
    ------
    hypergrid.core.errors.InvalidDeployment, hypergrid.core.errors.ArchiveConflict
        The deployment file is unusable, or describes another network.
    """
    if deployment is None:
        return from_json(archive.quality), "the archive, and the defaults"
    described = load(deployment)
    check_same(archive, described)
    return described.quality, str(deployment)


def split_window(window: Window, pieces: int) -> list[Window]:
    """Split a window into pieces of about equal length."""
    edges = np.linspace(window.start_ns, window.stop_ns, pieces + 1).astype(np.int64).tolist()
    # Rounding must not cut off the end.
    edges[-1] = window.stop_ns
    return [Window(start, stop) for start, stop in zip(edges[:-1], edges[1:], strict=True)]
