"""What a remapping withdrew: series, stations and rejects that stay in the store, and are not listed any more."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.arrays.records import Json

Key = TypeVar("Key", int, str)


@dataclass(frozen=True)
class Withdrawn:
    """Withdrawn series, stations and rejects, the first two with the instant from which they are [ns since 1970 UTC].

    A series that gets a value again is listed again, and so is its station, or one that is declared again.
    """

    series: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Instants by number of the series, by variable."""
    stations: Mapping[str, int] = field(default_factory=dict)
    """Instants by id."""
    rejects: Mapping[int, int] = field(default_factory=dict)
    """Instants by row of the table of rejects."""

    @classmethod
    def decode(cls, content: Mapping[str, Any]) -> "Withdrawn":
        """Return what a root holds; nothing in archives that were never remapped."""
        series = content.get("series", {})
        return cls(
            {name: {int(number): since for number, since in rows.items()} for name, rows in series.items()},
            dict(content.get("stations", {})),
            {int(row): since for row, since in content.get("rejects", {}).items()},
        )

    def encode(self) -> Json:
        series = {name: {str(number): ns for number, ns in rows.items()} for name, rows in self.series.items() if rows}
        rejects = {str(row): since for row, since in self.rejects.items()}
        return {"series": series, "stations": dict(self.stations), "rejects": rejects}

    def hidden_series(self, variable: str, as_of_ns: int | None) -> list[int]:
        """Return the numbers of the series of a variable that are not listed as of an instant [ns]."""
        return _hidden(self.series.get(variable, {}), as_of_ns)

    def hidden_stations(self, as_of_ns: int | None) -> frozenset[str]:
        """Return the ids of the stations that are not listed as of an instant [ns]."""
        return frozenset(_hidden(self.stations, as_of_ns))

    def hidden_rejects(self, as_of_ns: int | None) -> frozenset[int]:
        """Return the rows of the rejects that are not listed as of an instant [ns]."""
        return frozenset(_hidden(self.rejects, as_of_ns))

    def add(
        self, since_ns: int, *, series: Mapping[str, Iterable[int]], stations: Iterable[str], rejects: Iterable[int]
    ) -> "Withdrawn":
        """Return what is withdrawn after more was, at an instant [ns]; what was withdrawn before keeps its own."""
        by_variable = {name: dict(rows) for name, rows in self.series.items()}
        for name, numbers in series.items():
            by_variable[name] = {**dict.fromkeys(numbers, since_ns), **by_variable.get(name, {})}
        return Withdrawn(
            by_variable,
            {**dict.fromkeys(stations, since_ns), **self.stations},
            {**dict.fromkeys(rejects, since_ns), **self.rejects},
        )

    def restore(self, variable: str, numbers: NDArray[np.integer[Any]], stations: Collection[str]) -> "Withdrawn":
        """Return what is withdrawn after series of a variable, at these stations, got values."""
        own = self.series.get(variable, {})
        valued = set(numbers.tolist())
        kept = {number: since for number, since in own.items() if number not in valued}
        by_variable = {**self.series, variable: kept} if own else self.series
        return replace(self.restore_stations(stations), series=by_variable)

    def restore_stations(self, stations: Collection[str]) -> "Withdrawn":
        """Return what is withdrawn after these stations were declared or got values."""
        return replace(self, stations={name: since for name, since in self.stations.items() if name not in stations})


def _hidden(since: Mapping[Key, int], as_of_ns: int | None) -> list[Key]:
    return [key for key, instant in since.items() if as_of_ns is None or instant <= as_of_ns]
