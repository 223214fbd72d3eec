"""Standing queries live: the sample network at 60 times real time, without overload and at one of 1.5."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

import hypergrid as hg
from queries.standing.service import StandingQueries
from queries.standing.statistics import StandingUpdate
from tests.bench.kriging_figures import Tell
from tests.bench.standing_network import KINDS, SLICE_S, Network, documents, feed
from tests.support.standing_runner import is_fresh, settle

SPEED = 60.0
"""Times real time: a slice each two seconds."""
FRESH_SLICES = 3.0
SHARE_OF_BOUND = 0.9
WARM_SLICES = 12
"""Slices that are there before: each query is computed for all of them at first."""
LARGEST_SIDE = 400
"""Cells along a map's edge, at most."""
TRIES = 3
"""Sides that are tried to find a load."""
SCHEDULING = 0.02


def measure(_pairs: int, notify: Tell, *, queries: int = 200, slices: int = 60) -> dict[str, Any]:
    """Return how fresh each class was, at a load of a half and at an overload of 1.5."""
    rows = []
    for load in (0.5, 1.5):
        notify(f"live, load {load:g}", 0.0)
        rows.append(_run(load, queries, slices))
        notify(f"live, load {load:g}", 1.0)
    return {"rows": rows, "slices": slices}


def _run(load: float, queries: int, slices: int) -> dict[str, Any]:
    period_s = SLICE_S / SPEED
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive"
        network = Network(path)
        network.create(WARM_SLICES)
        opened = hg.open(path)
        side, cost_s = _side(opened, network, Path(folder), queries, load * period_s, above=load > 1)
        first = network.slices
        standing = StandingQueries(opened, clock=time.time_ns, folder=Path(folder) / "run")
        listed = documents(queries, templates=queries, side=side)
        for document in listed:
            standing.add(document)
        settle(standing.runner)
        network.add()
        settle(standing.runner)
        before = standing.statistics()
        updates: list[StandingUpdate] = []
        standing.runner.listen(updates.append)
        standing.start()
        began_s, spent_s = time.monotonic(), time.process_time()
        feeding = feed(path, first + 1, slices, period_s)
        feeding.wait()
        ended = standing.statistics()
        processors = (time.process_time() - spent_s) / (time.monotonic() - began_s)
        deadline = time.monotonic() + 60
        while not is_fresh(standing.runner) and time.monotonic() < deadline:
            time.sleep(0.1)
        fresh_s = time.monotonic() - (deadline - 60)
        standing.runner.stop()
        busy_s, planning_s, scheduling_s = (
            getattr(ended, name) - getattr(before, name) for name in ("busy_s", "planning_s", "scheduling_s")
        )
        bound = bound_of(standing, listed, capacity_s=period_s)
        during = updates[: ended.evaluations - before.evaluations]
        evaluated = Counter(one.name for one in during)
        reached = weighted(evaluated, listed, slices)
        kinds = {one["name"]: one["class"] for one in listed}
        delays: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for one in during:
            delays[kinds[one.name]].append(one.behind_s)
        oldest_s = max([ended.oldest_s, *delays["archive"]])
        standing.stop()
    ages = {kind: float(np.quantile(found, 0.99)) / period_s for kind, found in delays.items() if found}
    return {
        "load": load, "side": side, "measured load": cost_s / period_s,
        "evaluations": len(during), "postponed": ended.postponed - before.postponed,
        **{f"{kind} p99 [slices]": age for kind, age in ages.items()},
        "oldest archive query [s]": oldest_s, "stated bound [s]": ended.longest_wait_s,
        "weighted updates a slice": reached, "bound": bound, "share": reached / bound,
        "fresh after the last slice [s]": fresh_s, "scheduling": scheduling_s / busy_s,
        "planning": planning_s / busy_s, "busy a slice [s]": busy_s / slices,
        "processors used": processors,
        "met": bool(
            ages["alert"] <= FRESH_SLICES and oldest_s <= ended.longest_wait_s + period_s
            and scheduling_s < SCHEDULING * busy_s
            and (cost_s >= load * period_s or load < 1)
            and (reached >= SHARE_OF_BOUND * bound if load > 1 else max(ages.values()) <= FRESH_SLICES)
        ),
    }  # fmt: skip


