"""Rain counters: increments of simulated gauges against what really fell, and of shared data beside plain differences.

`simulated` scores the 200 gauges of `gauges_simulated.SEEDS`, `held_out` as many others, `weather` as many whose drift
changes from day to day. Beside the method stand three
plain ones: every fall is a reset (`resets`), falls are left out (`rises`), and the running maximum (`maximum`).
Each day beyond what is allowed is judged by its readings (`counter_twins.py`), and what an ideal estimator leaves of
the same days and months stands beside (`counter_ideal.py`).
`shared` takes the public files of `../shared/data` that have a counter, and lists each day on which the two disagree.
"""

import csv
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.result_names import value_of
from hypergrid.physics.counters import EMPTIED, FELL, HELD, RESET, ROLLOVER, Increments, increments
from tests.bench.counter_ideal import Ideal, ideal, ideal_summary
from tests.bench.counter_scores import Score, by_day, score, summary
from tests.bench.counter_twins import Missed, missed
from tests.bench.gauges_simulated import HELD_OUT, SEEDS, WEATHER, Gauge, gauge

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Tell = Callable[[str, float], None]

GAUGES: Final = {"simulated": SEEDS, "held_out": HELD_OUT, "weather": WEATHER}
CASES: Final = (*GAUGES, "shared")
SHARED: Final = Path(__file__).parents[3] / "shared" / "data"
HOUR_NS: Final = 3600 * 10**9
KINDS_OF_GAUGES: Final = ("tipping", "weighing")
PARALLEL_FROM, PROCESSES = 20, 2
"""More gauges than the first are shared out among so many processes."""
KINDS: Final = {RESET: "resets", ROLLOVER: "rollovers", EMPTIED: "emptyings", HELD: "dropouts", FELL: "falls"}


def _resets(values: Floats, at_ns: Integers, max_gap_ns: int) -> Floats:
    step = np.diff(values, prepend=np.nan)
    step = np.where(step < 0, values, step)
    return np.where(np.diff(at_ns, prepend=at_ns[0]) <= max_gap_ns, step, np.nan)


def _rises(values: Floats, at_ns: Integers, max_gap_ns: int) -> Floats:
    step = np.maximum(np.diff(values, prepend=np.nan), 0.0)
    return np.where(np.diff(at_ns, prepend=at_ns[0]) <= max_gap_ns, step, np.nan)


def _maximum(values: Floats, at_ns: Integers, max_gap_ns: int) -> Floats:
    return _rises(np.maximum.accumulate(values), at_ns, max_gap_ns)


PLAIN: Final[Mapping[str, Callable[[Floats, Integers, int], Floats]]] = {
    "resets": _resets,
    "rises": _rises,
    "maximum": _maximum,
}


