"""Large queries: kriging from 11,000 stations and aggregates of 30 million readings, projected and measured.

Each runs in a process of its own, `pairs` times; ratios are of what was projected to what was measured. The archive is
made once, in `build/scale` of the checkout.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench.kriging_figures import Tell, machine
from tests.bench.scale_cases import ARCHIVED, KRIGED, ROOT, SCALED, Scale, Taken, taken

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "needed": ("kriging", "monthly mean"), "networks": tuple(KRIGED), "archives": tuple(ARCHIVED), "all": SCALED,
}  # fmt: skip
CASES: Final = (*GROUPS, *SCALED)
"""What can be asked for: a group, or one query."""
WITHIN: Final = 1.5
"""Factor that what is measured may be from what is projected."""
MOST_BYTES: Final = {"monthly mean": 10**9}
"""What a query may take at most [bytes]."""
COLUMNS: Final = ("query", "projected", "measured", "projected / measured", "goal")


def measure(
    case: str = "needed",
    *,
    pairs: int = 3,
    notify: Tell = lambda _stage, _done: None,
    scale: Scale | None = None,
    folder: Path | None = None,
) -> dict[str, Any]:
    """Return what queries were projected to take, what they took, and the ratios with their range.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Runs of each query.
    tell
        Told how far it is.
    scale
        How large everything is; smaller in tests.
    folder
        Where the archive is made; `build/scale` where absent.
    """
    scale, folder = scale or Scale(), folder or ROOT / "build" / "scale"
    folder.mkdir(parents=True, exist_ok=True)
    names = GROUPS.get(case, (case,))
    rows = []
    for number, name in enumerate(names):
        found = []
        for run in range(pairs):
            notify(name, (number + run / pairs) / len(names))
            found.append(taken(name, folder, scale))
        rows.append(_row(name, found))
    notify("done", 1.0)
    sizes = f"{scale.stations:,} stations to {scale.side} x {scale.side} cells; {scale.readings:,} readings"
    return {"case": sizes, "pairs": pairs, "machine": machine(), "queries": rows}


def _row(name: str, found: Sequence[Taken]) -> dict[str, Any]:
    bytes_ = [one.projected_bytes / one.peak_bytes for one in found if one.peak_bytes]
    seconds = [one.projected_s / one.seconds for one in found]
    peaks = [one.peak_bytes for one in found if one.peak_bytes]
    most = MOST_BYTES.get(name)
    return {
        "name": name,
        "projected_bytes": max(one.projected_bytes for one in found),
        "peak_bytes": max(peaks, default=None),
        "bytes": _range(bytes_),
        "below": None if most is None or not peaks else max(peaks) < most,
        "projected_s": statistics.median(one.projected_s for one in found),
        "seconds": statistics.median(one.seconds for one in found),
        "cpu_s": statistics.median(one.cpu_s for one in found),
        "longest_block_s": max(one.longest_block_s for one in found),
        "longest_pause_s": max(one.longest_pause_s for one in found),
        "time": _range(seconds),
    }


def _range(ratios: Sequence[float]) -> dict[str, Any] | None:
    if not ratios:
        return None
    middle = statistics.median(ratios)
    return {
        "ratio": round(middle, 3),
        "range": [round(min(ratios), 3), round(max(ratios), 3)],
        "met": 1 / WITHIN <= middle <= WITHIN,
    }


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return what `measure` returned as tables: title, columns, rows."""
    memory, times, blocks = [], [], []
    for row in measured["queries"]:
        if row["bytes"] is not None:
            sizes = (f"{row[name] / 2**20:,.0f} MiB" for name in ("projected_bytes", "peak_bytes"))
            memory.append((row["name"], *sizes, *_shown(row["bytes"])))
        took = f"{row['seconds']:.3g} s ({row['cpu_s']:.3g} s of processor)"
        times.append((row["name"], f"{row['projected_s']:.3g} s", took, *_shown(row["time"])))
        blocks.append((row["name"], f"{row['longest_block_s']:.2g} s", f"{row['longest_pause_s']:.2g} s"))
    title = measured["case"]
    return [
        (f"Memory; {title}", COLUMNS, memory),
        (f"Time; {title}", COLUMNS, times),
        (f"Beside others; {title}", ("query", "longest block", "longest pause of another thread"), blocks),
    ]


def _shown(ratio: Mapping[str, Any]) -> tuple[str, str]:
    low, high = ratio["range"]
    spread = f"{ratio['ratio']:.3g} ({low:.3g} to {high:.3g})" if low < high else f"{ratio['ratio']:.3g}"
    return spread, f"within {WITHIN:g}: {'met' if ratio['met'] else 'missed'}"