def _side(
    opened: hg.OpenArchive, network: Network, folder: Path, queries: int, wanted_s: float, *, above: bool
) -> tuple[int, float]:
    """Return the side of the maps with which a slice costs so many seconds or little more, and what it costs [s].

    By halving the number of cells between two sides; where `above` is false, so many seconds or little less. The cost
    jumps where the kriging weights of all maps no longer fit into what is kept of them, so not every cost is there.
    """
    costs = {side: _cost(opened, network, folder / f"side{side}", queries, side) for side in (20, 140)}
    for _ in range(TRIES):
        low = max((side for side in costs if costs[side] < wanted_s), default=2)
        high = min((side for side in costs if costs[side] >= wanted_s), default=LARGEST_SIDE)
        side = round(((low**2 + high**2) / 2) ** 0.5)
        if side in costs:
            break
        costs[side] = _cost(opened, network, folder / f"side{side}", queries, side)
    if above:
        best = min((side for side in costs if costs[side] >= wanted_s), default=max(costs))
    else:
        best = max((side for side in costs if costs[side] <= wanted_s), default=min(costs))
    return best, costs[best]


def _cost(opened: hg.OpenArchive, network: Network, folder: Path, queries: int, side: int) -> float:
    """Return what a slice costs all queries with maps of a side [s], on a machine that is idle otherwise."""
    standing = StandingQueries(opened, clock=time.time_ns, folder=folder)
    for document in documents(queries, templates=queries, side=side):
        standing.add(document)
    settle(standing.runner)
    costs_s = settle_slices(network, standing, time.perf_counter)
    standing.stop()
    # The first slice after all are new has caches to fill.
    return float(np.median(costs_s[1:]))


def settle_slices(network: Network, standing: StandingQueries, clock: Callable[[], float]) -> list[float]:
    """Commit four slices, and return what each costs until no query lacks it [s of the clock]."""
    costs_s = []
    for _ in range(4):
        network.add()
        begun_s = clock()
        settle(standing.runner)
        costs_s.append(clock() - begun_s)
    return costs_s


def weighted(evaluated: Mapping[str, int], listed: list[dict[str, Any]], slices: int) -> float:
    return sum(min(evaluated.get(one["name"], 0) / slices, 1.0) * one["weight"] for one in listed)


def bound_of(standing: StandingQueries, listed: list[dict[str, Any]], *, capacity_s: float) -> float:
    """Return the greatest weighted update frequency that any schedule has in so much time a slice [s].

    A query is updated in a share f of the slices, a step runs in a share g of them, no less than any query that needs
    it; all steps together take no more time than there is (fractions allowed, so this is above what can be reached).
    """
    known = standing.runner._states
    names = {name: tuple(step.token for step in one.steps) for name, one in known.items()}
    steps = list(dict.fromkeys(step for listed_ in names.values() for step in listed_))
    costs = np.array([standing.runner._graph.cost(step).seconds for step in steps])
    queries = [one for one in listed if one["name"] in names]
    weights = np.array([one["weight"] for one in queries])
    place = {step: len(queries) + number for number, step in enumerate(steps)}
    rows, columns, values = [], [], []
    for number, one in enumerate(queries):
        for step in names[one["name"]]:
            row = len(rows) // 2
            rows += [row, row]
            columns += [number, place[step]]
            values += [1.0, -1.0]
    count = len(rows) // 2
    needs = sparse.csr_array((values, (rows, columns)), (count, len(place) + len(queries)))
    time_row = sparse.csr_array(np.concatenate([np.zeros(len(queries)), costs])[np.newaxis])
    found = linprog(
        np.concatenate([-weights, np.zeros(len(place))]), A_ub=sparse.vstack([needs, time_row]),
        b_ub=np.concatenate([np.zeros(count), [capacity_s]]), bounds=(0, 1),
    )  # fmt: skip
    return float(-found.fun)