def measure(
    case: str = "simulated", *, pairs: int = 1, notify: Tell = lambda _stage, _done: None, gauges: int = 200,
    days: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the scores of increments, or the disagreements on shared data.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Not used: gauges are the same in every run.
    tell
        Is told the stage and the share of it that is done.
    gauges, days
        How many simulated gauges, and for how many days each; None: for years, as each was drawn.
    """
    if case == "shared":
        return {"case": "shared data", "files": _shared(notify)}
    seeds = GAUGES[case][:gauges]
    scored = partial(_scored, days=days, weather=case == "weather")
    scores: dict[tuple[str, str], list[Score]] = {}
    judged: list[Missed] = []
    ideals: list[Ideal] = []
    with ExitStack() as stack:
        each = map(scored, seeds)
        if len(seeds) > PARALLEL_FROM:
            pool = stack.enter_context(ProcessPoolExecutor(PROCESSES))
            each = pool.map(scored, seeds)
        for number, (kind, own, days_missed, expected) in enumerate(each):
            notify(case, number / len(seeds))
            judged += days_missed
            ideals.append(expected)
            for name, held in own.items():
                scores.setdefault((name, kind), []).append(held)
    notify(case, 1.0)
    rows = []
    for name in ("declared", "undeclared", *PLAIN):
        both = [each for (method, _), held in scores.items() if method == name for each in held]
        rows.append({"method": name, "gauge": "all", **summary(both)})
        rows += [{"method": name, "gauge": kind, **summary(scores[name, kind])}
                 for kind in KINDS_OF_GAUGES if (name, kind) in scores]  # fmt: skip
    return {
        "case": f"{case}: {len(seeds)} gauges, seeds {seeds[0]} to {seeds[-1]}",
        "scores": rows,
        "beyond": [asdict(row) for row in judged],
        "beyond_days": len(judged),
        "beyond_days_undecided": sum(row.undecided for row in judged),
        "ideal": [
            {"gauge": kind, **ideal_summary([each for each in ideals if kind in ("all", each.kind)])}
            for kind in ("all", *KINDS_OF_GAUGES)
            if kind == "all" or any(each.kind == kind for each in ideals)
        ],
    }


def _scored(seed: int, *, days: int | None, weather: bool) -> tuple[str, dict[str, Score], list[Missed], Ideal]:
    """Return a gauge's kind, each method's score, days beyond, and what an ideal estimator would leave."""
    one = gauge(seed, days=days, weather=weather)
    max_gap_ns = max(HOUR_NS, 3 * one.interval_s * 10**9)
    grown = {name: plain(one.value, one.time_ns, max_gap_ns) for name, plain in PLAIN.items()}
    declared = _ours(one, max_gap_ns, declared=True)
    grown["declared"] = declared.growth
    grown["undeclared"] = _ours(one, max_gap_ns, declared=False).growth
    scores = {name: score(one, own) for name, own in grown.items()}
    best = ideal(one, by_day(one, declared.growth), weather=weather)
    return one.kind, scores, missed(one, declared, weather=weather), best


def _ours(one: Gauge, max_gap_ns: int, *, declared: bool) -> Increments:
    known = {"resolution": one.resolution, "rollover": one.rollover} if declared else {"rollover": one.rollover}
    return increments(one.value, one.time_ns, np.zeros(len(one.value)), max_gap_ns, **known)


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Return the figures as tables for people: title, columns, rows."""
    rows = measured.get("scores") or measured["files"]
    if not rows:
        return [(measured["case"], ("nothing found",), [])]
    columns = tuple(rows[0])
    listed = [(measured["case"], columns, [tuple(_text(row[key]) for key in columns) for row in rows])]
    if ideals := measured.get("ideal"):
        cells = [tuple(_text(value) for value in row.values()) for row in ideals]
        listed.append(("what an ideal estimator leaves", tuple(ideals[0]), cells))
    if days := measured.get("beyond"):
        judged = f"beyond {measured['beyond_days']}, undecided by their readings {measured['beyond_days_undecided']}"
        listed.append((judged, tuple(days[0]), [tuple(_text(value) for value in row.values()) for row in days]))
    return listed


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _shared(notify: Tell) -> list[dict[str, Any]]:
    """Return by file what it grew by, plainly and here, what its falls were, and the days that differ."""
    rows = []
    files = sorted((SHARED / "sensorscope_gsb").glob("stbernard-meteo-*.txt"))
    files += sorted((SHARED / "sensorscope_davos").glob("station_*.csv"))
    for number, path in enumerate(files):
        notify("shared", number / len(files))
        held = _davos(path) if path.suffix == ".csv" else _gsb(path)
        if held is not None:
            rows.append({"file": path.name, **_compared(*held)})
    return rows


def _compared(at_ns: Integers, shown: Floats) -> dict[str, Any]:
    array = xr.DataArray(
        shown[:, None], {"time": at_ns.view("datetime64[ns]"), "x": ("station", [0.0]), "y": ("station", [0.0])},
        ("time", "station"), "rain_meter", {"units": "mm"},
    )  # fmt: skip
    whole = hg.base(array).aggregate("rain_accumulation", time="1day", min_coverage=0).compute()
    plain = _resets(shown, at_ns, HOUR_NS)
    found = increments(shown, at_ns, np.zeros(len(shown)), HOUR_NS)
    day = at_ns // (24 * HOUR_NS)
    first = int(day[0])
    sums = [np.bincount(day - first, np.nan_to_num(each)) for each in (found.growth, plain)]
    differ = np.flatnonzero(np.abs(sums[0] - sums[1]) > 1e-6)
    falls = {name: int(np.count_nonzero(found.kind == kind)) for kind, name in KINDS.items()}
    listed = [
        f"{np.datetime64(int(first + d), 'D')}: {sums[0][d]:.3f} for {sums[1][d]:.3f} mm" for d in differ.tolist()
    ]
    return {
        "readings": len(shown),
        "plain_mm": float(np.nansum(plain)),
        "here_mm": float(np.nansum(found.growth)),
        "query_mm": float(np.nansum(value_of(whole).to_numpy())),
        "done": ", ".join(f"{count} {name}" for name, count in falls.items() if count) or "nothing",
        "days_that_differ": "; ".join(listed) or "none",
    }


def _gsb(path: Path) -> tuple[Integers, Floats] | None:
    table = pd.read_csv(path, sep=r"\s+", header=None, usecols=[7, 14], dtype=float, na_values=["NaN"]).dropna()
    table = table.drop_duplicates(subset=7).sort_values(7)
    return _pair(table[7].to_numpy(), table[14].to_numpy())


def _davos(path: Path) -> tuple[Integers, Floats] | None:
    """Return times and content of the first rain column of a station; the first column counts seconds since 1970."""
    with path.open(encoding="utf-8", errors="replace", newline="") as lines:
        head = next(csv.reader(lines))
    rain = next((name for name in head if "rain" in name.lower()), None)
    if rain is None:
        return None
    table = pd.read_csv(path, usecols=[head[0], rain], na_values=["NaN"]).apply(pd.to_numeric, errors="coerce").dropna()
    return _pair(table[head[0]].to_numpy(float), table[rain].to_numpy(float))


def _pair(seconds: Floats, shown: Floats) -> tuple[Integers, Floats] | None:
    if len(shown) < 2:
        return None
    order = np.argsort(seconds, kind="stable")
    at_ns = (seconds[order] * 1e9).astype(np.int64)
    once = np.append(True, np.diff(at_ns) > 0)
    return at_ns[once], shown[order][once]
