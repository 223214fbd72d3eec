"""The method "auto" beside every single method: on generated fields with a known truth, and on real stations left out.

The best of the others is chosen with hindsight, for each field, by its error on the true cells: no rule could know it.
Methods that leave a cell without an estimate are not compared. Real stations are left out in folds, which neither
"auto" nor the other methods see; each method's parameters are chosen from the other stations alone.
"""

import csv
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.analysis.geostatistics import samples_of
from hypergrid.core.errors import HyperGridError
from hypergrid.core.parameters import bind
from hypergrid.interpolation import METHODS, Samples, Stations, Targets
from hypergrid.interpolation.solvers.trend import ELEVATION
from hypergrid.interpolation.validation.cross_validate import Z95
from ingest.job import ingest
from tests.bench.auto_fields import KINDS, SIZES, generate_field
from tests.bench.recipes_judged import EVERY, REAL, WITHIN

Floats = NDArray[np.float64]
Tell = Callable[[str, float], None]

CASES: Final = ("all", "fields", "shared")
REPLICATES: Final = 6
"""Fields of each kind and size."""
NEAR_BEST: Final = 1.1
"""Error of "auto" over that of the best method up to which a field counts."""
NEAR_DISTANCE: Final = 1.15
"""The same over that of inverse distance."""
FOLDS: Final = 5
"""Folds of real stations; fewer than ten are left out one by one."""
SHARED: Final = Path(__file__).resolve().parents[2].parent / "shared/data"
REAL_SLICES: Final = 48
NOW_NS: Final = 1_700_000_000 * 10**9

INVERSE_DISTANCE: Final = "inverse distance"
SINGLE: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "nearest": ("nearest", {}),
    INVERSE_DISTANCE: ("inverse_distance", {}),
    "inverse distance, power 3": ("inverse_distance", {"power": 3.0}),
    "inverse distance, 8 nearest": ("inverse_distance", {"neighbours": 8}),
    "linear": ("linear", {}),
    "thin plate spline": ("radial_basis", {}),
    "thin plate spline, smoothed": ("radial_basis", {"smoothing": 100.0}),
    "ordinary kriging": ("ordinary_kriging", {"variogram": "fit"}),
    "ordinary kriging, spherical": ("ordinary_kriging", {"variogram": {"fit": "spherical"}}),
    "universal kriging": ("universal_kriging", {"variogram": "fit", "degree": 1}),
    "kriging with elevation": ("external_drift_kriging", {"variogram": "fit", "drift": [ELEVATION]}),
}


@dataclass(frozen=True)
class Judged:
    """The error of "auto" on one field beside those of others."""

    data: str
    kind: str
    stations: int
    rmse: float
    best: str
    """Method with the least error."""
    over_best: float
    over_inverse_distance: float
    inside_95: float
    """Share of the true values in the 95 % intervals."""
    values: int


@dataclass(frozen=True)
class _Estimates:
    value: Floats
    variance: Floats | None


def measure(
    case: str = "all", *, pairs: int = 1, notify: Tell = lambda *_: None, replicates: int = REPLICATES
) -> dict[str, Any]:
    """Return the errors of "auto" and what they are beside the others.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Not used: errors are the same in every run.
    notify
        Receives the stage and the share of it that is done.
    replicates
        Fields of each kind and size.
    """
    rows: list[Judged] = []
    if case in ("all", "fields"):
        rows += [judge_field(kind, size, number) for kind, size, number in _list_fields(replicates, notify)]
    if case in ("all", "shared"):
        rows += judge_shared(notify)
    return {"case": f"auto beside single methods, {case}", "judged": [asdict(row) for row in rows], **summarise(rows)}


