"""Table of arrivals beside a deployment file: `station,time,arrival`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidDeployment

_COLUMNS: Final = ("station", "time", "arrival")


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Arrival times by station: sorted stamps, and the arrival of each."""

    by_station: Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]]

    def arrival_times(
        self, stations: tuple[str, ...], code: NDArray[np.int32], time_ns: NDArray[np.int64], *, otherwise_ns: int
    ) -> NDArray[np.int64]:
        """Return when the readings of `stations[code]` at `time_ns` arrived [ns], shape (n,).

        Readings missing in the table get `otherwise_ns`; of duplicate entries the first counts.
        """
        arrival = np.full(len(time_ns), otherwise_ns, np.int64)
        for index, station in enumerate(stations):
            if station not in self.by_station:
                continue
            stamps, arrivals = self.by_station[station]
            rows = np.flatnonzero(code == index)
            stamp_index = np.minimum(np.searchsorted(stamps, time_ns[rows]), len(stamps) - 1)
            known = stamps[stamp_index] == time_ns[rows]
            arrival[rows[known]] = arrivals[stamp_index[known]]
        return arrival


def read_arrivals(path: Path) -> Arrivals:
    """Read the table: station, time and arrival as seconds since 1970 UTC, exact to the microsecond.

    Raises
    ------
    InvalidDeployment
        The file does not exist, or is not such a table.
    """
    if not path.is_file():
        raise InvalidDeployment(
            f"the deployment names arrivals in {path.name}, which is not beside it; add the file or drop the key"
        )
    types = {"station": pa.dictionary(pa.int32(), pa.string()), "time": pa.float64(), "arrival": pa.float64()}
    options = pa.csv.ConvertOptions(column_types=types, include_columns=_COLUMNS)
    try:
        table = pa.csv.read_csv(path, convert_options=options).unify_dictionaries().combine_chunks()
    except (pa.ArrowInvalid, KeyError) as error:
        raise InvalidDeployment(
            f"{path.name} needs the columns {', '.join(_COLUMNS)}, times in seconds since 1970 UTC: {error}"
        ) from error
    if not table.num_rows:
        return Arrivals({})
    stations = table["station"].chunk(0)
    code = stations.indices.to_numpy(zero_copy_only=False)
    time_ns, arrival_ns = _instants(table["time"]), _instants(table["arrival"])
    # A stable sort, so that the first of duplicate entries counts.
    order = np.lexsort((time_ns, code))
    names = stations.dictionary.to_pylist()
    bounds = np.searchsorted(code[order], np.arange(len(names) + 1))
    parts = [order[start:stop] for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]
    return Arrivals({name: (time_ns[rows], arrival_ns[rows]) for name, rows in zip(names, parts, strict=True)})


def _instants(seconds: pa.ChunkedArray) -> NDArray[np.int64]:
    # Rounding to whole microseconds restores the decimals that a float64 of seconds holds (until the year 2106).
    return np.rint(np.nan_to_num(seconds.to_numpy()) * 1e6).astype(np.int64) * 1000
