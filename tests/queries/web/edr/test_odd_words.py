"""Whatever is put into an address of EDR or of readings is answered, or told what is wrong with it."""

from urllib.parse import quote

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queries.web.edr.routes import QUERIES

ODD = st.one_of(
    st.text(max_size=40),
    st.text("0123456789.eE+-/,:TZRP() ", max_size=40),
    st.sampled_from(
        ["", "..", "../..", "nan", "inf", "-1", "1e999", "0", "\x00", "null", "[]", "R1/0/0", "P1D", "9" * 400]
    ),
)
NUMBER = st.one_of(st.floats(), st.floats(6.9, 7.3), st.floats(45.7, 46.0), st.integers(-400, 400)).map(str)
PLACE = st.tuples(NUMBER, NUMBER).map(" ".join)
RING = st.lists(PLACE, min_size=1, max_size=6).map(lambda places: f"({','.join([*places, places[0]])})")
COORDS = st.one_of(
    ODD,
    PLACE.map("POINT({})".format),
    st.lists(PLACE, max_size=4).map(lambda places: f"MULTIPOINT({','.join(places)})"),
    RING.map("POLYGON({})".format),
    st.lists(RING, max_size=3).map(lambda rings: f"POLYGON({','.join(rings)})"),
    st.lists(RING, max_size=3).map(lambda rings: f"MULTIPOLYGON({','.join(f'({ring})' for ring in rings)})"),
)
INSTANT = st.one_of(
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"), st.just(".."), st.just("2007-10-01T01:00:00Z"), ODD
)
TIMES = st.one_of(
    INSTANT, st.lists(INSTANT, min_size=2, max_size=2).map("/".join), st.lists(INSTANT, max_size=4).map(",".join)
)
WORDS = {
    "coords": COORDS,
    "bbox": st.one_of(ODD, st.lists(NUMBER, max_size=7).map(",".join)),
    "datetime": TIMES,
    "z": st.one_of(ODD, st.lists(NUMBER, max_size=3).map("/".join)),
    "parameter-name": st.one_of(st.just("air_temperature"), ODD),
    "crs": st.one_of(st.just("CRS84"), ODD),
    "f": st.one_of(st.sampled_from(["CoverageJSON", "geojson", "NetCDF", "CSV", "json"]), ODD),
    "limit": st.one_of(st.just("2"), ODD),
    "offset": ODD,
    "unknown": ODD,
}
PATH = st.one_of(
    st.tuples(
        st.sampled_from(["stations", "part", "levels", "whole", "nothing"]),
        st.sampled_from(
            ["position", "area", "cube", "locations", "items", "locations/1", "instances", "instances/x/cube"]
        ),
    ).map("/".join),
    st.tuples(st.just("stations"), ODD.map(lambda text: quote(text, safe=""))).map("/locations/".join),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(path=PATH, words=st.fixed_dictionaries({}, optional=WORDS))
def test_edr_never_breaks(edr: httpx.Client, path: str, words: dict[str, str]) -> None:
    address = f"collections/{path}"
    told(edr.get(address, params=words), {200, 204, 400, 404, 413})
    query = path.partition("/")[2]
    # Beside a word that is not taken, none is read.
    taken = {one["name"] for one in QUERIES.get(query, QUERIES["position"])[1]}
    told(
        edr.get(address, params={name: text for name, text in words.items() if name in taken}),
        {200, 204, 400, 404, 413},
    )


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    words=st.fixed_dictionaries(
        {},
        optional={
            "station": st.one_of(st.just("1,2"), ODD),
            "variable": st.one_of(st.just("air_temperature"), ODD),
            "start": INSTANT,
            "stop": INSTANT,
            "flags": st.one_of(st.just("1,2"), ODD),
            "f": st.one_of(st.sampled_from(["csv", "parquet", "covjson", "netcdf"]), ODD),
            "snapshot": ODD,
            "as_of": INSTANT,
        },
    ),
    what=st.sampled_from(["series", "latest"]),
)
def test_readings_never_break(edr: httpx.Client, what: str, words: dict[str, str]) -> None:
    told(edr.get(f"http://127.0.0.1/api/v1/{what}", params=words), {200, 400, 404, 413})


def told(answer: httpx.Response, expected: set[int]) -> None:
    assert answer.status_code in expected, (answer.request.url, answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"]