def summarise(rows: list[Judged]) -> dict[str, Any]:
    """Return the shares of fields within the bounds, and the coverage by data and size."""
    if not rows:
        return {}
    best = np.array([row.over_best for row in rows])
    distance = np.array([row.over_inverse_distance for row in rows])
    classes = {f"{row.data}, {row.stations} stations" if row.data == "generated" else row.data for row in rows}
    coverage = {}
    for name in sorted(classes):
        own = [row for row in rows if name in (row.data, f"{row.data}, {row.stations} stations")]
        coverage[name] = float(np.average([row.inside_95 for row in own], weights=[row.values for row in own]))
    return {
        "fields": len(rows),
        "share_near_best": float(np.mean(best <= NEAR_BEST)),
        "share_near_inverse_distance": float(np.mean(distance < NEAR_DISTANCE)),
        "coverage_95": coverage,
        "worst": [asdict(row) for row in sorted(rows, key=lambda row: -row.over_inverse_distance)[:5]],
    }


def _list_fields(replicates: int, notify: Tell) -> Iterator[tuple[str, int, int]]:
    for kind in KINDS:
        notify(kind, 0.0)
        for size in SIZES:
            for number in range(replicates):
                yield kind, size, number
        notify(kind, 1.0)


def judge_field(kind: str, stations: int, number: int) -> Judged:
    """Judge one generated field."""
    made = generate_field(kind, stations, number)
    near = _name_stations(made.positions_m, made.elevation_m)
    targets = Targets(made.cells_m, {ELEVATION: made.cell_elevation_m})
    estimates = {label: _estimate(label, near, made.readings, targets) for label in ("auto", *SINGLE)}
    return _judge("generated", kind, stations, made.truth, estimates)


def judge_samples(data: str, kind: str, samples: Samples) -> Judged:
    """Judge stations that are left out, in folds."""
    used = samples.take_stations(samples.usable_mask)
    count = len(used.names)
    if len(set(used.names)) < count:
        raise ValueError(f"{data} {kind} has several series at a station, of which one would estimate the other")
    folds = np.random.default_rng(0).permutation(count) % (FOLDS if count >= 2 * FOLDS else count)
    estimates: dict[str, _Estimates | None] = {}
    for label in ("auto", *SINGLE):
        value, variance = np.full(used.values.shape, np.nan), np.full(used.values.shape, np.nan)
        for fold in np.unique(folds):
            out, kept = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            near, there = used.stations.take_stations(kept), used.stations.take_stations(out)
            made = _estimate(label, near, used.values[:, kept], Targets(there.positions_m, there.covariates))
            if made is not None:
                value[:, out] = made.value
                variance[:, out] = np.nan if made.variance is None else made.variance
        estimates[label] = _Estimates(value, variance)
    return _judge(data, kind, count, used.values, estimates)


def _name_stations(positions_m: Floats, elevation_m: Floats) -> Stations:
    return Stations(positions_m, tuple(f"s{i}" for i in range(len(positions_m))), {ELEVATION: elevation_m})


def _estimate(label: str, stations: Stations, values: Floats, targets: Targets) -> _Estimates | None:
    name, given = SINGLE.get(label, (label, {}))
    row = METHODS[name]
    known = np.isfinite(stations.covariates[ELEVATION]).all() and np.isfinite(targets.covariates[ELEVATION]).all()
    try:
        parsed = row.parse(bind(name, row.parameters, dict(given), variable_unit=""))
        if label == "auto" and known:
            parsed["drift"] = (ELEVATION,)
        field = row.prepare(stations, values, parsed)
        return _Estimates(field.estimate(targets), field.variance(targets) if row.has_variance else None)
    except HyperGridError:
        return None


def _judge(data: str, kind: str, stations: int, truth: Floats, estimates: Mapping[str, _Estimates | None]) -> Judged:
    wanted, auto = np.isfinite(truth), estimates["auto"]
    if auto is None or auto.variance is None:
        raise AssertionError(f"auto estimates nothing for {data} {kind}")
    errors = {}
    for label, made in estimates.items():
        # Where no station reports, no method has an estimate.
        if made is not None and not (wanted & np.isfinite(auto.value) & ~np.isfinite(made.value)).any():
            errors[label] = float(np.sqrt(np.nanmean((made.value - truth)[wanted] ** 2)))
    best = min((label for label in errors if label != "auto"), key=errors.__getitem__)
    known = wanted & np.isfinite(auto.value)
    inside = np.abs(auto.value - truth)[known] <= Z95 * np.sqrt(auto.variance[known]) + 1e-12
    return Judged(
        data, kind, stations, errors["auto"], best, errors["auto"] / errors[best],
        errors["auto"] / errors[INVERSE_DISTANCE], float(inside.mean()), int(known.sum()),
    )  # fmt: skip


