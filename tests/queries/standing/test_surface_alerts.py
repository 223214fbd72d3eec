"""Alerts over kriged surfaces: a kept continuous query that reads the surface of a standing query."""

from hypergrid.continuous.live import open_store
from queries.standing.continuous_alerts import ContinuousAlerts
from queries.standing.service import StandingQueries
from tests.queries.standing.live import Live
from tests.queries.standing.test_row_alerts import at, list_alerts
from tests.support.standing_runner import settle

HEAT = {
    "variable": "air_temperature",
    "steps": [
        {"op": "aggregate", "function": "mean", "time": "4min"},
        {
            "op": "interpolate",
            "method": "ordinary_kriging",
            "grid": {"lon": "7.1765", "lat": "45.8665", "step": "0.0005", "shape": [9, 9]},
            "params": {"variogram": {"model": "exponential", "psill": 9.0, "range_m": 150.0, "nugget": 0.01}},
        },
    ],
    "variance": True,
}
WARM = (
    "Select s.station, max(c.value) as warmest From surface_heat c, stations s "
    "Where distance_m(s.lon, s.lat, c.x, c.y) < '40 m' and c.value - 2 * sqrt(c.variance) > 10 Group By s.station"
)
"""Stations around which it is warm to two standard deviations: within 40 m of each is a cell."""


def test_an_alert_over_a_surface_follows_its_slices_and_late_readings(live: Live, standing: StandingQueries) -> None:
    standing.add({"name": "heat", "query": HEAT})
    ContinuousAlerts(standing).add({"name": "warm", "text": WARM, "alert": {"to": ["events"]}})
    settle(standing.runner)
    assert list_alerts(standing) == []
    # A map of 4 minutes holds from its end on, once later readings say that it is complete.
    for number in range(10, 16):
        live.add(*at(number, 40.0 if number in (12, 13) else 5.0, "1"))
    settle(standing.runner)
    assert list_alerts(standing) == [("raised", "1", 14)]
    (raised,) = standing.alerts(name="warm")
    assert raised["row"]["warmest"] > 20.0
    for number in range(16, 19):
        live.add(*at(number, 5.0))
    settle(standing.runner)
    assert list_alerts(standing)[1:] == [("cleared", "1", 14)]
    # An amendment shows that it was warm elsewhere before.
    live.add_all([(number, {"4": 40.0}) for number in (10, 11)])
    settle(standing.runner)
    late = [alert for alert in standing.alerts(name="warm") if alert["place"] == "4"]
    assert [(alert["happening"], alert["late"]) for alert in late] == [("raised", True), ("cleared", True)]
    # The surface was kept with the query, which goes on without the standing one.
    standing.remove("heat")
    for number in range(19, 24):
        live.add(*at(number, 40.0, "2"))
    settle(standing.runner)
    assert ("raised", "2", 20) in list_alerts(standing)
    assert list(open_store(live.folder).find("warm").options.surfaces) == ["surface_heat"]
