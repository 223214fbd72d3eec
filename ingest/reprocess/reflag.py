"""Quality of a whole archive once more: other parameters, the same values, other flags, in one commit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ingest.quality.flagging import count_gaps, count_isolated, places_of, reflag_part
from ingest.quality.summary import Summary
from ingest.quality.zone import RADIATION, ZoneGuard

READINGS_AT_ONCE: Final = 4_000_000
"""Readings of a variable that are in memory at once, beside those around them."""


@dataclass(frozen=True)
class QualityReport:
    """What running the tests once more did."""

    archive: str
    snapshot: str | None
    """Snapshot that was committed; None where no flag and no parameter changed."""
    parameters: str
    """Where the parameters are from."""
    readings: int
    changed: int
    """Readings with another flag, or one that other tests set."""
    before: Mapping[str, Mapping[str, int]]
    """By station, counts of flags, tests and gaps."""
    after: Mapping[str, Mapping[str, int]]
    skipped: Mapping[str, Mapping[str, int]]
    """By variable, how many stations no test by neighbours could evaluate, by the reason."""
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "warnings": list(self.warnings)}


def run_quality(
    archive_path: str | Path,
    *,
    deployment: Path | None = None,
    variables: tuple[str, ...] = (),
    now_ns: int,
    progress: Callable[[str, float], None] = lambda _stage, _done: None,
) -> QualityReport:
    """Give all readings of an archive the flags that tests with other parameters set, in one commit.

    Values, stamps and arrivals stay; older snapshots keep the old flags. The parameters are kept with the snapshot
    (`Archive.quality`), and named in its message.

    Parameters
    ----------
    deployment
        Deployment file with the parameters under `[quality]`; None: those of the archive, and defaults where it has
        none.
    variables
        Only these; empty: all.
    now_ns
        The present [ns since 1970 UTC].

    Raises
    ------
    hypergrid.core.errors.InvalidDeployment
        The deployment file cannot be used.
    hypergrid.core.errors.NotFound
        The archive has no such variable.
    """
    archive = Archive.open(archive_path)
    quality, source = parameters_of(archive, deployment)
    chosen = select_variables(archive, variables)
    before, after, guard = Summary(), Summary(), ZoneGuard()
    readings = changed = 0
    kept = {**archive.quality, **quality.to_json(chosen)}
    batch = f"quality {token(kept)} after {archive.snapshot}"
    message = f"quality of {', '.join(chosen)} by parameters {token(kept)[:12]}"
    with archive.commit(batch=batch, message=message, now_ns=now_ns) as writer:
        writer.quality(kept)
        for name, variable in chosen.items():
            tests = quality.tests(variable)
            window = archive.extent(name)
            for part, done in _parts(archive, name, window):
                progress(name, done)
                context, judged, inside = reflag_part(writer.read, archive, variable, tests, part)
                old, new = context.take_rows(inside), judged.take_rows(inside)
                for summary, readings_of in ((before, old), (after, new)):
                    summary.add(old.series, old.index, readings_of.flag, readings_of.tests_or_none_set())
                    count_gaps(summary, context, tests, inside)
                    count_isolated(summary, context, tests, places_of(context.series, archive.stations), inside)
                if name == RADIATION:
                    guard.add(new)
                readings += len(new)
                other = (old.flag != new.flag) | (old.tests_or_none_set() != new.tests_or_none_set())
                changed += writer.flags(new.take_rows(other))
            progress(name, 1.0)
    places = {key: station.position for key, station in archive.stations.items()}
    suspicions = guard.suspicions({key: (p.lon, p.lat, p.elevation_m) for key, p in places.items()})
    warnings = tuple(suspicion.describe() for suspicion in suspicions) if quality.zone_guard else ()
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
    """Return the variables of these names, of none all.

    Raises
    ------
    hypergrid.core.errors.NotFound
        The archive has no such variable.
    """
    for name in variables:
        if name not in archive.variables:
            unknown = NotFound.among("variable", name, archive.variables)
            raise unknown
    return {name: variable for name, variable in archive.variables.items() if name in (variables or archive.variables)}


def parameters_of(archive: Archive, deployment: Path | None) -> tuple[QualityOverrides, str]:
    """Return the parameters in a deployment file, or those of the archive where there is none; and where they are from.

    Raises
    ------
    hypergrid.core.errors.InvalidDeployment, hypergrid.core.errors.ArchiveConflict
        The deployment file cannot be used, or is of another network.
    """
    if deployment is None:
        return from_json(archive.quality), "the archive, and the defaults"
    described = load(deployment)
    check_same(archive, described)
    return described.quality, str(deployment)


def _parts(archive: Archive, name: str, window: Window | None) -> Iterator[tuple[Window, float]]:
    """Yield the archive's time in pieces, each with the share that was done before."""
    if window is None:
        return
    pieces = max(1, -(-archive.readings(name) // READINGS_AT_ONCE))
    edges = np.linspace(window.start_ns, window.stop_ns, pieces + 1).astype(np.int64).tolist()
    edges[-1] = window.stop_ns
    for index in range(pieces):
        yield Window(edges[index], edges[index + 1]), index / pieces
