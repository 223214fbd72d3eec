"""Small archives with everything that makes sources err, and their elements read directly by pandas."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from hypergrid.core.flags import MISSING
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS
from hypergrid.query import OpenArchive
from tests.support.networks import SLICE_S, START_NS, write_archive

KINDS: Final = ((120.0, "instant"), (600.0, "start"), (300.0, "end"), (0.0, "instant"))
VARIABLES: Final = ("air_temperature", "wind_speed", "rain_meter")


def random_sources(folder: Path, seed: int, *, hours: int = 2) -> tuple[OpenArchive, pd.DataFrame]:
    """Write an archive of random readings, and return it with all of them as a table, in the order of the archive.

    Columns are variable, number (of the series in the variable), station, stamp_ns, shift_ns, value, flag, arrival_ns.
    """
    rng = np.random.default_rng(seed)
    names = [f"s{number}" for number in range(int(rng.integers(2, 5)))]
    stations = [_make_station(name, number, moves=seed % 2 == 1) for number, name in enumerate(names)]
    tables: list[pd.DataFrame] = []
    parts: list[Readings] = []
    for variable in VARIABLES:
        series = []
        for name in names:
            for replicate in range(1, 2 + int(rng.random() < 0.3)):
                interval_s, stamp = KINDS[int(rng.integers(len(KINDS)))]
                series.append(Series(variable, name, 2.0, replicate, interval_s=interval_s, stamp=stamp))  # type: ignore[arg-type]
        table = pd.concat([_draw(rng, variable, number, item, hours) for number, item in enumerate(series)])
        tables.append(table)
        parts.append(_make_readings(series, table))
    return write_archive(folder, stations=stations, readings=parts), pd.concat(tables, ignore_index=True)


def _make_station(name: str, number: int, *, moves: bool) -> Station:
    first = Position(None, 7.177 + 0.001 * number, 45.867, 2300.0 + 25.0 * number)
    if not moves or number:
        return Station(name, name.upper(), (first,))
    later = Position(START_NS + 3600 * SECOND_NS, 7.185, 45.869, 2350.0)
    return Station(name, name.upper(), (first, later))


def _draw(rng: np.random.Generator, variable: str, number: int, item: Series, hours: int) -> pd.DataFrame:
    step = 60 * SECOND_NS
    slots = np.flatnonzero(rng.random(hours * 60) < rng.choice([0.1, 0.4, 0.9]))
    stamps = START_NS + slots * step + rng.integers(0, 20, len(slots)) * SECOND_NS
    flags = rng.choice([1, 2, 3, 4, MISSING], len(slots), p=[0.7, 0.1, 0.1, 0.05, 0.05])
    values = np.round(rng.normal(5, 4, len(slots)), 1)
    if variable == "rain_meter":
        values = np.cumsum(rng.random(len(slots)) < 0.3) * 0.2 % 7.0
    shift = round(item.interval_s * SECOND_NS) if item.stamp == "start" else 0
    delays = rng.choice([0, 40, 3000, -7200], len(slots), p=[0.4, 0.4, 0.15, 0.05]) * SECOND_NS
    return pd.DataFrame(
        {
            "variable": variable, "number": number, "station": item.station, "interval_s": item.interval_s,
            "stamp_ns": stamps, "shift_ns": shift, "value": np.where(flags == MISSING, np.nan, values),
            "flag": flags, "arrival_ns": stamps + delays,
        }
    )  # fmt: skip


def _make_readings(series: Sequence[Series], table: pd.DataFrame) -> Readings:
    return Readings(
        tuple(series),
        table["number"].to_numpy(np.int32),
        table["stamp_ns"].to_numpy(np.int64),
        table["value"].to_numpy(np.float64),
        table["flag"].to_numpy(np.uint8),
        table["arrival_ns"].to_numpy(np.int64),
    )


def elements_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the elements of all variables in canonical order by time, with the columns of streams of readings."""
    rows = table.copy()
    rows["tau"] = rows["stamp_ns"] + rows["shift_ns"]
    rows["series"] = rows["variable"].map(VARIABLES.index) * 1_000_000 + rows["number"]
    rows["slice"] = [int(stamp // (SLICE_S * SECOND_NS)) for stamp in rows["stamp_ns"]]
    rows["time"], rows["arrival"] = rows["stamp_ns"], rows["arrival_ns"]
    return rows.sort_values(["tau", "arrival", "series"], kind="stable", ignore_index=True)


def packets_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the packets of a table in canonical order by time."""
    rows = elements_of(table)
    order = list(dict.fromkeys(table["station"]))
    firsts = rows.groupby(["variable", "station"])["number"].transform("min")
    first_of_archive = rows.assign(is_first=rows["number"] == firsts)
    kept = first_of_archive[first_of_archive["is_first"]]
    shifts = kept.groupby("station")["shift_ns"].max()
    packets: list[dict[str, object]] = []
    for (station, stamp), group in kept.groupby(["station", "stamp_ns"]):
        packet: dict[str, object] = {
            "station": station, "time": stamp, "tau": stamp + shifts[station], "arrival": group["arrival"].max(),
            "slice": group["slice"].iloc[0], "rank": order.index(str(station)),
        }  # fmt: skip
        passing = group[group["flag"].isin([1, 2])].set_index("variable")["value"]
        packet |= {variable: passing.get(variable, np.nan) for variable in VARIABLES}
        packets.append(packet)
    return pd.DataFrame(packets).sort_values(["tau", "arrival", "rank"], kind="stable", ignore_index=True)


def rain_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rain of a table's counter, reading by reading, in canonical order by time."""
    rows = elements_of(table[table["variable"] == "rain_meter"]).assign(mm=np.nan)
    known = rows["arrival"].to_list()
    growth = rows["mm"].to_list()
    last: dict[int, int] = {}
    for at in rows.sort_values("stamp_ns", kind="stable").index:
        row = rows.loc[at]
        if row["flag"] not in (1, 2):
            continue
        before = last.get(row["number"])
        last[row["number"]] = at
        longest = max(3600.0, 3 * row["interval_s"]) * SECOND_NS
        if before is None or row["stamp_ns"] - rows.loc[before, "stamp_ns"] > longest:
            continue
        was, shown = rows.loc[before, "value"], row["value"]
        growth[at] = shown - was if shown >= was else shown if shown < was / 2 else 0.0
        known[at] = max(row["arrival"], rows.loc[before, "arrival"])
    rows["mm"], rows["arrival"] = growth, known
    return rows.sort_values(["tau", "arrival", "series"], kind="stable", ignore_index=True)
