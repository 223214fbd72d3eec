"""Stored results, one NetCDF file per day of time cells; pinned evaluations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import xarray as xr

from hypergrid.core.files import replace_atomically
from hypergrid.core.times import DAY_NS
from hypergrid.formats.results import write
from queries.scheduling.step_graph import StepGraph
from queries.standing.shared_steps import EvaluationStep, SnapshotEvaluation

FOLDER = "results"
"""Folder beside the catalogue, with one subfolder per standing query."""
IDENTITY = ("station", "height_m", "statistic", "interval_s", "replicate", "source")
"""Coordinates that identify a series."""


def keep_dataset(folder: Path, dataset: xr.Dataset) -> list[Path]:
    """Merge computed time cells into the daily files, each replaced atomically.

    Parameters
    ----------
    folder
        Folder of the standing query; files are named by the day (UTC) in which their time cells begin, `2007-10-01.nc`,
        or `all.nc` for periodic time cells.
    dataset
        As `Query.compute` returns it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if "time" not in dataset.dims:
        return [_replace(folder / "all.nc", dataset)]
    days = dataset["time"].to_numpy().astype("datetime64[ns]").astype(np.int64) // DAY_NS
    written = []
    for day in np.unique(days).tolist():
        path = folder / f"{np.datetime64(day, 'D')}.nc"
        written.append(_replace(path, _join_file(path, dataset.isel(time=np.flatnonzero(days == day)))))
    return written


def _join_file(path: Path, new: xr.Dataset) -> xr.Dataset:
    if not path.exists():
        return new
    with xr.open_dataset(path) as opened:
        old = opened.load()
    if "series" in old.dims and "series" in new.dims:
        old, new = _align_series(old, new)
    if set(old.sizes) != set(new.sizes) or any(
        old.sizes[name] != new.sizes[name] for name in old.sizes if name != "time"
    ):
        # Zones or bands changed: earlier results are of other places.
        return new
    # Later values replace earlier ones of the same time cell.
    stays = old.isel(time=np.flatnonzero(~np.isin(old["time"].to_numpy(), new["time"].to_numpy())))
    names = [name for name in new.variables if name in old.variables]
    joined = xr.concat([stays[names], new[names]], "time", data_vars="minimal", coords="minimal", compat="override")
    return joined.sortby("time").assign_attrs(new.attrs)


def _align_series(old: xr.Dataset, new: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset]:
    """Align both on the union of their series; fill with NaN, counts with 0."""
    keys = [_series_keys(dataset) for dataset in (old, new)]
    if np.array_equal(keys[0], keys[1]):
        return old, new
    union = list(dict.fromkeys([*keys[1].tolist(), *keys[0].tolist()]))
    along = [name for name, coordinate in new.coords.items() if coordinate.dims == ("series",)]
    wide = []
    for dataset, own in zip((old, new), keys, strict=True):
        data = dataset.drop_vars(along).assign_coords(series=own)
        # Integer arrays have no NaN; a count without readings is 0.
        none = {name: 0 for name, array in data.data_vars.items() if np.issubdtype(array.dtype, np.integer)}
        wide.append(data.reindex(series=union, fill_value={name: none.get(name, np.nan) for name in data.data_vars}))
    places = {key: index for index, key in enumerate(keys[1].tolist())}
    others = {key: index for index, key in enumerate(keys[0].tolist())}
    for name in along:
        values = [new[name].values[places[key]] if key in places else old[name].values[others[key]] for key in union]
        for number, dataset in enumerate(wide):
            wide[number] = dataset.assign_coords({name: ("series", np.array(values), new[name].attrs)})
    first, second = (dataset.drop_vars("series") for dataset in wide)
    return first, second


def _series_keys(dataset: xr.Dataset) -> np.ndarray:
    """Identify the series of a result as text, shape (series,)."""
    columns = [dataset[name].values.astype(str) for name in IDENTITY if name in dataset.coords]
    return np.array(["|".join(row) for row in zip(*columns, strict=True)], dtype=object)


def _replace(path: Path, dataset: xr.Dataset) -> Path:
    with replace_atomically(path) as scratch:
        write(dataset, scratch)
    return path


# Pinned evaluations run to completion at one snapshot, whatever is committed meanwhile; the next round has the newer
# changes.
#
# Two kinds of queries are pinned: the one that has waited longest, within its share of the time, and one that was being
# computed when a newer snapshot arrived. If it restarted with each slice, a query that takes longer than the slice
# interval would never finish.

Running = Mapping[int, tuple[EvaluationStep, Iterator[float]]]
"""Started steps and their remaining blocks, by the identity of the step."""


@dataclass(eq=False)
class PinnedEvaluation:
    """A query that is computed to completion at one snapshot."""

    name: str
    evaluation: SnapshotEvaluation
    """Its steps, at its snapshot."""
    blocks: Iterator[float]
    """Its remaining blocks; each yields its duration [s]."""
    weight: float = 0.0
    left_s: float = 0.0
    """Estimated remaining time [s]."""

    @property
    def density(self) -> float:
        """Weight per remaining second [1/s], as the strategies define it."""
        return self.weight / max(self.left_s, 1e-9)

    def step(self) -> bool:
        """Compute a block; return whether one was left."""
        seconds = next(self.blocks, None)
        if seconds is not None:
            self.left_s -= seconds
        return seconds is not None


def pin_query(name: str, own: SnapshotEvaluation) -> PinnedEvaluation:
    """Pin a query of which nothing is computed yet."""
    return PinnedEvaluation(name, own, chain.from_iterable(own.compute(step) for step in own.remaining_steps(name)))


def pin_interrupted(
    this: SnapshotEvaluation, running: Running, weights: Mapping[str, float], graph: StepGraph
) -> PinnedEvaluation | None:
    """Pin the most valuable query with a step in progress; None if there is none.

    The others leave the round, to be computed at the newer snapshot. Shared steps are kept.
    """
    turns: list[PinnedEvaluation] = []
    for name in {user for step, _ in running.values() for user in step.users if user in weights}:
        rest = this.remaining_steps(name)
        left_s = sum(max(graph.cost(step.kind_key).seconds - step.seconds, 0.0) for step in rest)
        blocks = chain.from_iterable(
            running[id(step)][1] if id(step) in running else this.compute(step) for step in rest
        )
        turns.append(PinnedEvaluation(name, this, blocks, weights[name], left_s))
    if not turns:
        return None
    best = max(turns, key=lambda turn: (turn.density, turn.name))
    # list(), as remove_query changes the dictionary.
    for name in list(this.tasks):
        if name != best.name:
            this.remove_query(name)
    return best
