"""Kriging many slices of one network through the public interface, beside PyKrige's C backend (`kriging_peer.py`).

Each figure is the median of interleaved pairs with their range. A figure is *warm* where the process has kriged this
network before, so that weights may be kept and kernels are loaded; *cold weights* where what was kept is dropped before
each call; *first call* in a fresh process, with what numba compiled on disk, or without it.
"""

import gc
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from tests.bench import kriging_growth
from tests.bench.kriging_agreement import agreement
from tests.bench.kriging_cases import CASES as SIZES
from tests.bench.kriging_cases import Case, masks, network
from tests.bench.kriging_figures import COLUMNS, Figure, Tell, Timings, faster, interleaved, level, machine, slower
from tests.bench.kriging_fresh import fresh
from tests.bench.kriging_ours import all_slices, all_variances, forget, kernel, time_mean
from tests.bench.kriging_peer import peer_slice

IDLE_S = 3.0
"""Rest after which a virtual machine has given its free memory back to its host [s], where it does that at all."""

Works = dict[str, Callable[[int], object]]

CASES = ("ref", "mid", "big", "growth", "all")
"""What can be asked for."""

SHARE_OF_PRODUCT = 0.5
"""Goal: share of the machine's own speed in a product of matrices of the same shapes."""


def measure(
    case: str = "all", *, pairs: int = 5, notify: Tell = lambda _stage, _done: None, sizes: Mapping[str, Case] = SIZES
) -> dict[str, Any]:
    """Return figures, agreement with the peer, and growth.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Pairs that a median is of.
    tell
        Told how far it is.
    sizes
        The cases' sizes, smaller ones in tests.
    """
    result: dict[str, Any] = {
        "peer": f"PyKrige {version('pykrige')}, C backend, one call a slice with the stations that report",
        "pairs": pairs,
        "machine": machine(),
        "cases": {},
    }
    for name, works in MEASURES.items():
        if case in (name, "all"):
            size = sizes[name]
            readings = network(size)
            figures = works(size, readings, pairs, notify)
            result["cases"][name] = {
                "case": size.describe(),
                "masks": masks(readings),
                "figures": [figure.to_json() for figure in figures],
                "differences": agreement(size, readings, notify=notify),
            }
    if case in ("growth", "all"):
        result["growth"] = kriging_growth.measure(notify=notify)
    return result


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return what `measure` returned as tables: title, columns, rows."""
    shown: list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]] = []
    for name, part in measured["cases"].items():
        figures = [Figure.from_json(row) for row in part["figures"]]
        told = next((figure.extrapolated_from for figure in figures if figure.extrapolated_from), None)
        title = f"{name}: {part['case']}, {part['masks']} masks" + (f"; PyKrige on {told}" if told else "")
        shown.append((title, COLUMNS, [figure.row() for figure in figures]))
        differences = [(row["name"], row["greatest"], row["goal"], row["met"]) for row in part["differences"]]
        title = f"{name}: greatest differences from PyKrige"
        shown.append((title, ("what", "greatest", "goal: at most", "met"), differences))
    if "growth" in measured:
        shown += kriging_growth.tables(measured["growth"])
    return shown


def _ref(case: Case, readings: xr.DataArray, pairs: int, notify: Tell) -> list[Figure]:
    evaluate = kernel(case, readings)
    works: Works = {
        "all slices": lambda _: all_slices(case, readings),
        "time mean": lambda _: time_mean(case, readings),
        "kernel": lambda _: evaluate(),
        "peer": lambda _: [peer_slice(case, readings, number) for number in range(case.slices)],
    }
    goals = {"all slices": 30.0, "time mean": 60.0, "kernel": 300.0}
    warm, cold = _warm_and_cold(works, pairs, notify=notify, stage="ref")
    figures = [faster(f"{name}, warm", warm[name], warm["peer"], goal=goal) for name, goal in goals.items()]
    figures += [faster(f"{name}, cold weights", cold[name], cold["peer"]) for name in goals]
    return figures + _first_calls(case, ("all_slices", "time_mean"), warm["peer"])


def _mid(case: Case, readings: xr.DataArray, pairs: int, notify: Tell) -> list[Figure]:
    peers = _peers(case, readings)
    quick: Works = {
        "all slices": lambda _: all_slices(case, readings),
        "peer": peers["peer"],
        "time mean": lambda _: time_mean(case, readings),
        **_products(case),
    }
    # By themselves: what they hold and leave behind would fall on the quick ones.
    slow: Works = {
        "values": quick["all slices"],
        "variances": lambda _: all_variances(case, readings),
        "k nearest": lambda _: all_slices(case, readings, neighbours=case.neighbours),
        "peer, k nearest": peers["peer, k nearest"],
    }
    cold: Works = {f"{name}, cold": _forgetful(quick[name]) for name in ("all slices", "time mean")}
    one, two = case.output_bytes, 2 * case.output_bytes
    timed = interleaved(quick, pairs, notify=notify, stage="mid, warm", warm_up=True, held_bytes=one)
    timed |= interleaved(cold, pairs, notify=notify, stage="mid, cold weights", held_bytes=one)
    timed |= interleaved(slow, pairs, notify=notify, stage="mid, variances and k nearest", warm_up=True, held_bytes=two)
    timed |= interleaved(_after_idle(case, readings), pairs, notify=notify, stage="mid, after a rest")
    seconds = _scaled(case, timed)
    values, share = seconds["all slices"], "product of the same matrices / all slices"
    told = _extrapolated(case)
    return [
        faster("all slices, warm", values, seconds["peer"], goal=1000.0, extrapolated=told),
        faster("all slices, cold weights", seconds["all slices, cold"], seconds["peer"], extrapolated=told),
        faster(
            "all slices, free memory back at the host", seconds["all slices, rested"], seconds["peer"],
            extrapolated=told,
        ),
        slower("touching as much memory then", seconds["touch"], seconds["touch again"], what="then / once more"),
        faster("time mean, warm", seconds["time mean"], seconds["peer"], goal=5000.0, extrapolated=told),
        faster("time mean, cold weights", seconds["time mean, cold"], seconds["peer"], extrapolated=told),
        faster(
            f"k = {case.neighbours} nearest, warm", seconds["k nearest"], seconds["peer, k nearest"], goal=30.0,
            extrapolated=told,
        ),
        slower(
            "variances of all masks, warm", seconds["variances"], seconds["values"], goal=30.0,
            what="with variances / all slices",
        ),
        faster(
            "share of a product into new memory", values, seconds["product"], what=share,
            goal=SHARE_OF_PRODUCT,
        ),
        faster(
            "share of a product into old memory", values, seconds["product, old memory"], what=share,
            goal=SHARE_OF_PRODUCT,
        ),
        faster(
            "the same, best of each", [min(values)], [min(seconds["product, old memory"])], what=share,
            goal=SHARE_OF_PRODUCT,
        ),
        *_first_calls(case, ("all_slices", "time_mean"), seconds["peer"], told),
        *_first_calls(case, ("nearest",), seconds["peer, k nearest"], told),
        *_memory(case),
    ]  # fmt: skip


def _big(case: Case, readings: xr.DataArray, pairs: int, notify: Tell) -> list[Figure]:
    works: Works = {
        "k nearest": lambda _: all_slices(case, readings, neighbours=case.neighbours),
        "all stations": lambda _: all_slices(case, readings),
        "peer, k nearest": _peers(case, readings)["peer, k nearest"],
    }
    goals = {"k nearest": 25.0, "all stations": 40.0}
    warm, cold = (_scaled(case, part) for part in _warm_and_cold(works, pairs, notify=notify, stage="big"))
    told = _extrapolated(case)
    figures = []
    for state, seconds in (("warm", warm), ("cold weights", cold)):
        for name, goal in goals.items():
            label = f"{name}, {state}" if name == "k nearest" else f"exact, {name}, {state}"
            figures.append(faster(label, seconds[name], seconds["peer, k nearest"], goal=goal, extrapolated=told))
    return figures + _first_calls(case, ("nearest", "all_slices"), warm["peer, k nearest"], told)


MEASURES: dict[str, Callable[[Case, xr.DataArray, int, Tell], list[Figure]]] = {"ref": _ref, "mid": _mid, "big": _big}
"""How each case is measured."""


def _peers(case: Case, readings: xr.DataArray) -> Works:
    """Return the peer on a few slices, other ones in each round."""
    chosen = np.random.default_rng(1).permutation(case.slices)
    count = case.peer_slices or case.slices

    def work(neighbours: int | None) -> Callable[[int], object]:
        return lambda number: [
            peer_slice(case, readings, int(one), neighbours=neighbours)
            for one in np.take(chosen, np.arange(number * count, (number + 1) * count), mode="wrap")
        ]

    return {"peer": work(None), "peer, k nearest": work(case.neighbours)}


def _scaled(case: Case, seconds: Timings) -> Timings:
    """Return timings with the peer's carried from the slices that it was timed on to all of them."""
    share = case.slices / (case.peer_slices or case.slices)
    return {name: [s * share for s in row] if name.startswith("peer") else row for name, row in seconds.items()}


