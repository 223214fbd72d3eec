"""From a message at a broker to an alert at a webhook, in small: through kills, and an outage of the webhook."""

import shutil

import pytest

from tests.bench.ingest_tap import TapLoad, measure, tables
from tests.bench.ingest_tap_day import TapDay
from tests.bench.ingest_tap_day import measure as measure_day
from tests.ingest.brokers import PLACES


def run(load: TapLoad) -> dict[str, object]:
    if shutil.which("mosquitto", path=PLACES) is None:
        pytest.skip("no mosquitto on the PATH: install the package mosquitto")
    return measure(load, lambda _stage, _done: None)


def test_alerts_are_delivered_in_order_through_kills_and_an_outage() -> None:
    load = TapLoad(
        stations=50, every_s=1.0, seconds=12.0, crossing_s=0.5, late_share=0.1, late_s=3.0, kills=3, outage_s=4.0,
        has_spark=False,
    )  # fmt: skip
    measured = run(load)
    assert measured["planted"] >= 15, measured["log"]
    assert (measured["lost"], measured["twice"], measured["unknown"]) == (0, 0, 0), measured["log"]
    assert measured["in order"]
    # A letter that was under way when the server was killed may come again, and says so.
    assert measured["unmarked repeats"] == 0
    # Nothing is delivered while the webhook is out of reach, and everything afterwards.
    assert measured["max [s]"] > 1.0
    assert tables(measured)[0][2][0][0] == measured["planted"]


def test_an_hour_of_a_network_loses_nothing() -> None:
    _judge(TapDay(hours=1.0, stations=50, every_s=30.0, crossings=40, kills=2, outages=1))


@pytest.mark.soak
def test_a_day_of_a_network_loses_nothing() -> None:
    _judge(TapDay())


def _judge(day: TapDay) -> None:
    measured = measure_day(day, lambda _stage, _done: None)
    assert measured["planted"] >= 0.9 * day.crossings
    assert (measured["lost"], measured["twice"], measured["unknown"]) == (0, 0, 0), measured["log"]
    assert measured["in order"]
    assert (measured["unmarked repeats"], measured["ignored"]) == (0, 0)
    # Messages were late for both queries, whose results were corrected.
    assert min(measured["late"].values()) > 0
