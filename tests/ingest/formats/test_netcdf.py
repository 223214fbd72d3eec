"""NetCDF time series in each geometry, written by xarray, h5netcdf and scipy from one small table of readings."""

from pathlib import Path

import h5netcdf
import numpy as np
import pytest
import xarray as xr

from ingest.formats import FORMATS, DocumentFormat, Layout, Parsed, ReadOptions, Unreadable

STATIONS = ("alp", "bach", "col")
T0 = np.datetime64("2020-01-01T00:00", "s")
# station, minutes after T0, temperature [K], humidity (None: filled)
ROWS = [
    ("alp", 0, 270.5, 0.5),
    ("alp", 10, 271.0, None),
    ("bach", 5, 280.0, 0.75),
    ("col", 0, None, 0.25),
    ("col", 10, 260.25, 0.5),
    ("col", 20, 261.0, 1.0),
]
Told = list[tuple[str, int, float | None, float | None]]


def form() -> DocumentFormat:
    found = FORMATS["netcdf"]
    assert isinstance(found, DocumentFormat)
    return found


def read(path: Path, *, options: ReadOptions | None = None, chunk_bytes: int = 1 << 20) -> tuple[Layout, list[Parsed]]:
    layout = form().layout(path, options or ReadOptions())
    bounds = form().cut(path, layout, chunk_bytes)
    return layout, [form().parse(path, layout, a, b) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def told(parts: list[Parsed]) -> Told:
    """Return the rows as `ROWS` has them, in its order."""
    found = []
    for part in parts:
        for row, code in enumerate(part.code):
            minutes = (part.time_ns[row] - T0.astype("datetime64[ns]").astype(int)) // (60 * 10**9)
            pair = [float(part.values[name][row]) for name in ("temp", "rh")]
            values = [None if np.isnan(one) else round(one, 6) for one in pair]
            found.append((part.stations[code], int(minutes), *values))
    return sorted(found, key=lambda row: (row[0], row[1]))  # type: ignore[return-value]


def variables(dims: tuple[str, ...], temp: np.ndarray, rh: np.ndarray) -> dict[str, xr.Variable]:
    """Return temperature packed as shorts and humidity as floats with a missing value."""
    packed = np.where(np.isnan(temp), -32768, np.round((temp - 250) / 0.25)).astype("i2")
    return {
        "temp": xr.Variable(
            dims,
            packed,
            {
                "standard_name": "air_temperature",
                "units": "K",
                "scale_factor": 0.25,
                "add_offset": 250.0,
                "_FillValue": np.int16(-32768),
                "cell_methods": "time: mean (interval: 10 minutes)",
                "coordinates": "time lat lon z",
            },
        ),
        "rh": xr.Variable(
            dims,
            np.where(np.isnan(rh), -9.0, rh).astype("f4"),
            {"standard_name": "relative_humidity", "units": "1", "missing_value": np.float32(-9.0)},
        ),
        "z": xr.Variable((), 2.0, {"standard_name": "height", "units": "m", "axis": "Z"}),
    }


def places() -> dict[str, xr.Variable]:
    return {
        "lon": xr.Variable(("station",), [7.1, 7.2, 7.3], {"standard_name": "longitude", "units": "degrees_east"}),
        "lat": xr.Variable(("station",), [45.1, 45.2, 45.3], {"standard_name": "latitude", "units": "degrees_north"}),
        "alt": xr.Variable(("station",), [2000.0, 1800.0, 2400.0], {"standard_name": "altitude", "units": "m"}),
        "name": xr.Variable(("station",), np.array(STATIONS, object), {"cf_role": "timeseries_id"}),
    }


def minutes(values: np.ndarray) -> dict[str, object]:
    return {"units": "minutes since 2020-01-01 00:00:00", "standard_name": "time"}


def columns(rows: Told) -> tuple[np.ndarray, np.ndarray]:
    pairs = [[np.nan if value is None else value for value in row[2:]] for row in rows]
    return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])


def write(path: Path, content: dict[str, xr.Variable], engine: str = "h5netcdf") -> Path:
    xr.Dataset(content, attrs={"featureType": "timeSeries"}).to_netcdf(path, engine=engine)
    return path


