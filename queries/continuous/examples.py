"""Twelve questions of station networks as continuous queries; an archive is offered those whose names it has."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Example:
    """Example to begin with."""

    number: int
    """Number among the twelve questions; variants for archives with fewer relations share it."""
    title: str
    text: str
    """The query; `{gap}` stands for the minutes after which a station is silent."""


EXAMPLES: Final = (
    Example(
        1,
        "Flash flood: rain of an hour by catchment, against limits that fall as soil fills",
        """Select W.catchment, W.mm, M.wet
From (Select s.catchment, sum(r.mm) / count(distinct r.station) as mm
      From rain [Range 1 Hour Slide 5 Minutes] r, stations s
      Where r.station = s.station Group By s.catchment) W,
     (Select s.catchment, avg(m.value) as wet
      From soil_moisture [Partition By station Rows 1] m, stations s
      Where m.station = s.station Group By s.catchment) M, thresholds L
Where W.catchment = M.catchment and W.catchment = L.catchment and W.mm > L.mm_1h * (1 - 0.3 * M.wet / 100)""",
    ),
    Example(
        1,
        "Flash flood: rain of an hour at each station, against a limit that falls as soil fills",
        """Select w.station, w.mm, m.wet
From (Select station, sum(mm) as mm From rain [Range 1 Hour Slide 5 Minutes] Group By station) w,
     (Select station, avg(value) as wet From soil_moisture [Partition By station Rows 1] Group By station) m
Where w.station = m.station and w.mm > 6 * (1 - 0.3 * m.wet / 100)""",
    ),
    Example(
        2,
        "Foehn: strong, dry, warm wind from the south",
        """Select Istream(station, wind_speed, relative_humidity, air_temperature) From obs
Where wind_speed > '6 m/s' and relative_humidity < 40 and wind_direction Between 120 And 220
  and air_temperature > '12 degC'""",
    ),
    Example(
        3,
        "Drift between neighbours, reduced for height",
        """Select n.station, n.neighbour, avg(a.value - b.value + 0.0065 * n.dz_m) as drift_k
From air_temperature [Range 1 Day] a, neighbours n, air_temperature [Range 1 Day] b
Where a.station = n.station and b.station = n.neighbour and a.slice = b.slice
Group By n.station, n.neighbour
Having count(*) > 300 and abs(avg(a.value - b.value + 0.0065 * n.dz_m)) > 2""",
    ),
    Example(
        4,
        "Frost within three hours, by the fall of the last hour",
        """Select Rstream(n.station, n.value, n.value + 3 * (n.value - h.was) as in_3h)
From air_temperature [Now] n,
     (Select station, first(value) as was, count(*) as k From air_temperature [Range 1 Hour] Group By station) h
Where n.station = h.station and h.k >= 4 and n.value < '4 degC' and n.value + 3 * (n.value - h.was) < '0 degC'""",
    ),
    Example(
        5,
        "Stations that fall silent together, by gateway",
        """Select g.gateway, count(distinct d.station) as silent
From Dstream(Select distinct station From readings [Range {gap} Minutes]) [Range 10 Minutes] d, stations g
Where d.station = g.station Group By g.gateway Having count(distinct d.station) >= 3""",
    ),
    Example(
        5,
        "Stations that fall silent together",
        """Select count(distinct d.station) as silent
From Dstream(Select distinct station From readings [Range {gap} Minutes]) [Range 10 Minutes] d
Having count(distinct d.station) >= 3""",
    ),
    Example(
        6,
        "Rain within 5 km of lightning",
        """Select Istream(l.lon, l.lat, r.station, r.mm)
From lightning [Range 10 Minutes] l, rain [Range 10 Minutes] r, stations s
Where r.station = s.station and r.mm >= 0.2 and distance_m(l.lon, l.lat, s.lon, s.lat) < 5000""",
    ),
    Example(
        7,
        "Cold air pools: the valley is colder than the crest while the wind is weak",
        """Select Istream(v.slice, c.value - v.value as inversion_k)
From air_temperature [Range 1 Hour Where station = '7'] v, air_temperature [Range 1 Hour Where station = '3'] c,
     wind_speed [Range 1 Hour Where station = '3'] w
Where v.slice = c.slice and c.slice = w.slice and c.value - v.value > 2 and w.value < 2""",
    ),
    Example(
        8,
        "Stuck sensors: thirty equal values in a row",
        """Select station, variable, series
From readings [Partition By series Rows 30 Where flag < 9 and variable <> 'rain_meter']
Group By station, variable, series Having count(distinct value) = 1 and count(*) = 30""",
    ),
    Example(
        9,
        "Rain on snow",
        """Select Istream(r.station, r.mm, t.value, d.value)
From rain [Range 20 Minutes] r, air_temperature [Range 20 Minutes] t, snow_depth [Range 20 Minutes] d
Where r.station = t.station and r.slice = t.slice and t.station = d.station and t.slice = d.slice
  and r.mm > 0.5 and t.value > 0 and d.value > 20""",
    ),
    Example(
        10,
        "Commands that no station acknowledged within 15 minutes",
        """Select Istream(c.station, c.command)
From Dstream(Select station, command From commands [Range 15 Minutes]) [Now] c
Where (c.station, c.command) Not In (Select station, command From acks [Range 1 Hour])""",
    ),
    Example(
        11,
        "Eddy heat flux of fast anemometers",
        """Select station, avg(w * t) - avg(w) * avg(t) as heat_flux
From sonic [Range 30 Minutes Slide 10 Minutes] Sample(20) Group By station""",
    ),
    Example(
        12,
        "Vineyards where frost is sure to two standard deviations",
        """Select v.name, min(c.value) as coldest From surface_frost c, vineyards v
Where inside(c.x, c.y, v.shape) and c.value + 2 * sqrt(c.variance) < 0 Group By v.name""",
    ),
)
