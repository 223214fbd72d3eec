"""Recipes judged beside plain kriging: bias and root-mean-square error, with the errors of their sampling.

On simulated networks each replicate, on real stations each station that was left out, is one draw: draws are resampled
whole, both ways of interpolating together, so that what they have in common cancels. A recipe is worse where its bias
in size, or its root-mean-square error, exceeds that of plain kriging by more than `ALLOWED` standard errors of that
difference.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.result_names import value_of
from hypergrid.perspective.build.recipes import RECIPES
from hypergrid.query import Query
from tests.bench import recipes_simulated

Floats = NDArray[np.float64]
Tell = Callable[[str, float], None]

ALLOWED: Final = 2.0
"""Standard errors by which a recipe may be off to its disadvantage."""
RESAMPLED: Final = 2_000
SEED: Final = 7
REPLICATES: Final = 40

REAL: Final = Path(__file__).resolve().parents[2].parent / "shared/data/knmi_10min/20221231.nc"
WITHIN: Final = (3.0, 50.5, 7.5, 54.0)
"""West, south, east and north of the mainland stations."""
EVERY: Final = 6
"""Of the 144 slices each sixth is judged: one an hour."""
REAL_CASES: Final[Mapping[str, tuple[str, str, str | None]]] = {
    "wind_speed": ("ff", "m s-1", "dd"),
    "rain": ("rg", "mm/h", None),
    "air_temperature": ("ta", "degC", None),
    "dew_point": ("td", "degC", None),
    "relative_humidity": ("rh", "%", "ta"),
    "solar_radiation": ("qg", "W m-2", None),
}
"""Variables with a recipe: the file's name, the unit, and the name of the companion."""


@dataclass(frozen=True)
class Judged:
    """One recipe beside plain kriging."""

    data: str
    case: str
    unit: str
    draws: int
    """Replicates, or stations left out."""
    values: int
    mean: float
    """Of the true values."""
    plain_bias: float
    recipe_bias: float
    bias_excess: float
    """How much farther from 0 the recipe's bias is."""
    bias_error: float
    """Standard error of it."""
    plain_rmse: float
    recipe_rmse: float
    rmse_excess: float
    rmse_error: float
    worse: bool
    """Whether either excess is beyond `ALLOWED` of its standard errors."""


def judged(data: str, case: str, unit: str, draws: Sequence[tuple[Floats, Floats, Floats]]) -> Judged:
    """Return the comparison of draws, each the truth and what both ways estimate: truth, plain, recipe."""
    sums = np.array([_sums(*draw) for draw in draws])
    sums = sums[sums[:, 0] > 0]
    random = np.random.default_rng(SEED)
    picks = random.integers(0, len(sums), (RESAMPLED, len(sums)))
    plain, recipe, excess = _scores(sums.sum(axis=0)[None])
    error = _scores(sums[picks].sum(axis=1))[2].std(axis=0, ddof=1)
    bias_excess, rmse_excess = map(float, excess[0])
    total = sums.sum(axis=0)
    return Judged(
        data, case, unit, len(sums), int(total[0]), float(total[5] / total[0]),
        float(plain[0, 0]), float(recipe[0, 0]), bias_excess, float(error[0]),
        float(plain[0, 1]), float(recipe[0, 1]), rmse_excess, float(error[1]),
        # Rounding is no excess: a recipe may be plain kriging itself.
        bool(np.any(excess[0] > ALLOWED * error + 1e-9 * plain[0, 1])),
    )  # fmt: skip


def _sums(truth: Floats, plain: Floats, recipe: Floats) -> tuple[float, ...]:
    known = np.isfinite(truth) & np.isfinite(plain) & np.isfinite(recipe)
    off, own = plain[known] - truth[known], recipe[known] - truth[known]
    return (
        float(known.sum()), float(off.sum()), float(own.sum()), float(off @ off), float(own @ own),
        float(truth[known].sum()),
    )  # fmt: skip


def _scores(sums: Floats) -> tuple[Floats, Floats, Floats]:
    """Return bias and root-mean-square error of both, and what the recipe has in excess; shape (samples, 2) each."""
    count = sums[:, 0]
    plain = np.stack([sums[:, 1] / count, np.sqrt(sums[:, 3] / count)], axis=1)
    recipe = np.stack([sums[:, 2] / count, np.sqrt(sums[:, 4] / count)], axis=1)
    return plain, recipe, np.abs(recipe) - np.abs(plain)


def simulated(
    replicates: int = REPLICATES, *, cases: Sequence[str] = (), notify: Tell = lambda *_: None
) -> list[Judged]:
    """Return the comparison on simulated networks, a row a case."""
    found = []
    for case in cases or recipes_simulated.CASES:
        name, unit = recipes_simulated.CASES[case]
        notify(case, 0.0)
        draws = []
        for network in recipes_simulated.networks(case, replicates):
            readings = {each: network.query(each, _unit(each, unit, name)) for each in network.values}
            plain, recipe = _both(readings, name, recipes_simulated.grid())
            draws.append((network.truth, plain, recipe))
        notify(case, 1.0)
        found.append(judged("simulated", case, unit, draws))
    return found


