"""Reprocessing in one process, without Spark."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ingest.reprocess import job
from ingest.reprocess.job import ReprocessReport, ReprocessRequest

Task = TypeVar("Task")
Done = TypeVar("Done")


class SerialWorkers:
    """Runs tasks one by one in this process."""

    count = 1

    def map(self, work: Callable[[Task], Done], tasks: Sequence[Task]) -> list[Done]:
        return [work(task) for task in tasks]


def reprocess(archive: str | Path, request: ReprocessRequest, **given: Any) -> ReprocessReport:  # noqa: ANN401 - of the job
    """Reprocess an archive by one worker unless others are given."""
    return job.reprocess(archive, request, **{"workers": SerialWorkers(), **given})
