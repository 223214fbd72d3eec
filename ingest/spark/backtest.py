"""Back-tests of continuous queries on Spark: a task for each part, with the engine that runs them in one process.

Tasks are given the query as text, and write their results to a folder that the driver reads; rows do not pass through
the JVM. The folder must be shared by all executors, as the archive is.
"""

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hypergrid.continuous.archive_parts import PartPlan, merge_parts, plan_parts, write_part
from hypergrid.continuous.archive_query import ArchiveQuery, ContinuousArchive, QueryPart, open_inputs
from hypergrid.core.errors import HyperGridError
from hypergrid.query import open_archive
from ingest.spark.batch import Executors

if TYPE_CHECKING:
    import pandas

PARTS_OF_A_CORE: Final = 4
"""Parts for each concurrent task, so that cores end together and progress is seen."""
_INPUTS: Final = "inputs.pickle"

OnStage = Callable[[str, float], None]


@dataclass(frozen=True)
class BacktestTask:
    """Part of a back-test, with what a process needs to run it."""

    archive: str
    snapshot: str
    folder: str
    """Folder of the results, and of the query with its tables."""
    number: int
    part: QueryPart

    @property
    def path(self) -> Path:
        return Path(self.folder) / f"part-{self.number:05d}.arrow"


def backtest_on_spark(
    query: ArchiveQuery,
    text: str,
    stretch: tuple[object, object, str],
    *,
    workers: Executors,
    folder: Path,
    progress: OnStage,
) -> "tuple[PartPlan, Iterator[pandas.DataFrame]]":
    """Run a back-test in tasks; return how it was split, and its results in order, as tables of bounded size.

    Parameters
    ----------
    text
        Text of the query.
    stretch
        Its start, its end and the order, as `ArchiveQuery.run` takes them.
    folder
        Empty folder that all workers see; the results are read from it.

    Raises
    ------
    HyperGridError, OSError
        A task failed, or executors were lost; the message says which part.
    """
    # Parts of a stretch are kriged apart, and may differ in the last bits.
    query.refuse_surfaces("leave --spark out")
    archive = query.inputs.archive
    plan = plan_parts(query, query.find_window(*stretch), max(workers.count, 1) * PARTS_OF_A_CORE)
    (folder / _INPUTS).write_bytes(pickle.dumps((text, dict(query.inputs.tables), dict(query.inputs.views))))
    store = archive.store
    tasks = [
        BacktestTask(str(Path(store.path).absolute()), store.snapshot, str(folder.absolute()), number, part)
        for number, part in enumerate(plan.parts)
    ]
    with _watch(tasks, progress):
        workers.map(run_task, tasks)
    progress("query", 1.0)
    return plan, merge_parts(query, [task.path for task in tasks], is_by_key=plan.is_by_key)


def run_task(task: BacktestTask) -> int:
    """Run a part and write its results; returns how many."""
    draft = task.path.with_suffix(".draft")
    try:
        query = _open_query(task.archive, task.snapshot, task.folder)
        rows = write_part(query, task.part, draft)
    except HyperGridError as error:
        raise HyperGridError(f"part {task.number + 1} of the back-test failed: {error}") from error
    draft.replace(task.path)
    return rows


@cache
def _open_query(archive: str, snapshot: str, folder: str) -> ArchiveQuery:
    # Written by the driver of this back-test, in a folder that it made.
    text, tables, views = pickle.loads((Path(folder) / _INPUTS).read_bytes())
    return ContinuousArchive(open_inputs(open_archive(archive, snapshot=snapshot), tables, views)).query(text)


@contextmanager
def _watch(tasks: Sequence[BacktestTask], progress: OnStage) -> Iterator[None]:
    """Report the share of the parts that are written while the driver waits for Spark."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.3):
            progress("query", min(0.99, sum(task.path.exists() for task in tasks) / len(tasks)))

    watcher = threading.Thread(target=watch, name="back-test progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
