"""What is given wrongly from Python is refused in words: who, what was needed, what came; never a raw error."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime
from hypergrid.core.times import parse_instant
from hypergrid.query import Query


def array(values: Any = None, times: Any = None, lon: Any = None) -> xr.DataArray:  # noqa: ANN401
    instants = pd.date_range("2007-10-01", periods=24, freq="h") if times is None else np.array(times, "datetime64[s]")
    numbers = np.arange(4.0 * len(instants)).reshape(-1, 4) if values is None else values
    places = [7.170, 7.172, 7.174, 7.176] if lon is None else lon
    coords = {
        "time": instants, "station": list("abcd"), "lon": ("station", places),
        "lat": ("station", [45.87, 45.873, 45.871, 45.872]),
    }  # fmt: skip
    return xr.DataArray(numbers, coords, ("time", "station"), "air_temperature", {"units": "degC"})


def hourly() -> Query:
    return hg.base(array()).aggregate("mean", time="1h")


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "texts for values": (lambda: hg.base(array(np.full((24, 4), "a"))), "values that are real numbers; got <U1"),
    "complex values": (lambda: hg.base(array(np.zeros((24, 4), complex))), "real numbers; got complex128"),
    "instants for values": (lambda: hg.base(array(np.zeros((24, 4), "M8[ns]"))), "real numbers; got datetime64"),
    "texts for longitudes": (lambda: hg.base(array(lon=list("wxyz"))), "coordinate 'lon' needs numbers .* got <U1"),
    # Nanoseconds from 1970 reach 1677 to 2262: what lies beyond would come back as another time.
    "the year 1600": (lambda: hg.base(array(times=["1600-01-01", "1600-01-02"], values=np.zeros((2, 4)))), "1678"),
    "the year 3000": (lambda: hg.base(array(times=["3000-01-01", "3000-01-02"], values=np.zeros((2, 4)))), "2261"),
    "the last month that counts": (
        lambda: hg.base(array(times=["2262-04-10", "2262-04-11"], values=np.zeros((2, 4)))), "between 1678 and 2261"
    ),
    "bytes for a duration": (lambda: hourly().aggregate("mean", time=b"1h"), "time cells need .* got b'1h'"),
    "a negative duration": (lambda: hourly().aggregate("mean", time=timedelta(hours=-1)), "must be above zero"),
    "months as a length": (lambda: hourly().aggregate("mean", time=np.timedelta64(1, "M")), "in days, hours"),
    "a grid without a step": (lambda: hg.grid(lon=(7, 8), lat=(45, 46)), "a grid needs a step"),
    "nothing for a grid": (lambda: hg.grid(), "a grid needs lon and lat, or x and y"),
    "a number to merge": (lambda: hourly().merge("difference", 3), "take queries.* got 3"),  # type: ignore[arg-type]
    "text for memory": (lambda: hourly().compute(allowed_bytes="1GB"), "whole number of bytes"),  # type: ignore[arg-type]
    "no number for memory": (lambda: hourly().compute(allowed_bytes=float("nan")), "got nan"),  # type: ignore[arg-type]
    "text for a seed": (lambda: list(hourly().refine(order="walk", seed="a")), "whole number as seed"),  # type: ignore[arg-type]
    "text for a share": (lambda: list(hourly().refine(order="walk", fraction="a")), "number as fraction"),  # type: ignore[arg-type]
    "a picture of a number": (lambda: hg.plot(3), "hg.plot needs a result.* got int"),  # type: ignore[arg-type]
    "a picture of nothing": (lambda: hg.plot(xr.Dataset()), "needs a result.*with its values; got the variables"),
    "a number again": (lambda: hg.again(3, None), "needs a result.* got 3"),  # type: ignore[arg-type]
    "no archive": (lambda: hg.open(None), "needs the folder of an archive.* got None"),  # type: ignore[arg-type]
    "a number to follow": (lambda: hg.Growing(3), "follows a query"),  # type: ignore[arg-type]
    "a number as a store": (lambda: hourly().to_zarr(3), "needs the folder of the store.* got 3"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_given_wrongly_is_refused_in_words(name: str) -> None:
    ask, message = WRONG[name]
    with pytest.raises(HyperGridError, match=message):
        ask()


def test_durations_of_python_numpy_and_pandas_are_durations() -> None:
    expected = hg.base(array()).aggregate("mean", time="3h")
    for length in (timedelta(hours=3), np.timedelta64(3, "h"), pd.Timedelta("3h")):
        assert hg.base(array()).aggregate("mean", time=length).token == expected.token


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2007-10-01T24:00", "2007-10-02"),
        ("2007-10-01 24:00:00", "2007-10-02"),
        ("2007-12-31T24:00:00.000Z", "2008-01-01"),
        ("2008-02-28T24:00+02:00", "2008-02-28T22:00Z"),
        ("2007-10-01T24", "2007-10-02"),
        ("2261-12-31T24:00Z", None),
    ],
)
def test_24_00_is_the_end_of_its_day(text: str, same: str | None) -> None:
    last_ns = parse_instant("2261-12-31") + 86_400 * 10**9
    assert parse_instant(text) == (last_ns if same is None else parse_instant(same))


@pytest.mark.parametrize(
    "text", ["2007-10-01T24:01", "2007-10-01T24:00:01", "2007-10-01T24:00:00.5", "2007-10-01T25:00"]
)
def test_no_other_time_of_that_hour_is_an_instant(text: str) -> None:
    with pytest.raises(InvalidTime, match="is no instant of the calendar"):
        parse_instant(text)


def test_a_clip_and_a_query_may_end_at_24_00() -> None:
    by_hand = hourly().clip(time=("2007-10-01T06:00", "2007-10-02"))
    at_24 = hourly().clip(time=("2007-10-01T06:00", "2007-10-01T24:00"))
    assert at_24.token == by_hand.token
    assert at_24.compute().sizes["time"] == 18
    with pytest.raises(InvalidQuery, match="clip of 'time' needs a start and a stop"):
        hourly().clip(time="2007-10-01T24:00")
