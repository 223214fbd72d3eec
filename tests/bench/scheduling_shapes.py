"""What the figures of the thesis show, asked of ours: each a record that holds or does not, with the reason."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.bench.scheduling_cases import LATE, SWEEPS, THESIS, Late, Sizes
from tests.bench.scheduling_figures import BATCHINGS, Scores, interval

PAIRS = (("opt-profit", "basic"), ("opt-profit+dd", "basic+dd"), ("opt-profit+pd", "basic+pd"))
BY_FAR = 0.05
"""What the thesis calls significant: 5 % of QoS."""
BURSTY = 0.8
"""Bias from which arrivals count as bursts."""

REASONS: Mapping[str, str] = {
    "figure 4.8*+dd)": "a batch of a whole burst, some 100 tuples, has no laxity for all of them, so "
    "that line 3 of algorithm 6 removes it as a whole; of batches of a fixed size few are removed",
    "figure 4.8*: batching beats none by far*": "handlers cost too little for it",
    "figure 4.8*: intelligent*": "at this load batches of a fixed size are as good",
    "*best under bursts, late dropped by all": "once nobody works on what has expired, taking the densest alone has "
    "nothing that a last ditch could save, and a last ditch lets less dense pieces pass",
    "figure 4.10: *more*": "densest first weighs at every choice, deadlines first at the last ditch alone: both gain",
    "figure 4.13: QoS rises*": "a burst is more than one processor does within validities of 4 to 8 s, whatever the "
    "order; the thesis's inputs must have been far below what its machine could do",
    "figure 5.13: opt-profit updates alerts more than basic": "both update alerts at nearly every slice; what differs "
    "is who gets the rest",
}
"""Why a shape does not hold here, by a pattern of its name; the first that fits."""


def record(shape: str, differences: NDArray[np.float64], *, above: float = 0.0) -> dict[str, Any]:
    """Return whether the 95 % interval of paired differences lies above a bound.

    Parameters
    ----------
    shape
        What is claimed.
    differences
        One a seed, shape (seeds,).
    above
        The bound.
    """
    low, high = interval(differences)
    holds = bool(low > above)
    reason = next((text for pattern, text in REASONS.items() if fnmatchcase(shape, pattern)), "")
    found = f"mean difference {np.mean(differences):+.4f}, needed: its whole interval above {above:g}"
    chance = "the seeds differ too much to tell" if high > above else "it is the other way round"
    told = "" if holds else f"{found}; {reason or chance}"
    return {"shape": shape, "holds": holds, "interval": [round(low, 5), round(high, 5)], "reason": told}


def of_sweeps(scores: Mapping[str, Mapping[Late, Mapping[str, Scores]]], sizes: Sizes) -> list[dict[str, Any]]:
    """Return the shapes of figures 4.9 to 4.13."""
    thesis = {name: by_late[LATE[0]] for name, by_late in scores.items()}
    shapes = [
        record(
            f"{'figure ' * figure[0].isdigit()}{figure}: {ours} at least {theirs}",
            np.mean(found[ours] - found[theirs], axis=0),
        )
        for figure, found in thesis.items()
        for ours, theirs in PAIRS
    ]
    bursts = [place for place, bias in enumerate(SWEEPS["4.13"].cut(sizes.values).points) if bias >= BURSTY]
    for late in LATE:
        found = {name: scores["4.13"][late][name][bursts].mean(axis=0) for name in THESIS}
        best = max((name for name in THESIS if name != "opt-profit+pd"), key=lambda name: float(found[name].mean()))
        shapes.append(
            record(f"figure 4.13: opt-profit+pd best under bursts, late {late}", found["opt-profit+pd"] - found[best])
        )
    for ending in ("+dd", "+pd"):
        for name in ("basic", "opt-profit"):
            urgent = thesis["4.12"][name + ending] - thesis["4.12"][name]
            shapes.append(record(f"figure 4.12: {name}{ending} loses less than {name}", urgent[-1] - urgent[0]))
    for name in ("basic", "opt-profit"):
        own, greedy = thesis["4.10"][f"{name}+dd"], thesis["4.10"][name]
        shapes.append(record(f"figure 4.10: {name}+dd gains with weight variance", own[-1] - own[0]))
        shapes.append(
            record(
                f"figure 4.10: {name}+dd gains more with weight variance than {name}",
                own[-1] - own[0] - (greedy[-1] - greedy[0]),
            )
        )
    rising = thesis["4.13"]["opt-profit+pd"]
    return [*shapes, record("figure 4.13: QoS rises with bias (opt-profit+pd)", rising[-1] - rising[0])]


def of_batching(scores: Mapping[str, Mapping[str, Scores]]) -> list[dict[str, Any]]:
    """Return the shapes of figure 4.8 at each cost of handlers."""
    position = {name: number for number, name in enumerate(BATCHINGS)}
    shapes = []
    for cost, by_strategy in scores.items():
        figure = f"figure 4.8, cost of handlers {cost}"
        for name, found in by_strategy.items():
            ours = found[position["intelligent"]]
            shapes.append(record(f"{figure}: batching beats none by far ({name})", ours - found[0], above=BY_FAR))
            shapes += [
                record(f"{figure}: intelligent batching beats {fixed} ({name})", ours - found[position[fixed]])
                for fixed in ("fixed length", "fixed interval")
            ]
        early = [found[position["intelligent"]] - found[position[BATCHINGS[-1]]] for found in by_strategy.values()]
        shapes.append(record(f"{figure}: to release early what is there pays", np.mean(early, axis=0)))
    return shapes


def of_updates(scores: Mapping[str, Scores]) -> list[dict[str, Any]]:
    """Return the shapes of figures 5.13 and 5.14."""
    alert, archive, weighted = 0, 2, 3
    best = scores["opt-profit"]
    others = ("basic", "round-robin")
    told = "figure 5.14: opt-profit has a higher weighted update frequency than"
    return [
        *(record(f"{told} {name}", best[weighted] - scores[name][weighted]) for name in others),
        *(
            record(f"figure 5.13: opt-profit updates alerts more than {name}", best[alert] - scores[name][alert])
            for name in others
        ),
        record("figure 5.13: opt-profit updates the archive less than round-robin",
               scores["round-robin"][archive] - best[archive]),
    ]  # fmt: skip
