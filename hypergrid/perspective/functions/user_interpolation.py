"""Fields of user functions: the stations of each target are selected by one function, its value computed by another."""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.points import Field, Floats, Stations, Targets, are_on_sphere, group_masks, separations
from hypergrid.perspective.functions.user_function_calls import (
    Fault,
    Function,
    call_function,
    check_number,
    check_numbers,
    is_same,
    label_function,
    refuse_infinite,
    sample_positions,
)

Indices = NDArray[np.intp]

SELECTION_BYTES: Final = 32 * 2**20
"""Memory budget of the selections that a field and its parts keep for the last targets [bytes]."""
MANY_SELECTIONS: Final = 64
"""Selections of which a part is evicted at once."""


@dataclass(frozen=True)
class UserInterpolation:
    """Functions of an interpolation method."""

    name: str
    compute: Function
    """Takes the values of the selected stations and their offsets east and north [m]."""
    select: Function | None
    """Takes the offsets of all reporting stations; returns those to use. None: all are used."""
    vectorised: bool
    """Whether `compute` takes the values of many slices, shape (stations, slices)."""

    @property
    def label(self) -> str:
        return label_function("interpolate", self.name)

    def prepare(self, stations: Stations, values: Floats, given: Mapping[str, Any]) -> "UserField":
        return UserField(self, stations.positions_m, values, given)

    def select_stations(self, offsets_m: Floats, given: Mapping[str, Any], at: int) -> Indices:
        """Return the indices of the stations to use among some at offsets [m], shape (stations, 2).

        Raises
        ------
        Fault
            `select` raised, or returned neither a mask nor distinct indices.
        """
        count = len(offsets_m)
        if self.select is None:
            return np.arange(count)
        label = f"select of {self.label}"
        made = call_function(label, self.select, [column.copy() for column in offsets_m.T], given, at)
        chosen = np.asarray(made)
        if chosen.dtype.kind == "b" and chosen.shape == (count,):
            return np.flatnonzero(chosen)
        if not chosen.size and chosen.ndim == 1:
            return np.empty(0, dtype=np.intp)
        if chosen.dtype.kind not in "iu" or chosen.ndim != 1:
            raise Fault(
                f"{label} must give a mask of the {count} stations, or their numbers from 0; it gave "
                f"{type(made).__name__} of dtype {chosen.dtype} and shape {chosen.shape}",
                at,
            )
        outside = chosen[(chosen < 0) | (chosen >= count)]
        if len(outside) or len(np.unique(chosen)) < len(chosen):
            wrong = f"{outside[0]}" if len(outside) else "one of them twice"
            raise Fault(f"{label} must give distinct numbers from 0 to {count - 1}; it gave {wrong}", at)
        return chosen.astype(np.intp)

    def compute_values(self, values: Floats, offsets_m: Floats, given: Mapping[str, Any]) -> Floats:
        """Return the value of each slice at one target, shape (slices,), from values (slices, stations).

        Raises
        ------
        Fault
            `compute` raised, or returned no numbers, infinite ones, or, vectorised, ones that depend on other slices;
            `at` is the slice.
        """
        east_m, north_m = offsets_m.T
        if self.vectorised:
            return self._compute_columns(values.T, east_m, north_m, given)
        made = np.empty(len(values))
        for row, line in enumerate(values):
            arguments = [line.copy(), east_m.copy(), north_m.copy()]
            made[row] = check_number(self.label, call_function(self.label, self.compute, arguments, given, row), row)
        refuse_infinite(self.label, made, lambda _: f"{len(east_m)} stations")
        return made

    def _compute_columns(self, columns: Floats, east_m: Floats, north_m: Floats, given: Mapping[str, Any]) -> Floats:
        def call(part: Floats) -> Floats:
            arguments = [part.copy(), east_m.copy(), north_m.copy()]
            return check_numbers(
                self.label, call_function(self.label, self.compute, arguments, given), part.shape[1:], "column"
            )

        made = call(columns)
        refuse_infinite(self.label, made, lambda _: f"{len(east_m)} stations")
        for slice_number in sample_positions(np.arange(columns.shape[1])):
            alone = call(columns[:, slice_number : slice_number + 1])[0]
            if not is_same(alone, made[slice_number]):
                raise Fault(
                    f"{self.label} must make each number from one column alone: a column gave {made[slice_number]:g} "
                    f"among others and {alone:g} alone; reduce along axis 0, the stations",
                    int(slice_number),
                )
        return made


