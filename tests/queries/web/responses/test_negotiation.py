"""The form of an answer is that which `f` names, else the one that `Accept` prefers, else the default."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

Document = dict[str, Any]
COVERAGE, FEATURES, TABLE = "application/vnd.cov+json", "application/geo+json", "text/csv"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"

ACCEPTED = [
    # address, Accept, form of the answer
    ("/api/v1/latest", "text/csv", TABLE),
    ("/api/v1/latest", "TEXT/CSV", TABLE),
    ("/api/v1/latest", "text/*", TABLE),
    ("/api/v1/latest", "text/csv;q=0.2, application/geo+json;q=0.1", TABLE),
    ("/api/v1/latest", "text/csv;q=0.1, application/geo+json;q=0.2", FEATURES),
    ("/api/v1/latest", "application/geo+json;q=0, */*", TABLE),
    ("/api/v1/latest", "text/csv, */*;q=0.1", TABLE),
    ("/api/v1/latest", "application/json", FEATURES),
    ("/api/v1/latest", "*/*", FEATURES),
    ("/api/v1/latest", BROWSER, FEATURES),
    ("/api/v1/latest", "application/xml", FEATURES),  # none of the forms: the default
    ("/api/v1/latest", ";;q=x,/,text/csv;q=9", FEATURES),
    ("/api/v1/latest?f=geojson", "text/csv", FEATURES),
    ("/api/v1/series", "*/*", TABLE),
    ("/api/v1/series", "application/json", COVERAGE),
    ("/api/v1/series", "application/json, text/plain, */*", TABLE),  # all the same: the default
    ("/api/v1/series", "application/prs.coverage+json", COVERAGE),
    ("/api/v1/series", "application/vnd.apache.parquet", "application/vnd.apache.parquet"),
    ("/api/v1/series?f=csv", COVERAGE, TABLE),
    ("/api/v1/rejects", "text/csv", TABLE),
    ("/api/v1/rejects", "*/*", "application/json"),
    ("/edr/collections/stations/locations/1", "*/*", COVERAGE),
    ("/edr/collections/stations/locations/1", TABLE, TABLE),
    ("/edr/collections/stations/locations/1", "application/x-netcdf", "application/x-netcdf"),
    ("/edr/collections/stations/locations/1?f=json", TABLE, COVERAGE),
    ("/edr/collections/stations/position?coords=POINT(7.178 45.8675)", FEATURES, FEATURES),
    ("/edr/collections/stations/items/1", "*/*", FEATURES),
    ("/edr/collections/stations/items/1", COVERAGE, COVERAGE),
    ("/edr/collections/stations/items", TABLE, FEATURES),
    ("/api/v1/variables", TABLE, "application/json"),
]


@pytest.mark.parametrize(("address", "accept", "form"), ACCEPTED)
def test_the_form_is_the_one_that_is_accepted(client: httpx.Client, address: str, accept: str, form: str) -> None:
    answer = client.get(address, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].partition(";")[0] == form
    # Variables come in one form alone.
    if "etag" in answer.headers and address != "/api/v1/variables":
        assert "Accept" in answer.headers["vary"]


@pytest.mark.parametrize("address", ["/api/v1/latest", "/api/v1/series", "/edr/collections/stations/items/1"])
def test_each_form_has_a_tag_of_its_own(client: httpx.Client, address: str) -> None:
    default, coverage = (client.get(address, headers={"Accept": one}) for one in ("*/*", f"{COVERAGE}, {TABLE}"))
    assert default.headers["content-type"] != coverage.headers["content-type"] or address == "/api/v1/series"
    for other, known in ((default, coverage), (coverage, default)):
        again = client.get(
            address, headers={"Accept": other.request.headers["accept"], "If-None-Match": known.headers["etag"]}
        )
        same = other.headers["content-type"] == known.headers["content-type"]
        assert again.status_code == (304 if same else 200)


def test_results_are_negotiated_too(
    client: httpx.Client,
    gate: Any,  # noqa: ANN401
    map_query: Document,
    wait_until: Callable[..., None],
) -> None:
    gate.open()
    address = client.post("/api/v1/queries", json=map_query).headers["location"]
    wait_until(lambda: client.get(address).json()["state"] == "done")
    for accept, form in (("*/*", "application/x-netcdf"), (TABLE, TABLE), ("image/png", "image/png")):
        assert client.get(f"{address}/result", headers={"Accept": accept}).headers["content-type"].startswith(form)
    waited = client.post("/api/v1/queries?wait=20s", json=map_query, headers={"Accept": TABLE})
    assert waited.headers["content-type"].startswith(TABLE)
