"""Deployments of a stream over time: which one reads which records of the spool, so that a replay reads as before."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ingest.deployment.versions import DeploymentVersion, split_by_version
from ingest.streaming.row_batch import ClockTicks, RowBatch
from ingest.streaming.spool_decoder import DecodedPiece, groups_of, parse_span


def parse(spool: Path, after: int, upto: int, versions: list[DeploymentVersion]) -> Iterator[list[DecodedPiece]]:
    """Parse the records of a spool with after < seq <= upto, each by its deployment, into pieces for each group.

    Groups of a deployment before, which nothing comes of any more, get pieces that close what they hold.
    """
    for start, stop, deployment in split_by_version(versions, after, upto):
        pieces = parse_span(spool, start, stop, deployment)
        before = [name for version in versions if version.first <= stop for name in groups_of(version.deployment)]
        gone = dict.fromkeys(name for name in before if name not in groups_of(deployment))
        clock = pieces[0].clock
        # Until the first tick nothing tells when they are closed.
        closing = ClockTicks(clock.seq[:1], clock.clock_ns[:1], np.ones(min(1, len(clock.seq)), np.bool_))
        yield [*pieces, *(DecodedPiece(name, RowBatch.empty(), closing, start, stop) for name in gone)]
