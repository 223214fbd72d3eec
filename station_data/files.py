"""File formats of the stations: SensorScope text, plain CSV, and the tables beside them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TextIO

import numpy as np
from numpy.typing import NDArray

from station_data.faults import Fault
from station_data.network import Station
from station_data.truth import VARIABLES

Format = Literal["sensorscope", "csv"]
FORMATS: tuple[Format, ...] = ("sensorscope", "csv")
LOCAL_OFFSET_S = 7200
"""The clock columns of the SensorScope text are in local summer time [s ahead of UTC]."""
CHUNK_ROWS = 50_000
_CLOCK_SEPARATORS = (4, 7, 10, 13, 16)


def write_sensorscope(path: Path, station: str, stamps_s: NDArray[np.int64], readings: NDArray[np.float64]) -> None:
    """Write 17 blank-separated columns: station, local clock (six), epoch [s], nine values with three decimals."""
    row = f"{station} %s %d" + " %.3f" * len(VARIABLES) + "\n"
    with path.open("w", encoding="ascii", newline="\n") as file:
        for part in _chunks(stamps_s):
            clock = iso_seconds(stamps_s[part] + LOCAL_OFFSET_S)
            # The text "2007-10-01T02:00:12" differs from the six columns only in its separators.
            letters = clock.view("U1").reshape(clock.size, -1)
            letters[:, _CLOCK_SEPARATORS] = " "
            _write_rows(file, row, [clock, stamps_s[part]], readings[part], missing="NaN")


def write_csv(path: Path, station: str, stamps_s: NDArray[np.int64], readings: NDArray[np.float64]) -> None:
    """Write ``station,time,<nine variables>`` with a header, ISO 8601 time with Z, and empty missing values."""
    row = f"{station},%sZ" + ",%.3f" * len(VARIABLES) + "\n"
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.write(",".join(("station", "time", *VARIABLES)) + "\n")
        for part in _chunks(stamps_s):
            _write_rows(file, row, [iso_seconds(stamps_s[part])], readings[part], missing="")


def write_arrivals(
    path: Path, stations: NDArray[np.int64], stamps_s: NDArray[np.int64], arrivals_s: NDArray[np.float64]
) -> None:
    """Write ``station,time,arrival`` [s since 1970], ordered by arrival, then stamp, then station."""
    order = np.lexsort((stations, stamps_s, arrivals_s))
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.write("station,time,arrival\n")
        for part in _chunks(order):
            rows = order[part]
            columns = [stations[rows], stamps_s[rows]]
            _write_rows(file, "%d,%d,%.3f\n", columns, arrivals_s[rows][:, None], missing="")


def write_faults(path: Path, faults: Iterable[Fault]) -> None:
    """Write the ledger: ``kind,station,variable,start,end,magnitude``, ISO 8601 times with Z, end excluded."""
    lines = ["kind,station,variable,start,end,magnitude"]
    for fault in faults:
        start, end = iso_seconds(np.array([fault.start_s, fault.end_s]))
        magnitude = "" if np.isnan(fault.magnitude) else f"{fault.magnitude:g}"
        lines.append(f"{fault.kind},{fault.station},{fault.variable},{start}Z,{end}Z,{magnitude}")
    path.write_text("\n".join(lines) + "\n", encoding="ascii", newline="\n")


def write_stations(path: Path, network: Iterable[Station]) -> None:
    """Write ``station,lon,lat,elevation_m``."""
    rows = [f"{station.id},{station.lon:.6f},{station.lat:.6f},{station.elevation_m:.1f}" for station in network]
    path.write_text("\n".join(["station,lon,lat,elevation_m", *rows]) + "\n", encoding="ascii", newline="\n")


def iso_seconds(seconds: NDArray[np.int64]) -> NDArray[np.str_]:
    """Format seconds since 1970 as ISO 8601 text to the second, without a zone."""
    return np.datetime_as_string(seconds.astype("datetime64[s]"), unit="s")


def _chunks(rows: NDArray[np.int64]) -> Iterable[slice]:
    """Split rows into slices of bounded length."""
    # Years of readings must not become one list of Python numbers.
    return (slice(begin, begin + CHUNK_ROWS) for begin in range(0, rows.size, CHUNK_ROWS))


def _write_rows(
    file: TextIO,
    row: str,
    keys: Sequence[NDArray[np.int64] | NDArray[np.str_]],
    values: NDArray[np.float64],
    *,
    missing: str,
) -> None:
    # Formatted in one operation; adding 0.0 removes the sign of -0.
    table = np.empty((values.shape[0], len(keys) + values.shape[1]), dtype=object)
    for column, key in enumerate(keys):
        table[:, column] = key
    table[:, len(keys) :] = np.round(values, 3) + 0.0
    file.write(((row * values.shape[0]) % tuple(table.ravel())).replace("nan", missing))
