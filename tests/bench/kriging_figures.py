"""Figures of the benchmark: medians of interleaved pairs with their range, a goal, and whether it is met."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

Tell = Callable[[str, float], None]
"""Told a stage's name and the fraction of it that is done."""

Timings = dict[str, list[float]]
"""Seconds of each round, by name of the work."""


COLUMNS = ("figure", "here [s]", "there [s]", "ratio", "goal")
"""Of a table of figures."""


def machine() -> dict[str, Any]:
    """Return what figures were measured on."""
    return {"cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}


@dataclass(frozen=True)
class Figure:
    """One measured figure."""

    name: str
    hypergrid_s: float | None
    """Median [s]; None where the figure is no time."""
    peer_s: float | None
    """Median of what it is compared with [s]."""
    ratio: float
    """Median of the ratios of the pairs."""
    ratio_range: tuple[float, float]
    """Least and greatest of them."""
    what: str
    """What is divided by what."""
    goal: float | None = None
    goal_is: Literal["at least", "at most"] = "at least"
    extrapolated_from: str | None = None
    """What the peer was timed on, where that was not all of it."""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        if self.goal is None:
            return None
        return self.ratio >= self.goal if self.goal_is == "at least" else self.ratio <= self.goal

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Figure":
        """Return the figure of a JSON form."""
        return cls(
            **{**{name: row[name] for name in cls.__dataclass_fields__}, "ratio_range": tuple(row["ratio_range"])}
        )

    def row(self) -> tuple[object, ...]:
        """Return the figure as a row of a table; columns are `COLUMNS`."""
        low, high = self.ratio_range
        spread = f"{self.ratio:.3g} ({low:.3g} to {high:.3g})" if low < high else f"{self.ratio:.3g}"
        sign = ">=" if self.goal_is == "at least" else "<="
        goal = "" if self.goal is None else f"{sign} {self.goal:g}: {'met' if self.met else 'missed'}"
        times = tuple("" if s is None else f"{s:.3g}" for s in (self.hypergrid_s, self.peer_s))
        return self.name, *times, spread, goal

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, numbers to four digits."""
        plain = {name: _short(value) for name, value in asdict(self).items()}
        return {**plain, "ratio_range": [_short(value) for value in self.ratio_range], "met": self.met}


REST_S = 0.1
"""Pause before each work [s]: threads of linear algebra go on running for some 26 ms after a product."""


def settle(held_bytes: int) -> None:
    """Put the machine into one state before each work, ours and the peer's alike.

    A virtual machine may give memory that is free for two seconds back to its host (free page reporting). To touch 320
    MB of it again took 0.3 to 0.6 s where it took 0.04 s right after it was freed: more than what is measured, and
    charged to whoever comes after a long work. So the memory is fetched before the clock starts.

    Parameters
    ----------
    held_bytes
        What the greediest work holds at once.
    """
    time.sleep(REST_S)
    np.ones(held_bytes // 8)


def interleaved(
    works: Mapping[str, Callable[[int], object]],
    rounds: int,
    *,
    notify: Tell,
    stage: str,
    warm_up: bool = False,
    held_bytes: int = 0,
) -> Timings:
    """Time each work once a round, one after the other, so that whatever else the machine does falls on all of them.

    Parameters
    ----------
    works
        Called with the number of the round (-1 to warm up); what they return is dropped before the next is timed.
    rounds
        How many.
    tell, stage
        Who is told how far it is, under which name.
    warm_up
        Whether each is called once before, untimed.
    held_bytes
        What the greediest of them holds at once, as for `settle`; works of a few milliseconds leave it at none and
        follow one another at once, as a rest would cool the caches.
    """
    seconds: Timings = {name: [] for name in works}
    first = -1 if warm_up else 0
    steps = (rounds - first) * len(works)
    for done, (number, name) in enumerate((n, name) for n in range(first, rounds) for name in works):
        notify(stage, done / steps)
        if held_bytes:
            settle(held_bytes)
        taken = seconds_of(works[name], number)
        if number >= 0:
            seconds[name].append(taken)
    notify(stage, 1.0)
    return seconds


def seconds_of(work: Callable[[int], object], number: int = 0) -> float:
    """Return how long one call takes [s]."""
    begun = time.perf_counter()
    work(number)
    return time.perf_counter() - begun


def faster(
    name: str,
    ours: Sequence[float],
    peer: Sequence[float],
    *,
    goal: float | None = None,
    what: str = "peer / hypergrid",
    extrapolated: str | None = None,
) -> Figure:
    """Return how many times faster than the peer, by the pairs of a run."""
    return _ratio(name, ours, peer, _divided(peer, ours), what, goal, "at least", extrapolated)


def slower(name: str, ours: Sequence[float], base: Sequence[float], *, what: str, goal: float | None = None) -> Figure:
    """Return how many times longer than something else of this program."""
    return _ratio(name, ours, base, _divided(ours, base), what, goal, "at most", None)


def level(name: str, value: float, *, what: str, goal: float) -> Figure:
    """Return a figure that is no time and stays below its goal."""
    return Figure(name, None, None, value, (value, value), what, goal, "at most")


def _divided(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]


def _ratio(
    name: str,
    ours: Sequence[float],
    other: Sequence[float],
    ratios: Sequence[float],
    what: str,
    goal: float | None,
    goal_is: Literal["at least", "at most"],
    extrapolated: str | None,
) -> Figure:
    middle = statistics.median
    return Figure(
        name, middle(ours), middle(other), middle(ratios), (min(ratios), max(ratios)), what, goal, goal_is, extrapolated
    )


def _short(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value