def judge_shared(notify: Tell = lambda *_: None) -> list[Judged]:
    """Judge the real networks; none where their data are absent."""
    found = []
    for data, read in (("knmi", _read_knmi), ("meuse", _read_meuse), ("davos", _read_davos), ("imis", _read_imis)):
        notify(data, 0.0)
        if SHARED.exists():
            found += [judge_samples(data, kind, samples) for kind, samples in read()]
        notify(data, 1.0)
    return found


def _read_knmi() -> Iterator[tuple[str, Samples]]:
    west, south, east, north = WITHIN
    with xr.open_dataset(REAL) as data:
        place = {
            each: np.nanmax(np.atleast_2d(data[each].transpose(..., "station").to_numpy()), axis=0)
            for each in ("lon", "lat", "height")
        }
        kept = (place["lon"] > west) & (place["lon"] < east) & (place["lat"] > south) & (place["lat"] < north)
        lon, lat = place["lon"][kept], place["lat"][kept]
        positions = 111_195.0 * np.stack([lon * np.cos(np.radians(52.2)), lat], axis=1)
        for name in ("ta", "td", "rh", "ff", "qg", "rg", "pp"):
            values = data[name].transpose("time", "station").to_numpy()[::EVERY, kept]
            usable = np.isfinite(values).any(axis=1)
            yield name, Samples.of(values[usable], positions, place["height"][kept])


def _read_meuse() -> Iterator[tuple[str, Samples]]:
    with (SHARED / "meuse/meuse.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    positions = np.array([(float(row["x"]), float(row["y"])) for row in rows])
    for name in ("zinc", "lead", "copper"):
        values = np.array([[float(row[name]) for row in rows]])
        yield name, Samples.of(values, positions)
        yield f"log {name}", Samples.of(np.log(values), positions)


def _read_davos() -> Iterator[tuple[str, Samples]]:
    yield from _read_archive("sensorscope_davos")


def _read_imis() -> Iterator[tuple[str, Samples]]:
    yield from _read_archive("meteoio_imis")


def _read_archive(folder: str) -> Iterator[tuple[str, Samples]]:
    with tempfile.TemporaryDirectory() as made:
        ingest([SHARED / folder], Path(made) / "archive", engine="inprocess", now_ns=NOW_NS)
        archive = hg.open(Path(made) / "archive")
        for name in ("air_temperature", "relative_humidity", "wind_speed", "surface_temperature"):
            if name not in archive:
                continue
            try:
                samples = samples_of(archive[name].aggregate("mean", time="1h"))
            except HyperGridError:
                continue
            # Slices of which a station can be left out.
            full = np.flatnonzero(np.isfinite(samples.values).sum(axis=1) >= 4)
            if len(full):
                rows = full[np.linspace(0, len(full) - 1, min(REAL_SLICES, len(full))).round().astype(int)]
                # A second sensor of a station would estimate the first.
                _, first = np.unique(samples.names, return_index=True)
                kept = np.isin(np.arange(len(samples.names)), first)
                yield name, replace(samples, values=samples.values[rows]).take_stations(kept)


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Return the measured errors as tables for people: title, columns, rows."""
    if not measured["judged"]:
        return []
    rows = [tuple(_text(value) for value in row.values()) for row in measured["judged"]]
    shares: list[tuple[str, ...]] = [
        (name, _text(measured[name])) for name in ("share_near_best", "share_near_inverse_distance")
    ]
    shares += [(f"inside 95 %, {name}", _text(share)) for name, share in measured["coverage_95"].items()]
    columns = tuple(name.replace("_", " ") for name in measured["judged"][0])
    return [(measured["case"], columns, rows), ("summary", ("of the fields", "share"), shares)]


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
