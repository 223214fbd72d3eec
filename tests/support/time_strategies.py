"""Time cells for random questions: which of them fit over the cells before."""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from hypothesis import strategies as st

from hypergrid.core.times import SECOND_NS, format_instant, parse_duration
from tests.support.networks import PACES

ZURICH: Final = "Europe/Zurich"
HOUR, DAY = 3_600, 86_400


@dataclass(frozen=True)
class Spec:
    """Time cells as a question says them, and what may be made of them."""

    json: Any
    kind: Literal["even", "instants", "bins", "again"] = "even"
    step: int = 0
    """From cell to cell [s]."""
    length: int = 0
    """Of a cell [s]."""
    grain: int | None = None
    """All edges lie on multiples of it [s]; None: they may lie anywhere."""
    above: tuple[str, ...] = ()
    """Names of the cells that are unions of these, beside "all"."""
    is_of_all: bool = False
    """Whether cells are of all times that there are, so that sources of other times do not have them."""

    @classmethod
    def of(cls, duration: str) -> "Spec":
        """Return cells that touch."""
        length = parse_duration(duration) // SECOND_NS
        return cls(duration, step=length, length=length, grain=length)

    @property
    def is_lasting(self) -> bool:
        """Whether values stand for a time."""
        return self.kind in ("even", "bins")


