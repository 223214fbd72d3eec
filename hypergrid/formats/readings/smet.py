"""SMET 1.1 ASCII files (WSL Institute for Snow and Avalanche Research SLF).

Each station has a file, and each time a row.

Fields have SMET's name of their quantity; `units_multiplier` and `units_offset` convert to SMET's unit, so the numbers
are those of the archive. SMET has no flags: unless flags are requested, only good or not evaluated readings are
written. Other readings are nodata, as are times without a reading of a series.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, InvalidUnit
from hypergrid.core.times import SECOND_NS
from hypergrid.core.units import convert
from hypergrid.formats.readings.selection import ReadingsPiece, SelectedReadings, SeriesKind

FIELDS: Final = {
    "air_temperature": ("TA", "K"),
    "dew_point_temperature": ("TD", "K"),
    "surface_temperature": ("TSS", "K"),
    "ground_surface_temperature": ("TSG", "K"),
    "relative_humidity": ("RH", "dimensionless"),
    "wind_speed": ("VW", "m s-1"),
    "wind_gust": ("VW_MAX", "m s-1"),
    "wind_direction": ("DW", "degree"),
    "solar_radiation": ("ISWR", "W m-2"),
    "reflected_radiation": ("RSWR", "W m-2"),
    "longwave_radiation": ("ILWR", "W m-2"),
    "outgoing_longwave_radiation": ("OLWR", "W m-2"),
    "snow_height": ("HS", "m"),
    "precipitation": ("PSUM", "mm"),
    "precipitation_rate": ("PINT", "mm h-1"),
    "air_pressure": ("P", "Pa"),
}
"""SMET name and unit by variable; other variables keep their name and the archive's unit."""
NODATA: Final = -999


class Smet:
    """SMET files, one per station; `add` appends rows to each."""

    def __init__(self, chosen: SelectedReadings, paths: dict[str, Path]) -> None:
        self._paths = paths
        self._fields = _make_fields(chosen.kinds)
        for name, path in paths.items():
            path.write_text(_format_header(chosen.archive, name, self._fields), encoding="utf-8", newline="\n")

    def add(self, pieces: Sequence[ReadingsPiece]) -> None:
        """Append the rows of all kinds in one time window."""
        for name, path in self._paths.items():
            rows = [_select_station(piece, name) for piece in pieces]
            times = np.unique(np.concatenate([np.empty(0, np.int64), *(time_ns for time_ns, _ in rows)]))
            if not len(times):
                continue
            table = np.full((len(times), len(self._fields)), float(NODATA))
            for piece, (time_ns, values) in zip(pieces, rows, strict=True):
                if (values == NODATA).any():
                    raise InvalidQuery(
                        f"{piece.kind.label!r} of station {name!r} has the value {NODATA}, which means no value in "
                        "SMET; export it as .csv, .parquet or .nc"
                    )
                column = [kind.label for kind, *_ in self._fields].index(piece.kind.label)
                table[np.searchsorted(times, time_ns), column] = np.where(np.isnan(values), float(NODATA), values)
            with path.open("a", encoding="utf-8", newline="\n") as stream:
                _write_rows(stream, times, table)


def _select_station(piece: ReadingsPiece, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if name not in piece.kind.stations:
        return np.empty(0, np.int64), np.empty(0)
    mask = piece.station == piece.kind.stations.index(name)
    return piece.readings.time_ns[mask], piece.readings.value[mask]


def _write_rows(stream: IO[str], times: NDArray[np.int64], table: NDArray[np.float64]) -> None:
    unit: Literal["s", "ns"] = "s" if not (times % SECOND_NS).any() else "ns"
    texts = np.datetime_as_string(times.astype("datetime64[ns]"), unit=unit).tolist()
    for text, row in zip(texts, table.tolist(), strict=True):
        stream.write(f"{text} {' '.join(str(NODATA) if value == NODATA else repr(value) for value in row)}\n")


Field = tuple[SeriesKind, str, float, float]
"""Kind of series, field name, and the multiplier and offset that convert to SMET's unit."""


def _make_fields(kinds: Sequence[SeriesKind]) -> list[Field]:
    fields: list[Field] = []
    for kind in kinds:
        name, unit = FIELDS.get(kind.variable.name, (kind.variable.name.upper(), kind.variable.unit))
        multiplier, offset = 1.0, 0.0
        try:
            offset = float(convert(0.0, kind.variable.unit, unit))
            multiplier = float(convert(1.0, kind.variable.unit, unit)) - offset
        except InvalidUnit:
            name = kind.variable.name.upper()
        taken = sum(field[1] == name or field[1].startswith(f"{name}_") for field in fields)
        # Rounding removes the error of the difference of two conversions.
        fields.append((kind, f"{name}_{taken + 1}" if taken else name, round(multiplier, 12), round(offset, 9)))
    return fields


def _format_header(archive: Archive, name: str, fields: Sequence[Field]) -> str:
    station = archive.stations.get(name)
    position = station.position if station else None
    coordinates = {
        "latitude": position.lat if position else math.nan,
        "longitude": position.lon if position else math.nan,
        "altitude": position.elevation_m if position else math.nan,
    }
    lines = ["SMET 1.1 ASCII", "[HEADER]", f"station_id = {_format_line(name)}"]
    if station is not None and station.name:
        lines.append(f"station_name = {_format_line(station.name)}")
    lines += [f"{key} = {NODATA if math.isnan(value) else repr(float(value))}" for key, value in coordinates.items()]
    lines += [f"nodata = {NODATA}", "tz = 0", f"source = HyperGrid archive {_format_line(archive.name)}"]
    lines.append(f"comment = snapshot {archive.snapshot}; {'; '.join(f'{f} is {k.label}' for k, f, *_ in fields)}")
    lines.append("fields = timestamp " + " ".join(field for _, field, *_ in fields))
    lines.append("units_multiplier = 1 " + " ".join(f"{multiplier:.12g}" for *_, multiplier, _ in fields))
    lines.append("units_offset = 0 " + " ".join(f"{offset:.12g}" for *_, offset in fields))
    return "\n".join([*lines, "[DATA]", ""])


def _format_line(text: str) -> str:
    return " ".join(text.split())
