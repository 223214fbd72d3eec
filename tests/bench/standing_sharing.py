"""What equal steps save: 200 standing queries from 20 templates, and the 20 alone."""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import hypergrid as hg
from queries.standing.service import StandingQueries
from tests.bench.kriging_figures import Tell
from tests.bench.standing_network import Network, documents
from tests.support.standing_runner import settle

GOAL = 1.3
SIDE = 40


def measure(pairs: int, notify: Tell, *, queries: int = 200, templates: int = 20, side: int = SIDE) -> dict[str, Any]:
    """Return the time on the processor that a slice costs with both sets of queries, alternately, a median of pairs.

    All that the runner does for a slice is counted: what it touches, computing, judging, and what is written down.
    """
    with tempfile.TemporaryDirectory() as folder:
        network = Network(Path(folder) / "archive")
        network.create()
        opened = hg.open(Path(folder) / "archive")
        sets = {"templates": documents(templates, templates=templates, side=side)}
        sets["queries"] = documents(queries, templates=templates, side=side)
        seconds: dict[str, list[float]] = {name: [] for name in sets}
        told = {}
        standing = {}
        for name, listed in sets.items():
            standing[name] = StandingQueries(opened, clock=time.time_ns, folder=Path(folder) / name)
            for document in listed:
                standing[name].add(document)
            settle(standing[name].runner)
        for number in range(pairs + 1):
            network.add()
            for name, one in standing.items():
                notify(f"{len(sets[name])} standing queries", number / (pairs + 1))
                begun = time.process_time()
                settle(one.runner)
                if number:
                    seconds[name].append(time.process_time() - begun)
        for name, one in standing.items():
            told[name] = one.statistics()
            one.stop()
        assert all(told[name].evaluations >= len(sets[name]) * (pairs + 1) for name in sets)
    ratio = float(np.median(np.array(seconds["queries"]) / np.array(seconds["templates"])))
    many = told["queries"]
    return {
        "rows": [
            {
                "queries": queries, "templates": templates, "a slice [s]": float(np.median(seconds["queries"])),
                "templates alone [s]": float(np.median(seconds["templates"])), "ratio": ratio, "goal": GOAL,
                "met": ratio <= GOAL, "steps asked": many.steps_asked, "steps run": many.steps_run,
                "saved [s]": many.saved_s, "planning [s]": many.planning_s / (pairs + 1),
                "scheduling": many.scheduling_share,
            }
        ]
    }  # fmt: skip