def ragged(path: Path, *, indexed: bool) -> Path:
    # indexed: the observations of all stations in the order of their time
    rows = sorted(ROWS, key=lambda row: (row[1], row[0])) if indexed else ROWS
    temp, rh = columns(rows)
    time = np.array([row[1] for row in rows], "i4")
    content = places() | {"time": xr.Variable(("obs",), time, minutes(time))} | variables(("obs",), temp, rh)
    if indexed:
        index = np.array([STATIONS.index(row[0]) for row in rows], "i4")
        content["index"] = xr.Variable(("obs",), index, {"instance_dimension": "station"})
    else:
        counts = np.array([sum(row[0] == name for row in rows) for name in STATIONS], "i4")
        content["row_size"] = xr.Variable(("station",), counts, {"sample_dimension": "obs"})
    return write(path, content)


def incomplete(path: Path) -> Path:
    temp, rh = np.full((3, 3), np.nan), np.full((3, 3), np.nan)
    time = np.full((3, 3), -1.0)
    for place, name in enumerate(STATIONS):
        mine = [row for row in ROWS if row[0] == name]
        time[place, : len(mine)] = [row[1] for row in mine]
        temp[place, : len(mine)], rh[place, : len(mine)] = columns(mine)
    attributes = minutes(time) | {"_FillValue": -1.0}
    content = places() | {"time": xr.Variable(("station", "obs"), time, attributes)}
    return write(path, content | variables(("station", "obs"), temp, rh))


@pytest.mark.parametrize("chunk_bytes", [1, 90, 1 << 20])
@pytest.mark.parametrize("kind", ["contiguous", "indexed", "incomplete"])
def test_the_same_readings_in_each_geometry(tmp_path: Path, kind: str, chunk_bytes: int) -> None:
    path = tmp_path / "a.nc"
    made = incomplete(path) if kind == "incomplete" else ragged(path, indexed=kind == "indexed")
    layout, parts = read(made, chunk_bytes=chunk_bytes)
    assert told(parts) == ROWS
    assert len(parts) == (1 if chunk_bytes == 1 << 20 else len(parts))
    assert len(parts) >= 1
    assert layout.columns == ("temp", "rh")
    assert layout.detail.geometry.kind == kind
    column = layout.metadata.columns["temp"]
    assert column.variable is not None
    assert column.variable.name == "air_temperature"
    assert (column.unit, column.statistic, column.height_m) == ("K", "mean", 2.0)
    assert layout.metadata.columns["rh"].unit == "dimensionless"
    assert [(s.id, s.position.lon, s.position.elevation_m) for s in layout.metadata.stations] == [
        ("alp", 7.1, 2000.0),
        ("bach", 7.2, 1800.0),
        ("col", 7.3, 2400.0),
    ]


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
@pytest.mark.parametrize("order", [("time", "station"), ("station", "time")])
def test_orthogonal_files_in_either_order_and_library(tmp_path: Path, engine: str, order: tuple[str, str]) -> None:
    """A cell without a value is a reading; bounds tell that stamps are ends; classic files have names of characters."""
    time = np.array([0, 10, 20])
    temp = np.array([[270.5, 280.0, 260.0], [271.0, np.nan, 260.25], [272.0, 281.0, 261.0]])
    content = places() | {
        "time": xr.Variable(("time",), time.astype("i4"), minutes(time) | {"bounds": "time_bnds"}),
        "time_bnds": xr.Variable(("time", "nv"), np.column_stack([time - 10, time]).astype("i4")),
    }
    rh = np.full((3, 3), 0.5)
    content |= {
        name: variable.transpose(*order) if variable.ndim == 2 else variable
        for name, variable in variables(("time", "station"), temp, rh).items()
    }
    if engine == "scipy":
        letters = np.array([list(name.ljust(6)) for name in STATIONS], "S1")
        content["name"] = xr.Variable(("station", "letters"), letters, {"cf_role": "timeseries_id"})
    layout, parts = read(write(tmp_path / "a.nc", content, engine))
    assert len(told(parts)) == 9
    assert told(parts)[4] == ("bach", 10, None, 0.5)
    assert [parts[0].stations[code] for code in parts[0].code[:3]] == list(STATIONS)
    column = layout.metadata.columns["temp"]
    assert (column.stamp, column.interval_s) == ("end", 600.0)


def test_stamps_in_the_middle_of_their_bounds_become_starts(tmp_path: Path) -> None:
    time = np.array([5.0, 15.0])
    content = {
        "time": xr.Variable(("time",), time, minutes(time) | {"bounds": "b"}),
        "b": xr.Variable(("time", "nv"), np.column_stack([time - 5, time + 5])),
        **variables(("time",), np.array([270.0, 271.0]), np.array([0.5, 0.5])),
    }
    layout, (part,) = read(write(tmp_path / "hut.nc", content))
    assert told([part]) == [("hut", 0, 270.0, 0.5), ("hut", 10, 271.0, 0.5)]
    assert layout.metadata.columns["temp"].stamp == "start"


