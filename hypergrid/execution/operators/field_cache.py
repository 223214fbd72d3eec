"""What the boxes of one interpolation share: the network with its systems, and the places that are asked for in turn.

Of both a run has a few, whichever time cells its boxes have; the first box makes them, the others only bring values.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation import Field, Targets
from hypergrid.interpolation.methods.field_subset import replace_values
from hypergrid.topology import Metres

PlacedTargets = tuple[Targets, NDArray[np.bool_]]
"""Targets, and which of the cells they are."""


@dataclass(frozen=True, eq=False)
class FieldNetwork:
    """The stations of an interpolation, ready for values of any slices."""

    field: Field
    """Of some slices."""
    used: NDArray[np.intp]
    """Which series are its stations."""
    metres: Metres
    stations: int
    """How many an estimate may use."""


class FieldCache:
    """By key of a field: its network, and the targets that were last asked for."""

    def __init__(self) -> None:
        self._networks: dict[str, FieldNetwork] = {}
        self._targets: dict[str, tuple[NDArray[np.intp], str, PlacedTargets]] = {}

    def keep(self, key: str, network: FieldNetwork) -> None:
        """Keep a network whose stations are the series themselves, one each, and all that it will ever have."""
        self._networks[key] = network

    def get_field(self, key: str, values: NDArray[np.float64]) -> tuple[Field, Metres, int] | None:
        """Return the field of values (slices, series), its plane and its stations; None where it must be prepared."""
        network = self._networks.get(key)
        field = None if network is None else replace_values(network.field, values[:, network.used])
        return None if network is None or field is None else (field, network.metres, network.stations)

    def get_targets(
        self, key: str, cells: NDArray[np.intp], metres: Metres, make: Callable[[], PlacedTargets]
    ) -> PlacedTargets:
        """Return cells as targets, made where they are not those that were asked for last."""
        last = self._targets.get(key)
        if last is None or last[1] != metres.description or not np.array_equal(last[0], cells):
            last = cells, metres.description, make()
            self._targets[key] = last
        return last[2]
