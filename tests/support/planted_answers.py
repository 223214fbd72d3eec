"""Judgement of the queries of station networks by what was planted into the sample network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from station_data.faults import Fault
from station_data.network import stations
from station_data.truth import truth

HOUR: Final = pd.Timedelta(hours=1)
RAIN_EVENTS: Final = (
    ("2007-09-23T09:00Z", "2007-09-23T14:00Z"),
    ("2007-09-28T10:00Z", "2007-09-28T16:00Z"),
    ("2007-10-10T10:00Z", "2007-10-10T14:00Z"),
)
"""Events of the sample network's README."""
SITES: Final = {station.id: station for station in stations()}


class Score(NamedTuple):
    """How well alerts answer what was planted."""

    precision: float
    """Share of the alerts that something planted explains."""
    recall: float
    """Share of what was planted that an alert answers."""
    alerts: int
    planted: int

    def __str__(self) -> str:
        return f"precision {self.precision:.3f} of {self.alerts} alerts, recall {self.recall:.3f} of {self.planted}"


def episodes_of(changes: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the spans in which a relation holds a row of each key: the keys, `start` and `end` (NaT: to the end)."""
    spans: list[dict[str, object]] = []
    for key, group in changes.groupby(list(keys), sort=False):
        held = group.groupby("tau")["sign"].sum().cumsum()
        start = None
        for tau, count in held.items():
            if count > 0 and start is None:
                start = tau
            elif count <= 0 and start is not None:
                spans.append({**dict(zip(keys, key, strict=True)), "start": start, "end": tau})
                start = None
        if start is not None:
            spans.append({**dict(zip(keys, key, strict=True)), "start": start, "end": pd.NaT})
    return pd.DataFrame(spans, columns=[*keys, "start", "end"])


def judge(explained: Mapping[int, set[int]], alerts: int, planted: int) -> Score:
    """Return the score of alerts, given the planted events that explain each."""
    right = sum(bool(events) for events in explained.values())
    answered = set().union(*explained.values()) if explained else set()
    return Score(right / max(alerts, 1), len(answered) / max(planted, 1), alerts, planted)


def stamp(seconds: int) -> pd.Timestamp:
    return pd.Timestamp(seconds, unit="s", tz="UTC")


def judge_silence(elements: pd.DataFrame, silences: Sequence[tuple[str, int, int]]) -> Score:
    """Judge stations that fell silent by planted silences: station, first and last second.

    A station is silent half an hour after its last reading, which came at most four minutes before the silence.
    """
    explained: dict[int, set[int]] = {}
    for number, (tau, station) in enumerate(zip(elements["tau"], elements["station"], strict=True)):
        last = tau - HOUR / 2
        explained[number] = {
            index
            for index, (silent, start, _) in enumerate(silences)
            if silent == station and stamp(start) - HOUR / 15 <= last <= stamp(start)
        }
    return judge(explained, len(elements), len(silences))


def judge_stuck(episodes: pd.DataFrame, faults: Sequence[Fault]) -> Score:
    """Judge episodes of equal values, by station and variable, by stuck sensors."""
    explained: dict[int, set[int]] = {}
    for number, row in episodes.iterrows():
        explained[int(str(number))] = {
            index
            for index, fault in enumerate(faults)
            if (fault.station, fault.variable) == (row["station"], row["variable"])
            and stamp(fault.start_s) <= row["start"] <= stamp(fault.end_s)
        }
    return judge(explained, len(episodes), len(faults))


def judge_rain(episodes: pd.DataFrame) -> Score:
    """Judge episodes of heavy rain by catchment; each event counts once in each catchment."""
    catchments = sorted(set(episodes["catchment"]))
    explained: dict[int, set[int]] = {}
    for number, (catchment, start) in enumerate(zip(episodes["catchment"], episodes["start"], strict=True)):
        explained[number] = {index * len(catchments) + catchments.index(catchment) for index in find_events(start)}
    return judge(explained, len(episodes), len(RAIN_EVENTS) * 2)


def judge_rain_of_stations(episodes: pd.DataFrame) -> Score:
    """Judge episodes of heavy rain at stations; an event is answered by any."""
    explained = {number: find_events(start) for number, start in enumerate(episodes["start"])}
    return judge(explained, len(episodes), len(RAIN_EVENTS))


def find_events(start: pd.Timestamp) -> set[int]:
    """Return the rain events in which, or within the hour after which, something began."""
    return {
        index
        for index, (first, last) in enumerate(RAIN_EVENTS)
        if pd.Timestamp(first) <= start <= pd.Timestamp(last) + HOUR
    }


def judge_drift(episodes: pd.DataFrame, faults: Sequence[Fault]) -> Score:
    """Judge stations that are said to drift by the thermometers that do, once they do."""
    drifting = [fault for fault in faults if (fault.kind, fault.variable) == ("drift", "air_temperature")]
    explained = {
        number: {
            index
            for index, fault in enumerate(drifting)
            if fault.station == station and stamp(fault.start_s) <= start <= stamp(fault.end_s)
        }
        for number, (station, start) in enumerate(zip(episodes["station"], episodes["start"], strict=True))
    }
    return judge(explained, len(episodes), len(drifting))


def judge_frost(elements: pd.DataFrame) -> Score:
    """Judge warnings of frost in three hours by the true temperature.

    A warning is right if it freezes within three hours. An onset is a fall below 0 degC after three hours above; it is
    answered if a warning was given in these three hours.
    """
    ahead = np.arange(0, 3 * 3600 + 1, 600) * 10**9
    right = onsets = answered = 0
    start, stop = (pd.Timestamp(bound).value for bound in ("2007-09-20", "2007-10-18"))
    times = np.arange(start, stop, 120 * 10**9)
    for name, site in SITES.items():
        warned = elements.loc[elements["station"] == name, "tau"].astype("int64").to_numpy()
        if len(warned):
            coldest = truth("air_temperature", warned[:, None] + ahead, site.lon, site.lat).min(axis=1)
            right += int((coldest < 0).sum())
        values = truth("air_temperature", times, site.lon, site.lat)
        for at in np.flatnonzero((values[1:] < 0) & (values[:-1] >= 0)) + 1:
            if at >= 90 and (values[at - 90 : at] >= 0).all():
                onsets += 1
                first, last = np.searchsorted(warned, (times[at - 90], times[at]))
                answered += int(last > first)
    return Score(right / max(len(elements), 1), answered / max(onsets, 1), len(elements), onsets)


def cut_rows(folder: Path, outages: Sequence[tuple[str, int, int]]) -> None:
    """Remove the rows of stations from text files: station, first second and end."""
    cut = 0
    for station in {name for name, _, _ in outages}:
        file = folder / "sensorscope" / f"pass-meteo-{station}.txt"
        own = [(start, end) for name, start, end in outages if name == station]
        lines = file.read_text().splitlines(keepends=True)
        kept = [line for line in lines if not any(start <= int(line.split()[7]) < end for start, end in own)]
        cut += len(lines) - len(kept)
        file.write_text("".join(kept))
    assert cut > 0
