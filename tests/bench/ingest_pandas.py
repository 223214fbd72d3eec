"""What a careful pandas script does with the same files: `python -m tests.bench.ingest_pandas FILES OUT tests|plain`.

It reads the text by pandas' fast engines, lays each variable out as slices by stations, and writes value, flag and
exact time into Zarr by xarray, with the chunks and the compressor of an archive. The tests are those that pandas can do
along a series (range, spike, standing still, rate of change); comparing with neighbours is left away, and so are raw
copies, hashes, rejects with their lines, arrivals, superseded readings and any bound of memory.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from zarr.codecs import BloscCodec

from ingest.deployment.quality_overrides import DEFAULTS
from ingest.formats.sensorscope import CLOCK, COLUMNS
from tests.bench.ingest_files import FIRST_S, INTERVAL_S

GOOD, SUSPECT, FAIL, MISSING = 1, 3, 4, 9


def read(folder: Path) -> pd.DataFrame:
    """Return all rows: station, time and nine columns, by station and time."""
    parts = [pd.read_csv(path, engine="pyarrow", parse_dates=["time"]) for path in sorted(folder.glob("*.csv"))]
    names = ["station", *CLOCK, "epoch", *COLUMNS]
    for path in sorted(folder.glob("*.txt")):
        part = pd.read_csv(path, sep=" ", names=names, usecols=["station", "epoch", *COLUMNS], engine="c")
        part["time"] = pd.to_datetime(part.pop("epoch"), unit="s", utc=True)
        parts.append(part)
    for part in parts:
        part["time"] = part["time"].astype("datetime64[ns, UTC]")
    rows = pd.concat(parts, ignore_index=True)
    return rows.sort_values(["station", "time"], kind="stable", ignore_index=True)


def judge(rows: pd.DataFrame, name: str) -> pd.Series:
    """Return the flags of a column by the default tests along its series."""
    tests, value = DEFAULTS[name], rows[name]
    by_station = value.groupby(rows["station"], sort=False)
    flag = pd.Series(np.where(value.isna(), MISSING, GOOD).astype(np.uint8), index=rows.index)
    step = by_station.diff()
    hours = rows["time"].groupby(rows["station"], sort=False).diff().dt.total_seconds() / 3600.0
    if (gross := tests.gross_range) is not None:
        for span, worse in ((gross.suspect, SUSPECT), (gross.fail, FAIL)):
            if span is not None:
                flag = flag.mask((value < span[0]) | (value > span[1]), worse)
    if (spike := tests.spike) is not None:
        off = (value - (by_station.shift(1) + by_station.shift(-1)) / 2.0).abs()
        for least, worse in ((spike.suspect, SUSPECT), (spike.fail, FAIL)):
            if least is not None:
                flag = flag.mask(off > least + spike.per_hour * hours, worse)
    if (change := tests.rate_of_change) is not None:
        for least, worse in ((change.suspect, SUSPECT), (change.fail, FAIL)):
            if least is not None:
                flag = flag.mask(step.abs() > least + change.per_hour * hours, worse)
    if (flat := tests.flat_line) is not None:
        # How long the value has been what it is.
        run = (step != 0.0).cumsum()
        since = rows["time"].groupby(run, sort=False).transform("first")
        still_h = (rows["time"] - since).dt.total_seconds() / 3600.0
        exempt = pd.Series(data=False, index=rows.index)
        for one in flat.exempt:
            # A script has no sun at hand: darkness is taken for it.
            of = value if one.of in ("value", "sun") else rows[one.of]
            exempt |= (of >= one.least) & (of <= one.most)
        flag = flag.mask((still_h >= flat.hours) & ~exempt, SUSPECT)
    return flag.mask(value.isna(), MISSING)


def write(rows: pd.DataFrame, flags: dict[str, pd.Series], out: Path) -> None:
    """Write each variable as slices by stations."""
    stations, column = np.unique(rows["station"].to_numpy(), return_inverse=True)
    time_ns = rows["time"].to_numpy().astype("datetime64[ns]").astype(np.int64)
    row = (time_ns // 10**9 - FIRST_S) // INTERVAL_S
    shape = int(row.max()) + 1, len(stations)
    corners = (FIRST_S + INTERVAL_S * np.arange(shape[0])).astype("datetime64[s]").astype("datetime64[ns]")
    offset = np.zeros(shape, np.int64)
    offset[row, column] = time_ns - corners.astype(np.int64)[row]
    arrays: dict[str, Any] = {}
    for name in COLUMNS:
        value, flag = np.full(shape, np.nan), np.zeros(shape, np.uint8)
        value[row, column], flag[row, column] = rows[name].to_numpy(), flags[name].to_numpy()
        arrays |= {name: value, f"{name}_flag": flag, f"{name}_offset": offset}
    dims = ("time", "station")
    dataset = xr.Dataset(
        {name: (dims, array) for name, array in arrays.items()}, {"time": corners, "station": stations.astype(np.int64)}
    )
    form = {"chunks": (2048, 32), "compressors": [BloscCodec(cname="zstd", clevel=1, shuffle="shuffle")]}
    dataset.to_zarr(out, encoding=dict.fromkeys(arrays, form), consolidated=False)


def main() -> None:
    """Do it, and print the seconds of each stage."""
    files, out, tests = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "tests"
    shutil.rmtree(out, ignore_errors=True)
    seconds, begun = {}, time.perf_counter()
    rows = read(files)
    seconds["read"] = time.perf_counter() - begun
    if tests:
        flags = {name: judge(rows, name) for name in COLUMNS}
    else:
        flags = {name: pd.Series(np.where(rows[name].isna(), MISSING, 2).astype(np.uint8)) for name in COLUMNS}
    seconds["judge"] = time.perf_counter() - begun - sum(seconds.values())
    write(rows, flags, out)
    seconds["write"] = time.perf_counter() - begun - sum(seconds.values())
    flagged = int(sum(((flag == SUSPECT) | (flag == FAIL)).sum() for flag in flags.values()))
    print(json.dumps({"work_s": sum(seconds.values()), "seconds": seconds, "flagged": flagged}))


if __name__ == "__main__":
    main()