def test_positions_that_move_or_miss(tmp_path: Path) -> None:
    """alp moves at the third time, bach has no position at first, col never; noise of a receiver is no move."""
    nan = np.nan
    lon = np.array([[7.1, nan, nan], [7.10001, 7.2, nan], [7.15, 7.2, nan], [7.15001, 7.2, nan]])
    time = np.arange(4) * 10
    shape = ("time", "station")
    content = places() | {
        "time": xr.Variable(("time",), time.astype("i4"), minutes(time)),
        "lon": xr.Variable(shape, lon, {"standard_name": "longitude"}),
        "lat": xr.Variable(shape, lon + 38, {"standard_name": "latitude"}),
        "alt": xr.Variable(shape, lon * 100, {"standard_name": "height", "long_name": "Station height"}),
        **variables(shape, np.full((4, 3), 270.0), np.full((4, 3), 0.5)),
    }
    layout, parts = read(write(tmp_path / "a.nc", content))
    assert layout.columns == ("temp", "rh")
    alp, bach, col = layout.metadata.stations
    third = int((T0 + 20 * 60).astype("datetime64[ns]").astype(int))
    assert [(p.from_ns, p.lon) for p in alp.positions] == [(None, 7.1), (third, 7.15)]
    assert [(p.from_ns, p.lon, p.elevation_m) for p in bach.positions] == [(None, 7.2, 720.0)]
    assert np.isnan(col.position.lon)
    assert len(told(parts)) == 12


def test_rows_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    path = ragged(tmp_path / "a.nc", indexed=True)
    with h5netcdf.File(path, "a") as file:
        file.variables["index"][1] = 7
        file.variables["time"][2] = 2_000_000_000
        file.variables["rh"][4] = np.inf
    _, (part,) = read(path)
    assert [(row.line, row.column, row.reason.partition(":")[0]) for row in part.bad] == [
        (2, "name", "no station"),
        (3, "time", "time out of range"),
        (5, "rh", "bad number"),
    ]
    assert (len(part.code), part.lines) == (3, 6)


def test_days_as_floats_are_exact(tmp_path: Path) -> None:
    """26,662 days and ten minutes is no binary fraction."""
    time = np.arange(0, 144) / 144 + 26662
    content = {
        "time": xr.Variable(("time",), time, {"units": "days since 1950-01-01", "calendar": "gregorian"}),
        **variables(("time",), np.full(144, 270.0), np.full(144, 0.5)),
    }
    _, (part,) = read(write(tmp_path / "a.nc", content))
    start = np.datetime64("2022-12-31T00:00", "ns").astype(int)
    assert part.time_ns.tolist() == [start + 600 * 10**9 * n for n in range(144)]


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"units": "days since 2000-01-01", "calendar": "360_day"}, "calendar '360_day'"),
        ({"units": "fortnights since 2000-01-01"}, "no time that is known"),
        ({"units": "K"}, "no time"),
    ],
)
def test_times_that_nobody_knows_are_refused(tmp_path: Path, attributes: dict[str, str], reason: str) -> None:
    content = {"time": xr.Variable(("time",), [1.0, 2.0], attributes), "a": xr.Variable(("time",), [1.0, 2.0])}
    with pytest.raises(Unreadable, match=reason):
        read(write(tmp_path / "a.nc", content))


def test_files_that_are_damaged_or_declare_too_much(tmp_path: Path) -> None:
    path = ragged(tmp_path / "a.nc", indexed=False)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])
    with pytest.raises(Unreadable, match="damaged"):
        read(path)
    with h5netcdf.File(tmp_path / "bomb.nc", "w") as file:
        file.dimensions = {"time": 2_000_000_000}
        time = file.create_variable("time", ("time",), "f8", chunks=(1 << 20,))
        time.attrs["units"] = "seconds since 1970-01-01"
        file.create_variable("a", ("time",), "f8", chunks=(1 << 20,))
    with pytest.raises(Unreadable, match=r"declares 16000000000 bytes and holds \d+; no packing"):
        read(tmp_path / "bomb.nc")
    profile = {"time": xr.Variable(("time",), [1.0], {"units": "seconds since 1970-01-01"})}
    xr.Dataset(profile, attrs={"featureType": "profile"}).to_netcdf(tmp_path / "p.nc", engine="h5netcdf")
    with pytest.raises(Unreadable, match="featureType is 'profile'"):
        read(tmp_path / "p.nc")