ALL: Final = Spec("all", grain=None, is_of_all=True)
DURATIONS: Final = {"minutes": (240, 300, 600, 1200), "hours": (HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, DAY),
                    "days": (DAY // 4, DAY // 2, DAY, 2 * DAY, 10 * DAY)}  # fmt: skip
IN_TIME: Final = {
    "minutes": ((60, 90, 300, 600), (180, 420, 720, 3600)),
    "hours": ((HOUR // 2, HOUR, 5400, 3 * HOUR), (2 * HOUR, 5 * HOUR, 9 * HOUR, 2 * DAY)),
    "days": ((3 * HOUR, DAY // 4, DAY), (7 * HOUR, 13 * HOUR, 30 * HOUR, 10 * DAY)),
}
"""Steps and longest gaps [s]."""


def _again(name: str, grain: int | None, **more: Any) -> Spec:  # noqa: ANN401 - JSON
    json = {"periodic": name, **more} if more else name
    return Spec(json, "again", grain=grain, is_of_all=True)


def _bins(json: Any, grain: int, *above: str) -> Spec:  # noqa: ANN401 - JSON
    return Spec(json, "bins", grain=grain, above=above)


NAMED: Final[dict[str, Spec]] = {
    "parts of an hour": _again("10min", 600, within="1h"),
    "parts of an hour, shifted": _again("20min", 300, within="1h", phase="5min"),
    "hours": _again("hour_of_day", HOUR),
    "hours in Zurich": _again("hour_of_day", HOUR, zone=ZURICH),
    "hours of the sun": _again("hour_of_day", None, solar=True),
    "quarters of a day": _again("6h", HOUR, within="1day", phase="3h"),
    "thirds of a day in Zurich": _again("8h", HOUR, within="1day", zone=ZURICH),
    "days of the week": _again("day_of_week", DAY),
    "days of the week in Zurich": _again("day_of_week", HOUR, zone=ZURICH),
    "days of the year": _again("day_of_year", DAY),
    "months of the year": _again("month_of_year", DAY),
    "months of the year in Zurich": _again("month_of_year", HOUR, zone=ZURICH),
    "seasons of the year": _again("season_of_year", DAY),
    "days from six": Spec({"step": "1day", "offset": "6h"}, step=DAY, length=DAY, grain=6 * HOUR),
    "halves of an hour from seven": Spec({"step": "30min", "offset": "7min"}, step=1800, length=1800, grain=60),
    "days in Zurich": _bins({"step": "1day", "zone": ZURICH}, HOUR, "months in Zurich", "days of the week in Zurich",
                            "months of the year in Zurich"),
    "two days in Zurich": _bins({"step": "2day", "zone": ZURICH}, HOUR),
    "ten days in Zurich from six": _bins({"step": "10day", "zone": ZURICH, "offset": "6h"}, HOUR),
    "months": _bins("month", DAY, "seasons", "years", "hydrological years", "years from November",
                    "months of the year", "seasons of the year"),
    "months in Zurich": _bins({"step": "month", "zone": ZURICH}, HOUR, "months of the year in Zurich",
                              "years from December in Zurich"),
    "seasons": _bins("season", DAY, "seasons of the year"),
    "years": _bins("year", DAY),
    "hydrological years": _bins("hydrological_year", DAY),
    "years from November": _bins({"hydrological_year": 11}, DAY),
    "years from December in Zurich": _bins({"hydrological_year": 12, "zone": ZURICH}, HOUR),
    "edges": Spec(None, "bins"),
}  # fmt: skip
"""Kinds of time cells that have a name here, for all paces; those of given edges depend on the pace."""

OFTEN: Final[dict[str, tuple[str, ...]]] = {
    "minutes": ("parts of an hour", "parts of an hour, shifted", "hours", "hours of the sun", "edges", "edges",
                "halves of an hour from seven", "days in Zurich", "months"),
    "hours": ("hours", "hours in Zurich", "hours of the sun", "quarters of a day", "thirds of a day in Zurich",
              "days of the week", "days of the week in Zurich", "days in Zurich", "days in Zurich",
              "two days in Zurich", "days from six", "months in Zurich", "months", "edges", "seasons"),
    "days": ("months", "months", "seasons", "years", "hydrological years", "years from November",
             "years from December in Zurich", "months of the year", "months of the year in Zurich",
             "seasons of the year", "days of the year", "months in Zurich", "ten days in Zurich from six", "edges"),
}  # fmt: skip
"""Which of them a network's pace makes worth asking for."""


@st.composite
def durations(draw: st.DrawFn, pace: str, before: Spec | None) -> Spec:
    """Return even cells over what was before, or all of it: touching, sliding or with gaps."""
    if before is not None and before.kind == "bins":
        return ALL
    if before is None or before.kind == "instants":
        unit = draw(st.sampled_from(DURATIONS[pace]))
    elif before.json == "all" or before.json != "all" and isinstance(before.json, dict) and "offset" in before.json:
        return ALL
    elif before.length > before.step:
        unit = before.step * draw(st.integers(1, 2))
        length = before.length + before.step * draw(st.integers(0, 2))
        return _sliding(unit, length)
    else:
        unit = before.step * draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["touching", "touching", "touching", "sliding", "gaps", "all"]))
    if kind == "all":
        return ALL
    if kind == "touching":
        return Spec.of(f"{unit}s")
    times = draw(st.integers(2, 3))
    return _sliding(unit, unit * times) if kind == "sliding" else _sliding(unit * times, unit)


def _sliding(step: int, length: int) -> Spec:
    return Spec({"length": f"{length}s", "step": f"{step}s"}, step=step, length=length, grain=step)


@st.composite
def named(draw: st.DrawFn, pace: str, before: Spec | None, *, is_lonlat: bool) -> Spec:
    """Return cells of a calendar, that come again, or of given edges, over what was before."""
    if before is not None and before.kind == "bins":
        names = [name for name in OFTEN[pace] if name in before.above]
    else:
        names = [name for name in OFTEN[pace] if _fits(NAMED[name], before)]
    names = [name for name in names if is_lonlat or name != "hours of the sun"]
    if not names:
        return draw(durations(pace, before))
    name = draw(st.sampled_from(names))
    return draw(_edges(pace, before)) if name.startswith("edges") else NAMED[name]


@st.composite
def again(draw: st.DrawFn, pace: str, before: Spec | None, *, is_lonlat: bool) -> Spec:
    """Return cells that come again, or one of all, in one of which each cell of what was before lies."""
    if before is not None and before.kind == "bins":
        names = [name for name in OFTEN[pace] if name in before.above]
    else:
        names = [name for name in OFTEN[pace] if _fits(NAMED[name], before)]
    fitting = [NAMED[name] for name in names if is_lonlat or name != "hours of the sun"]
    return draw(st.sampled_from([*(spec for spec in fitting if spec.kind == "again"), ALL]))


def _fits(spec: Spec, before: Spec | None) -> bool:
    if before is None or before.kind == "instants":
        return True
    is_even = before.kind == "even" and before.length <= before.step
    if not is_even or before.json == "all" or "offset" in before.json:
        return False
    return spec.json is None or (spec.grain is not None and spec.grain % before.step == 0)


@st.composite
def _edges(draw: st.DrawFn, pace: str, before: Spec | None) -> Spec:
    """Return edges within the time of a network and a little beyond."""
    own = PACES[pace]
    unit = before.step if before is not None and before.kind == "even" else DURATIONS[pace][0]
    first = own.start_ns // SECOND_NS // unit - draw(st.integers(0, 3))
    most = max(round(own.days * DAY) // unit, 4)
    places = sorted(draw(st.sets(st.integers(0, most), min_size=2, max_size=5)))
    made = [format_instant((first + place) * unit * SECOND_NS) for place in places]
    return replace(NAMED["edges"], json={"edges": made})


@st.composite
def in_time(draw: st.DrawFn, pace: str) -> tuple[dict[str, Any], Spec]:
    """Return an interpolation in time, and its instants."""
    steps, gaps = IN_TIME[pace]
    unit, gap = draw(st.sampled_from(steps)), draw(st.sampled_from(gaps))
    method = draw(st.sampled_from(["nearest", "linear", "spline"]))
    step = {"op": "interpolate", "method": method, "time": f"{unit}s", "params": {"max_gap": f"{gap}s"}}
    return step, Spec(f"{unit}s", "instants", step=unit)