@dataclass(frozen=True, eq=False)
class ChosenStations:
    """Stations selected for each target, of those that report."""

    chosen: Indices
    """Indices into the reporting stations, target by target, shape (selected,)."""
    ends: NDArray[np.intp]
    """End of each target's stations in `chosen`, shape (targets,)."""

    @classmethod
    def of(cls, lists: list[Indices]) -> "ChosenStations":
        chosen = np.concatenate(lists) if lists else np.empty(0, dtype=np.intp)
        return cls(chosen, np.cumsum([len(each) for each in lists], dtype=np.intp))

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Number of stations of each target, shape (targets,)."""
        return np.diff(self.ends, prepend=0)

    @property
    def nbytes(self) -> int:
        return self.chosen.nbytes + self.ends.nbytes

    def split(self) -> list[Indices]:
        """Return the stations of each target."""
        return np.split(self.chosen, self.ends[:-1]) if len(self.ends) else []


class LookAhead:
    """Selections for the last targets by set of reporting stations, shared by a field and its parts (thesis 5.7.2.1).

    What is selected for a target is known before any of its values, and is the same in all slices in which the same
    stations report. Boxes take parts of a field in order of time: if not all selections fit in memory, those with the
    most slices to come are kept.
    """

    def __init__(self) -> None:
        self._targets = b""
        self._kept: dict[bytes, ChosenStations] = {}
        self._kept_bytes = 0
        self._slices: Mapping[bytes, NDArray[np.intp]] = {}

    def expect(self, slices: Mapping[bytes, NDArray[np.intp]]) -> None:
        """Announce the slices of each set of reporting stations, increasing; empty if they are unknown."""
        self._slices = slices

    def get(self, targets: bytes, mask: bytes, first: int, make: Callable[[], ChosenStations]) -> ChosenStations:
        """Return the selections for some targets under one mask; make them if they are not kept.

        Parameters
        ----------
        targets, mask
            Keys of the targets, and of the reporting stations.
        first
            The first slice that is not yet computed.
        """
        if targets != self._targets:
            self._kept, self._kept_bytes, self._targets = {}, 0, targets
        selection = self._kept.get(mask)
        if selection is None:
            selection = self._kept[mask] = make()
            self._kept_bytes += selection.nbytes
            if self._kept_bytes > SELECTION_BYTES:
                self._evict(first)
        return selection

    def _evict(self, first: int) -> None:
        """Evict selections with the fewest slices to come until the others fit."""
        # Of many somewhat more than must be, so that not every new one sorts them.
        allowed_bytes = SELECTION_BYTES if len(self._kept) < MANY_SELECTIONS else 3 * SELECTION_BYTES // 4
        # Of equal ones the newest: a second pass over all masks finds the oldest. Without knowledge of the slices to
        # come the oldest, whose stations may never report together again.
        by_age = list(self._kept)[:: -1 if self._slices else 1]
        for mask in sorted(by_age, key=lambda key: self._count_coming(key, first)):
            self._kept_bytes -= self._kept.pop(mask).nbytes
            if self._kept_bytes <= allowed_bytes:
                return

    def _count_coming(self, mask: bytes, first: int) -> int:
        slices = self._slices.get(mask)
        return 0 if slices is None else len(slices) - int(np.searchsorted(slices, first))


class UserField(Field):
    """Field of many slices by user functions; slices with the same reporting stations share their selections."""

    def __init__(self, own: UserInterpolation, places_m: Floats, values: Floats, given: Mapping[str, Any]) -> None:
        self._own, self._places_m, self._given = own, places_m, given
        self._ahead = LookAhead()
        self._set_values(values, np.arange(len(values)))
        self._ahead.expect({present.tobytes(): slices for present, slices in self._masks})

    def _set_values(self, values: Floats, numbers: NDArray[np.intp]) -> None:
        self._values = values
        self._numbers = numbers
        """Number of each slice among those that the look-ahead expects, shape (slices,)."""
        masks = ((np.flatnonzero(mask), slices) for mask, slices in group_masks(np.isfinite(values)))
        # In order of time, so that the first cell that fails is named.
        self._masks = sorted(masks, key=lambda group: int(group[1][0]))

    @property
    def counts(self) -> NDArray[np.int32]:
        """Reporting stations of each slice, shape (slices,); `counts_at` gives those used at each target."""
        return np.asarray(np.isfinite(self._values).sum(axis=1), dtype=np.int32)

    def take_slices(self, slices: NDArray[np.intp]) -> "UserField":
        part = copy(self)
        part._set_values(self._values[slices], self._numbers[slices])
        return part

    def replace_values(self, values: Floats) -> "UserField":
        other = copy(self)
        other._set_values(values, np.arange(len(values)))
        # Each box has only its own slices.
        self._ahead.expect({})
        return other

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        result = np.zeros((len(self._values), targets.count), dtype=np.int32)
        for _, slices, selection in self._list_selections(targets):
            result[slices] = selection.sizes
        return result

    def mask_selected(self, targets: Targets) -> NDArray[np.bool_]:
        """Mask the stations that are selected for any target, shape (slices, stations)."""
        result = np.zeros(self._values.shape, dtype=bool)
        for present, slices, selection in self._list_selections(targets):
            chosen = present[np.unique(selection.chosen)]
            result[np.ix_(slices, chosen)] = True
        return result

    def estimate(self, targets: Targets) -> Floats:
        """Estimate the targets, shape (slices, targets); NaN where no station is selected, or the function gives NaN.

        Raises
        ------
        Fault
            As for `UserInterpolation`, at the flat position of the estimate.
        """
        result = np.full((len(self._values), targets.count), np.nan)
        for present, slices, selection in self._list_selections(targets):
            values = self._values[np.ix_(slices, present)]
            for number, chosen in enumerate(selection.split()):
                if not len(chosen):
                    continue
                beside_m = self._measure_offsets(targets, number, present)[chosen]
                try:
                    result[slices, number] = self._own.compute_values(values[:, chosen], beside_m, self._given)
                except Fault as fault:
                    fault.at = int(slices[fault.at or 0]) * targets.count + number
                    raise
        return result

    def variance(self, targets: Targets) -> Floats:
        raise InvalidQuery(
            f"{self._own.name} has no variance; ask for it with a kriging method (got {targets.count} points)"
        )

    def _list_selections(self, targets: Targets) -> Iterator[tuple[Indices, NDArray[np.intp], ChosenStations]]:
        """Yield reporting stations, their slices, and the stations selected among them for each target."""
        for present, slices in self._masks:
            make = partial(self._select, targets, present, int(slices[0]))
            yield present, slices, self._ahead.get(targets.key, present.tobytes(), int(self._numbers[0]), make)

    def _select(self, targets: Targets, present: Indices, first_slice: int) -> ChosenStations:
        first = first_slice * targets.count
        return ChosenStations.of(
            [
                self._own.select_stations(self._measure_offsets(targets, number, present), self._given, first + number)
                for number in range(targets.count)
            ]
        )

    def _measure_offsets(self, targets: Targets, number: int, stations: Indices) -> Floats:
        return measure_offsets(self._places_m[stations], targets.positions_m[number])


def measure_offsets(places_m: Floats, target_m: Floats) -> Floats:
    """Return offsets of places from a target, east and north [m], shape (places, 2).

    On the sphere an offset is as long as the great circle, and has the direction in which it leaves the target.
    """
    if not are_on_sphere(places_m):
        return np.asarray(places_m - target_m)
    up = target_m / np.linalg.norm(target_m)
    east = np.array([-up[1], up[0], 0.0])
    width = float(np.linalg.norm(east))
    # At a pole each direction is south or north: the meridian of 0 degree stands for both axes.
    east = east / width if width > 0.0 else np.array([0.0, 1.0, 0.0])
    along_m = places_m @ np.stack([east, np.cross(up, east)], axis=1)
    length_m = np.hypot(*along_m.T)
    distance_m = separations(target_m[None], places_m)[0]
    return np.asarray(along_m * (distance_m / np.where(length_m > 0.0, length_m, 1.0))[:, None])
