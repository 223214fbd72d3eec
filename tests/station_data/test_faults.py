"""The ledger is complete: each planted fault is in the data at its place, and nothing else departs that far."""

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from station_data.faults import ROLES, plan, wrong_zone_station
from station_data.network import stations
from station_data.truth import VARIABLES, truth

Table = NDArray[np.float64]
Ledger = list[dict[str, str]]
NAMES = list(VARIABLES)
SITES = {one.id: one for one in stations()}
TOLERANCE = {"air_temperature": 1.0, "surface_temperature": 2.0, "relative_humidity": 6.0, "soil_moisture": 2.5}
"""Eight standard deviations of the noise, and the offset."""


def seconds(text: str) -> int:
    return int(np.datetime64(text.removesuffix("Z"), "s").astype(np.int64))


@pytest.fixture(scope="module")
def ledger(four_weeks: Path) -> Ledger:
    with (four_weeks / "faults.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def tables(four_weeks: Path, read_text: Callable[[Path, str], Table]) -> dict[str, Table]:
    return {station: read_text(four_weeks, station) for station in SITES}


def within(row: dict[str, str], table: Table) -> NDArray[np.bool_]:
    return (table[:, 7] >= seconds(row["start"])) & (table[:, 7] < seconds(row["end"]))


def departure(table: Table, station: str, variable: str) -> NDArray[np.float64]:
    """Reading minus truth at the stamp of the file."""
    site = SITES[station]
    true_values = truth(variable, table[:, 7].astype(np.int64) * 1_000_000_000, site.lon, site.lat)
    return table[:, 8 + NAMES.index(variable)] - true_values


def test_every_kind_is_planted_as_often_as_its_roles_say(ledger: Ledger) -> None:
    expected = Counter({"timezone": 1})
    for role in ROLES:
        expected[role.kind] += role.count
    assert Counter(row["kind"] for row in ledger) == expected


def test_each_fault_of_the_ledger_is_in_the_data(ledger: Ledger, tables: dict[str, Table]) -> None:
    for row in ledger:
        table = tables[row["station"]]
        rows = within(row, table)
        magnitude = float(row["magnitude"] or "nan")
        if row["kind"] in ("gap", "dead") and row["variable"] == "*":
            assert not rows.any(), row
            assert (table[:, 7] < seconds(row["start"])).any(), row
            continue
        if row["kind"] == "timezone":
            continue
        values = table[rows, 8 + NAMES.index(row["variable"])]
        assert values.size, row
        if row["kind"] == "gap":
            assert np.isnan(values).all(), row
        elif row["kind"] in ("impossible", "stuck"):
            assert values == pytest.approx(magnitude), row
        elif row["kind"] == "spike":
            assert values.size == 1
            error = departure(table, row["station"], row["variable"])[rows]
            assert error == pytest.approx(magnitude, abs=TOLERANCE.get(row["variable"], 4.0)), row
        else:
            days = (table[rows, 7] - seconds(row["start"])) / 86_400
            error = departure(table, row["station"], row["variable"])[rows]
            sound = np.isfinite(error) & (np.abs(error - magnitude * days) < 10.0)
            assert np.polyfit(days[sound], error[sound], 1)[0] == pytest.approx(magnitude, abs=0.01), row


def test_station_with_the_wrong_zone_is_two_hours_late(ledger: Ledger, tables: dict[str, Table]) -> None:
    (row,) = (row for row in ledger if row["kind"] == "timezone")
    assert row["station"] == wrong_zone_station(2007, 24)
    assert float(row["magnitude"]) == 7200
    table, site = tables[row["station"]], SITES[row["station"]]
    stamps = table[:, 7].astype(np.int64)

    def error(late_s: int) -> float:
        radiation = truth("solar_radiation", (stamps - late_s) * 1_000_000_000, site.lon, site.lat)
        return float(np.nanstd(table[:, 10] - radiation))

    assert error(7200) < 20.0 < 60.0 < error(0)


def test_nothing_beyond_the_ledger_is_that_far_from_the_truth(ledger: Ledger, tables: dict[str, Table]) -> None:
    zone = wrong_zone_station(2007, 24)
    for station, table in tables.items():
        if station == zone:
            continue
        for variable, tolerance in TOLERANCE.items():
            far = np.abs(departure(table, station, variable)) > tolerance
            for row in ledger:
                if row["station"] == station and row["variable"] == variable:
                    far &= ~within(row, table)
            assert not far.any(), (station, variable)


def test_plan_of_a_day_is_that_part_of_the_plan_of_weeks() -> None:
    network = stations()
    begin = seconds("2007-09-20T00:00:00Z")
    weeks = plan(2007, network, begin, begin + 56 * 86_400)
    for day in (0, 11, 27, 28, 40):
        start, stop = begin + day * 86_400, begin + (day + 1) * 86_400
        overlapping = [fault for fault in weeks if fault.start_s < stop and fault.end_s > start]
        assert [repr(fault) for fault in plan(2007, network, start, stop)] == [repr(fault) for fault in overlapping]