def _extrapolated(case: Case) -> str | None:
    count = case.peer_slices or case.slices
    if count == case.slices:
        return None
    return f"{count} of {case.slices:,} slices a pair, other ones in each pair, times {case.slices / count:g}"


def _products(case: Case) -> Works:
    """Return the machine's own product of the matrices that the estimates are the product of."""
    random = np.random.default_rng(2)
    left = random.normal(size=(case.slices, case.stations + 1))
    right = random.normal(size=(case.stations + 1, case.side**2))
    kept = np.zeros((case.slices, case.side**2))
    return {"product": lambda _: left @ right, "product, old memory": lambda _: np.matmul(left, right, out=kept)}


def _warm_and_cold(works: Works, pairs: int, *, notify: Tell, stage: str) -> tuple[Timings, Timings]:
    forgetful = {name: work if name.startswith("peer") else _forgetful(work) for name, work in works.items()}
    cold = interleaved(forgetful, pairs, notify=notify, stage=f"{stage}, cold weights", warm_up=True)
    return interleaved(works, pairs, notify=notify, stage=f"{stage}, warm", warm_up=True), cold


def _after_idle(case: Case, readings: xr.DataArray) -> Works:
    """Return all slices, and touching as much memory, after rests in which a host takes free memory back."""

    def touch(_number: int) -> object:
        return np.ones(case.output_bytes // 8)

    return {
        "rest": _rest,
        "all slices, rested": lambda _: all_slices(case, readings),
        "rest again": _rest,
        "touch": touch,
        "touch again": touch,
    }


def _rest(_number: int) -> None:
    time.sleep(IDLE_S)


def _forgetful(work: Callable[[int], object]) -> Callable[[int], object]:
    def anew(number: int) -> object:
        forget()
        return work(number)

    return anew


def _first_calls(case: Case, works: tuple[str, ...], peer: list[float], told: str | None = None) -> list[Figure]:
    gc.collect()
    middle = [float(np.median(peer))]
    figures = []
    for name in works:
        for compiling in (False, True):
            first = fresh(case, name, compiling=compiling).first_s
            label = f"{name.replace('_', ' ')}, first call{', compiling' if compiling else ''}"
            figures.append(faster(label, [first], middle, extrapolated=told))
    return figures


def _memory(case: Case) -> list[Figure]:
    peak = fresh(case, "all_slices").peak_bytes
    if peak is None:
        return []
    return [level("peak memory of all slices", peak / case.output_bytes, what="peak / values of all slices", goal=1.6)]
