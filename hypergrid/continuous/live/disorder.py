"""Heartbeats of a tap: from the stamps of its series, the disorder that is measured, and the time that passes."""

import json
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Final

import numpy as np

from hypergrid.continuous.engine.state import State
from hypergrid.continuous.live.store import LiveOptions
from hypergrid.continuous.live.tap_memory import TapBatch
from hypergrid.continuous.sources.readings import completion_ns
from hypergrid.core.readings import Series
from hypergrid.core.times import SECOND_NS

EPOCH: Final = 1024
"""Elements of a series after which its disorder is measured again; that of the epoch before still counts."""


class _SeriesClock:
    """Greatest instant of a series, and how far later elements lie behind it, in the last one to two epochs."""

    __slots__ = ("before", "count", "disorder", "greatest")

    def __init__(self, tau: int) -> None:
        self.greatest, self.disorder, self.before, self.count = tau, 0, 0, 0

    def save(self) -> tuple[int, int, int, int]:
        return self.greatest, self.disorder, self.before, self.count

    @classmethod
    def load(cls, saved: Sequence[int]) -> "_SeriesClock":
        clock = cls(0)
        clock.greatest, clock.disorder, clock.before, clock.count = saved
        return clock

    def observe(self, tau: int, longest: int) -> None:
        behind = self.greatest - tau
        if behind <= 0:
            self.greatest = tau
        elif self.disorder < behind <= longest:
            # What is farther behind is not waited for anyway.
            self.disorder = behind
        self.count += 1
        if self.count >= EPOCH:
            self.before, self.disorder, self.count = self.disorder, 0, 0


class TapClock:
    """Heartbeat of a query at a tap.

    That of a series is its greatest instant less its disorder; that of the query is the least of all series that are
    awake. While nothing comes, its time goes on with the clock of the tap.

    Parameters
    ----------
    options
        Least disorder, and the time after which a series that is silent is not waited for.
    """

    def __init__(self, options: LiveOptions) -> None:
        self._idle_ns = round(options.idle_s * SECOND_NS)
        self._disorder_ns = round((options.disorder_s or 0.0) * SECOND_NS)
        self._series: dict[Series, _SeriesClock] = {}
        self._newest: tuple[int, int] | None = None
        # How many series there are, and these as text: they seldom change.
        self._listed = (0, "[]")

    def save(self, *, at_once: bool) -> State:
        """Return all that later heartbeats depend on, for `pack_state`."""
        newest = None if self._newest is None else list(self._newest)
        if at_once:
            return {"newest": newest, "series": "[]", "clocks": np.empty((0, 4), np.int64)}
        clocks = np.array([clock.save() for clock in self._series.values()], np.int64).reshape(-1, 4)
        if self._listed[0] != len(self._series):
            listed = [[getattr(series, each.name) for each in fields(series)] for series in self._series]
            self._listed = len(listed), json.dumps(listed)
        return {"newest": newest, "series": self._listed[1], "clocks": clocks}

    def load(self, state: State) -> None:
        """Go on from what was saved."""
        self._newest = None if state["newest"] is None else tuple(state["newest"])
        self._series = {
            Series(*values): _SeriesClock.load(clock)
            for values, clock in zip(json.loads(state["series"]), state["clocks"].tolist(), strict=True)
        }

    def observe(self, batch: TapBatch, variables: Collection[str]) -> None:
        """Take note of the readings of a batch, in order of arrival."""
        for name, (readings, _) in batch.readings.items():
            if name not in variables or not len(readings):
                continue
            shifts = np.array([completion_ns(series) for series in readings.series] or [0], np.int64)
            taus = readings.time_ns + shifts[readings.index]
            for index, tau in zip(readings.index.tolist(), taus.tolist(), strict=True):
                series = readings.series[index]
                known = self._series.get(series)
                if known is None:
                    self._series[series] = _SeriesClock(tau)
                else:
                    known.observe(tau, self._idle_ns)
            newest = int(taus.max())
            if self._newest is None or newest > self._newest[0]:
                self._newest = newest, batch.clock_ns

    def find_heartbeat(self, clock_ns: int, *, at_once: bool) -> int | None:
        """Return the instant before which elements are taken as complete [ns]; None before the first element.

        Parameters
        ----------
        clock_ns
            Time of the tap [ns since 1970 UTC].
        at_once
            Whether to take all that is there, whatever may come late.
        """
        if self._newest is None:
            return None
        newest, arrived_ns = self._newest
        if at_once:
            return newest + 1
        now = newest + max(0, clock_ns - arrived_ns)
        awake = [
            each.greatest - min(max(each.disorder, each.before, self._disorder_ns), self._idle_ns)
            for each in self._series.values()
            if each.greatest > now - self._idle_ns
        ]
        return min([*awake, now - self._disorder_ns]) if awake else now - self._idle_ns
