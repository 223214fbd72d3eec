"""Results in the archive's folder: a NetCDF file a day of time cells, in which later values replace earlier ones."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import xarray as xr

from hypergrid.core.times import DAY_NS
from hypergrid.formats.results import write
from queries.scheduling.step_graph import StepGraph
from queries.standing.shared_steps import EvaluationStep, SnapshotEvaluation

FOLDER = "results"
"""Folder beside the catalogue; in it one a standing query."""
IDENTITY = ("station", "height_m", "statistic", "interval_s", "replicate", "source")
"""Coordinates that tell series apart."""


def keep_dataset(folder: Path, dataset: xr.Dataset) -> list[Path]:
    """Bring computed time cells into the files of their days; a process that dies leaves each file old or new.

    Parameters
    ----------
    folder
        Of the standing query; files are named by the day (UTC) that their time cells begin in, `2007-10-01.nc`, or
        `all.nc` where time cells come again.
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
        # Zones or bands became others: what was computed before has other places.
        return new
    stays = old.isel(time=np.flatnonzero(~np.isin(old["time"].to_numpy(), new["time"].to_numpy())))
    names = [name for name in new.variables if name in old.variables]
    joined = xr.concat([stays[names], new[names]], "time", data_vars="minimal", coords="minimal", compat="override")
    return joined.sortby("time").assign_attrs(new.attrs)


def _align_series(old: xr.Dataset, new: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset]:
    """Return both with the series of both, where stations came or went: a value that there never was is missing."""
    keys = [_series_keys(dataset) for dataset in (old, new)]
    if np.array_equal(keys[0], keys[1]):
        return old, new
    union = list(dict.fromkeys([*keys[1].tolist(), *keys[0].tolist()]))
    along = [name for name, coordinate in new.coords.items() if coordinate.dims == ("series",)]
    wide = []
    for dataset, own in zip((old, new), keys, strict=True):
        data = dataset.drop_vars(along).assign_coords(series=own)
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
    """Return what tells the series of a result apart, as text, shape (series,)."""
    columns = [dataset[name].values.astype(str) for name in IDENTITY if name in dataset.coords]
    return np.array(["|".join(row) for row in zip(*columns, strict=True)], dtype=object)


def _replace(path: Path, dataset: xr.Dataset) -> Path:
    half = path.with_name(f".{path.name}.part.nc")
    write(dataset, half)
    os.replace(half, path)
    return path


# Turns: a query that is computed to its end at one snapshot, whatever slices come meanwhile.
#
# Two kinds of queries get one. The query that has waited the longest, in its share of the time; and the one that was
# being computed when a newer snapshot came: were it begun anew at each slice, what takes longer than a slice would
# never end. What comes meanwhile it sees in the next round.

Running = Mapping[int, tuple[EvaluationStep, Iterator[float]]]
"""By the identity of a step that was begun, the step and its blocks."""


@dataclass(eq=False)
class PinnedEvaluation:
    """A query on its way to its end."""

    name: str
    evaluation: SnapshotEvaluation
    """The steps that it needs, at its snapshot."""
    blocks: Iterator[float]
    """Its blocks that are still to do, the seconds that each took."""
    weight: float = 0.0
    left_s: float = 0.0
    """What is expected to be still to do [s]."""

    @property
    def density(self) -> float:
        """Weight for each second that is still to do [1/s], as a strategy's pieces have it."""
        return self.weight / max(self.left_s, 1e-9)

    def step(self) -> bool:
        """Compute a block; return whether there was one."""
        seconds = next(self.blocks, None)
        if seconds is not None:
            self.left_s -= seconds
        return seconds is not None


def pin_query(name: str, own: SnapshotEvaluation) -> PinnedEvaluation:
    """Return the turn of a query of which nothing is computed yet."""
    return PinnedEvaluation(name, own, chain.from_iterable(own.compute(step) for step in own.remaining_steps(name)))


def pin_interrupted(
    this: SnapshotEvaluation, running: Running, weights: Mapping[str, float], graph: StepGraph
) -> PinnedEvaluation | None:
    """Return the turn of the query that is worth most, of those of which a step is being computed; None: there is none.

    The others leave the round: they see the newer snapshot. What they have in common with it stays.
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
    for name in list(this.tasks):
        if name != best.name:
            this.remove_query(name)
    return best
