"""Questions of station networks that are filled in, for people without CQL; each writes a continuous query."""

from collections.abc import Container
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from hypergrid.core.units import is_known_counter
from hypergrid.query import OpenArchive


@dataclass(frozen=True)
class FormField:
    """Number that is filled in."""

    name: str
    label: str
    first: float
    """Value that the form begins with."""
    unit: str = ""
    is_whole: bool = False
    """Whether only whole numbers are taken."""


@dataclass(frozen=True)
class Form:
    """Question with numbers to fill in, and the query that it writes."""

    name: str
    title: str
    fields: tuple[FormField, ...]
    needs: tuple[str, ...]
    """Streams and relations that an archive must have."""
    text: str
    """The query, with the name of each field in braces, and conditions of the archive in double ones."""
    days: int = 1
    """Shortest stretch that it can answer [days]."""


MISSED: Final = 3
"""Readings that a station misses before it is silent, at least."""

FORMS: Final = (
    Form(
        "silent",
        "Stations that fall silent together",
        (
            FormField("silent", "Stations, at least", 3, is_whole=True),
            FormField("gap", "Silent for", 30, "minutes", is_whole=True),
        ),
        ("readings",),
        """Select count(distinct d.station) as silent
From Dstream(Select distinct station From readings [Range {gap} Minutes]) [Range 10 Minutes] d
Having count(distinct d.station) >= {silent}""",
    ),
    Form(
        "stuck",
        "Sensors that are stuck",
        (FormField("stuck", "Equal values in a row", 30, is_whole=True),),
        ("readings",),
        # Suspect readings are let in: the quality tests doubt those that are looked for. Nothing moves in dry weather,
        # by night and in a calm, and saturated air stays so.
        """Select station, variable, series
From readings [Partition By series Rows {stuck} Where flag < 9]
Where value <> 0{{at_rest}}
Group By station, variable, series
Having count(distinct value) = 1 and count(*) = {stuck}""",
    ),
    Form(
        "rain",
        "Much rain in an hour",
        (FormField("rain", "Rain of an hour above", 2, "mm"),),
        ("rain",),
        """Select station, sum(mm) as mm
From rain [Range 1 Hour Slide 5 Minutes]
Group By station Having sum(mm) > '{rain} mm'""",
    ),
    Form(
        "drift",
        "A thermometer that drifts, within a month",
        (FormField("drift", "Drifts by more than", 0.25, "K"), FormField("km", "From neighbours within", 10, "km")),
        ("air_temperature", "stations", "neighbours"),
        # By night cold air lies in hollows; hours are those of the sun. A week's median does without single days, three
        # quarters of the neighbours without those that drift themselves. Suspect readings are let in: the quality tests
        # notice drift, too.
        """Create View days As Rstream(
  Select t.station, floor((t.time - '1970-01-01' + 240.0 * s.lon) / 86400) as day, median(t.value) as by_day
  From air_temperature [Range 1 Day Slide 1 Day Where flag < 4] t, stations s
  Where t.station = s.station and (t.time - '1970-01-01' + 240.0 * s.lon) % 86400 Between 36000 And 57600
  Group By t.station, floor((t.time - '1970-01-01' + 240.0 * s.lon) / 86400) Having count(*) >= 5);
Create View weeks As Rstream(
  Select n.station, n.neighbour, median(a.by_day - b.by_day) as apart_k
  From days [Range 7 Days Slide 1 Day] a, neighbours n, days [Range 7 Days Slide 1 Day] b
  Where a.station = n.station and b.station = n.neighbour and a.day = b.day and n.distance_m < 1000 * {km}
  Group By n.station, n.neighbour Having count(*) >= 5);
Select station, median(change_k) as drift_k, count(*) as neighbours
From (Select station, neighbour, last(apart_k) - first(apart_k) as change_k
      From weeks [Range 21 Days Slide 1 Day] Group By station, neighbour) c
Group By station
Having count(*) >= 4 and (quantile(change_k, 0.25) > {drift} or quantile(change_k, 0.75) < -{drift})""",
        days=28,
    ),
)


def list_forms(archive: OpenArchive, names: Container[str]) -> list[Form]:
    """Return the forms whose streams an archive has, fitted to its variables and to the intervals of its readings.

    Parameters
    ----------
    archive
        The archive.
    names
        Names of its streams and relations.
    """
    rest, gap = _write_rest(archive), find_gap(archive)
    return [
        replace(
            form,
            text=form.text.replace("{{at_rest}}", rest),
            fields=tuple(replace(field, first=gap) if field.name == "gap" else field for field in form.fields),
        )
        for form in FORMS
        if all(name in names for name in form.needs)
    ]


def find_gap(archive: OpenArchive) -> int:
    """Return after how long a station is silent [min]: half an hour, or three readings of the slowest series."""
    intervals = [series.interval_s for name in archive.store.variables for series in archive.store.series(name)]
    return max(30, ceil(MISSED * max(intervals, default=0.0) / 60))


def _write_rest(archive: OpenArchive) -> str:
    """Return the condition that leaves out what repeats by nature: counters, and shares of 100 %."""
    counters = [name for name, item in archive.variables.items() if is_known_counter(item)]
    shares = [name for name, item in archive.variables.items() if item.unit == "%"]
    text = f" and variable Not In ({_quote(counters)})" if counters else ""
    return text + (f" and (variable Not In ({_quote(shares)}) or value < 100)" if shares else "")


def _quote(names: list[str]) -> str:
    return ", ".join("'" + name.replace("'", "''") + "'" for name in names)