def _unit(each: str, unit: str, name: str) -> str:
    companions = {"wind_direction": "degree", "air_temperature": "degC"}
    return unit if each == name else companions[each]


def _both(readings: Mapping[str, Query], name: str, grid: hg.Grid) -> tuple[Floats, Floats]:
    """Return what plain kriging and the recipe estimate, shape (slices, rows, columns)."""
    query, companion = readings[name], RECIPES[name].companion
    others = (readings[companion],) if companion else ()
    plain = query.interpolate("ordinary_kriging", grid=grid, variogram="fit").compute()
    recipe = query.interpolate("recipe", *others, grid=grid).compute()
    return value_of(plain).to_numpy(), value_of(recipe).to_numpy()


def real(*, cases: Sequence[str] = (), stations: int | None = None, notify: Tell = lambda *_: None) -> list[Judged]:
    """Return the comparison on real stations, each left out in turn; a row a variable.

    Parameters
    ----------
    cases
        Of `REAL_CASES`; all where absent.
    stations
        How many are left out; all where absent.
    """
    found = []
    with xr.open_dataset(REAL) as data:
        for name in cases or REAL_CASES:
            column, unit, other = REAL_CASES[name]
            notify(f"real {name}", 0.0)
            columns = {name: (column, unit)}
            if other:
                columns["air_temperature" if other == "ta" else "wind_direction"] = (
                    other, "degC" if other == "ta" else "degree",
                )  # fmt: skip
            draws = _left_out(data, name, columns, stations)
            notify(f"real {name}", 1.0)
            found.append(judged("real stations", name, unit, draws))
    return found


def _left_out(
    data: xr.Dataset, name: str, columns: Mapping[str, tuple[str, str]], maximum: int | None
) -> list[tuple[Floats, Floats, Floats]]:
    values = {each: data[c].transpose("time", "station").to_numpy()[::EVERY] for each, (c, _) in columns.items()}
    place = {each: _fixed(data[each]) for each in ("lon", "lat", "height")}
    west, south, east, north = WITHIN
    kept = (place["lon"] > west) & (place["lon"] < east) & (place["lat"] > south) & (place["lat"] < north)
    kept &= np.isfinite(place["height"]) & np.all([np.isfinite(part).any(axis=0) for part in values.values()], axis=0)
    numbers = np.flatnonzero(kept)
    draws = []
    for out in numbers[:maximum]:
        others = numbers[numbers != out]
        readings = {
            each: _query(data, each, columns[each][1], part, place, others, int(out)) for each, part in values.items()
        }
        step = 1e-4
        cell = hg.grid(
            lon=round(float(place["lon"][out]), 6) - step / 2,
            lat=round(float(place["lat"][out]), 6) - step / 2,
            step=step,
            shape=(1, 1),
        )
        plain, recipe = _both(readings, name, cell)
        draws.append((values[name][:, out], plain[:, 0, 0], recipe[:, 0, 0]))
    return draws


def _fixed(position: xr.DataArray) -> Floats:
    # Positions are repeated at every time in this file.
    values = position.transpose("time", "station").to_numpy() if "time" in position.dims else position.to_numpy()[None]
    return np.asarray(np.nanmax(values, axis=0), dtype=np.float64)


def _query(
    data: xr.Dataset,
    name: str,
    unit: str,
    values: Floats,
    place: Mapping[str, Floats],
    kept: NDArray[np.intp],
    out: int,
) -> Query:
    coords: dict[str, Any] = {
        "time": data["time"].to_numpy()[::EVERY],
        "station": data["station"].to_numpy()[kept].tolist(),
        "lon": ("station", place["lon"][kept]),
        "lat": ("station", place["lat"][kept]),
        "elevation": ("station", place["height"][kept]),
    }
    array = xr.DataArray(values[:, kept], dims=("time", "station"), coords=coords, name=name, attrs={"units": unit})
    lon, lat = place["lon"][out], place["lat"][out]
    level = xr.DataArray(
        np.full((2, 2), place["height"][out]),
        dims=("lat", "lon"),
        coords={"lon": [lon - 0.01, lon + 0.01], "lat": [lat - 0.01, lat + 0.01]},
        attrs={"units": "m"},
    )
    return hg.base(array, layers={"elevation": level})


def measure_judged(case: str, *, replicates: int = REPLICATES, notify: Tell = lambda *_: None) -> dict[str, Any]:
    """Return the comparison of all recipes: `simulated`, or `real` where the data are there."""
    if case == "real" and not REAL.exists():
        return {"case": f"{case}: the real data set {REAL.parent.name} is absent", "judged": []}
    rows = simulated(replicates, notify=notify) if case == "simulated" else real(notify=notify)
    return {
        "case": f"recipes beside plain kriging, {case}",
        "allowed_standard_errors": ALLOWED,
        "judged": [asdict(row) for row in rows],
        "worse": [row.case for row in rows if row.worse],
    }
