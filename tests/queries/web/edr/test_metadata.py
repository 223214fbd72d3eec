"""What EDR tells of itself, and what it says to bad words: the requirements of OGC's test suite, one by one.

`REQUIREMENTS` lists those of the executable test suite for OGC API-EDR 1.0 (ets-ogcapi-edr10, by its test classes) and
of the abstract test suite of 1.1 that these stand for, each with the test that covers it here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from covjson_pydantic.coverage import Coverage, CoverageCollection
from edr_pydantic.capabilities import ConformanceModel, LandingPageModel
from edr_pydantic.collections import Collection, Collections, Instances
from owslib.ogcapi.edr import EnvironmentalDataRetrieval

import hypergrid as hg
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from tests.serving import serving

Document = dict[str, Any]
NAMES = ["stations", "coarse", "difference", "distance", "fitted", "hourly", "levels", "part", "whole"]
"""Collections: the stations, and the saved queries that are maps on the earth; not those of another name or kind."""

REQUIREMENTS = {
    "landingpage: retrieval, validation (/req/core/root-op, root-success)": "test_the_landing_page",
    "apidefinition: retrieval, validation (/req/core/api-definition-op, -success)": "test_the_api_is_described",
    "conformance: operation and result (/req/core/conformance, conformance-success)": "test_the_conformance_classes",
    "collections: rc-md-op, rc-md-success, rc-collection-info, rc-collection-info-links": "test_collections",
    "collections: src-md-op, src-md-success: one is that of the list": "test_a_collection_is_that_of_the_list",
    "collections: rc-extent, rc-bbox-definition, rc-time-definition": "test_extents_are_nested_and_hold_the_data",
    "collections: output_formats, crs, data_queries, parameter_names": "test_collections",
    "core: crs84": "test_crs84_by_each_of_its_names",
    "core: http, json, geojson, edr-geojson": "test_features_are_edr_geojson",
    "core: rc-parameters, parameter names as keys": "test_collections",
    "queries: position, rc-coords-definition, -response": "test_the_middle_of_every_collection",
    "queries: area, coords-definition, -response": "test_the_middle_of_every_collection",
    "queries: cube, bbox-definition, cube-z-response": "test_the_middle_of_every_collection",
    "queries: locations": "test_features_are_edr_geojson",
    "queries: datetime-definition, -response": "test_queries.py::test_times_are_chosen",
    "queries: z-definition, -response": "test_queries.py::test_levels_are_chosen_by_z",
    "queries: parameter-name-definition, -response": "test_parameters_by_name_and_alias",
    "queries: crs-definition, -response": "test_crs84_by_each_of_its_names",
    "queries: f-definition, -response": "test_queries.py::test_stations_in_every_form",
    "queries: limit-definition, -response, next": "test_queries.py::test_locations_and_items_are_features_in_pages",
    "queries: no data is 204": "test_queries.py::test_no_data_is_204",
    "queries: wrong parameters are 400, unknown names 404": "test_bad_words_are_told",
    "instances: one is described as a collection is": "test_instances",
    "covjson: content": "test_the_middle_of_every_collection",
    "oas30: completeness, definition (skipped by the executable suite)": "test_the_api_is_described",
    "trajectory, corridor, radius: not served, so not listed among the data_queries": "test_collections",
}  # fmt: skip


def test_every_requirement_names_a_test_that_there_is() -> None:
    here = Path(__file__)
    for name in REQUIREMENTS.values():
        file, _, test = name.partition("::") if "::" in name else (here.name, "", name)
        assert f"def {test}(" in (here.parent / file).read_text("utf-8"), name


def test_the_landing_page(edr: httpx.Client) -> None:
    answer = edr.get("http://127.0.0.1/edr")
    assert edr.get("http://127.0.0.1/edr/").json() == answer.json()
    page = LandingPageModel.model_validate_json(answer.content)
    found = {link.rel: link.href for link in page.links}
    assert {"self", "service-desc", "service-doc", "conformance", "data"} <= found.keys()
    for href in found.values():
        assert edr.get(href).status_code == 200


def test_the_api_is_described(edr: httpx.Client) -> None:
    answer = edr.get("api")
    assert answer.headers["content-type"] == "application/vnd.oai.openapi+json;version=3.0"
    told = answer.json()
    assert told["openapi"].startswith("3.0")
    schemathesis.openapi.from_dict(told).validate()
    whole = edr.get("http://127.0.0.1/openapi.json").json()["paths"]
    assert {f"/edr{path}" if path != "/" else "/edr" for path in told["paths"]} | {"/edr/api"} == {
        path for path in whole if path.startswith("/edr")
    }
    for path, entry in told["paths"].items():
        queries = {one["name"] for one in entry["get"]["parameters"] if one["in"] == "query"}
        known = {
            one["name"] for one in whole[f"/edr{path}".rstrip("/")]["get"].get("parameters", []) if one["in"] == "query"
        }
        assert queries == known
    ids = [entry[method]["operationId"] for entry in whole.values() for method in entry]
    assert len(ids) == len(set(ids))


def test_the_conformance_classes(edr: httpx.Client) -> None:
    classes = ConformanceModel.model_validate_json(edr.get("conformance").content).conformsTo
    for name in ("core", "collections", "json", "geojson", "edr-geojson", "covjson", "queries"):
        assert f"http://www.opengis.net/spec/ogcapi-edr-1/1.1/conf/{name}" in classes


def test_collections(edr: httpx.Client) -> None:
    answer = edr.get("collections")
    Collections.model_validate_json(answer.content)
    listed = answer.json()["collections"]
    assert [one["id"] for one in listed] == NAMES
    for one in listed:
        assert {"id", "links", "extent", "data_queries", "crs", "output_formats", "parameter_names"} <= one.keys()
        assert one["crs"] == ["CRS84"]
        assert one["output_formats"] == ["CoverageJSON", "GeoJSON", "NetCDF", "CSV"]
        assert {link["rel"] for link in one["links"]} >= {"self", "data"}
        assert all(isinstance(link["type"], str) for link in one["links"])
        is_stations = one["id"] == "stations"
        own = {"locations", "items"} if is_stations else set()
        assert one["data_queries"].keys() == {"position", "area", "cube", "instances"} | own
        for name, query in one["data_queries"].items():
            link = query["link"]
            assert link["href"].endswith(f"/collections/{one['id']}/{name}")
            assert (link["rel"], link["variables"]["query_type"]) == ("data", name)
        assert one["data_queries"]["cube"]["link"]["variables"]["height_units"] == ["m"]
        assert one["data_queries"]["position"]["link"]["variables"]["crs_details"][0]["crs"] == "CRS84"
        for key, parameter in one["parameter_names"].items():
            assert parameter["id"] == key
            assert isinstance(parameter["observedProperty"]["label"], str)
            if key.endswith("_count"):
                assert "measurementType" not in parameter
            else:
                assert parameter["measurementType"].keys() == {"method", "duration"}
    hourly = next(one for one in listed if one["id"] == "hourly")["parameter_names"]
    assert hourly.keys() == {"air_temperature", "air_temperature_variance", "air_temperature_count"}
    assert hourly["air_temperature"]["unit"]["symbol"]["value"] == "Cel"
    assert hourly["air_temperature"]["measurementType"] == {"method": "mean", "duration": "PT3600S"}


def test_why_a_collection_has_no_variance_is_told(edr: httpx.Client) -> None:
    for one in edr.get("collections").json()["collections"]:
        if one["id"] != "stations":
            has_variance = "air_temperature_variance" in one["parameter_names"]
            assert ("without the variance of its error: " in one["description"]) == (not has_variance)
            assert ("and the variance of its error" in one["description"]) == has_variance
    assert "inverse_distance has no variance" in edr.get("collections/distance").json()["description"]


CHOSEN = [
    # query, the collections that it leaves
    ("bbox=7,45,8,46", NAMES),
    # Across the antimeridian, to beyond the western edge of all but one.
    ("bbox=179,45,7.17715,46", [name for name in NAMES if name != "part"]),
    ("bbox=7.1802,45.8698,7.19,45.88", ["stations"]),
    ("bbox=0,0,1,1", []),
    ("bbox=7,45,2300,8,46,2360", NAMES),
    ("bbox=7,45,0,8,46,100", [name for name in NAMES if name != "levels"]),
    ("datetime=2007-10-01", NAMES),
    ("datetime=2007-10-01T05:00:00Z/..", ["stations"]),
    ("datetime=../2006", []),
    ("bbox=7,45,8,46&datetime=2007-10-01T11:00:00Z", ["stations"]),
    ("limit=2", NAMES[:2]),
    ("limit=2&offset=8", NAMES[8:]),
    ("limit=500&f=json", NAMES),
    ("bbox=7,45,8,46&datetime=2007-10-01&limit=1", NAMES[:1]),
]


@pytest.mark.parametrize(("query", "names"), CHOSEN)
def test_collections_are_chosen_by_box_and_time(edr: httpx.Client, query: str, names: list[str]) -> None:
    answer = edr.get(f"collections?{query}")
    assert answer.status_code == 200, answer.text
    Collections.model_validate_json(answer.content)
    assert [one["id"] for one in answer.json()["collections"]] == names


def test_pages_of_collections_lead_to_all_of_them(edr: httpx.Client) -> None:
    seen, address = [], "collections?limit=4&bbox=7,45,8,46"
    while address:
        page = edr.get(address).json()
        seen += [one["id"] for one in page["collections"]]
        address = next((link["href"] for link in page["links"] if link["rel"] == "next"), "")
    assert seen == NAMES


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("bbox=1,2", "bbox needs four numbers"),
        ("datetime=yesterday", "an instant needs ISO 8601 text"),
        ("limit=0", "limit needs a whole number of at least 1"),
        ("f=html", "f needs one of json"),
        ("box=7,45,8,46", "did you mean 'bbox'"),
    ],
)
def test_what_collections_cannot_be_chosen_by_is_told(edr: httpx.Client, query: str, words: str) -> None:
    assert words in refused(edr, f"collections?{query}")


@pytest.mark.parametrize("name", NAMES)
def test_a_collection_is_that_of_the_list(edr: httpx.Client, name: str) -> None:
    answer = edr.get(f"collections/{name}")
    Collection.model_validate_json(answer.content)
    assert answer.json() == next(one for one in edr.get("collections").json()["collections"] if one["id"] == name)


def test_extents_are_nested_and_hold_the_data(edr: httpx.Client, archive: hg.OpenArchive) -> None:
    extent = edr.get("collections/stations").json()["extent"]
    assert extent["spatial"]["bbox"] == [[7.1771, 45.8671, 7.1805, 45.8702]]
    assert extent["temporal"]["interval"] == [["2007-10-01T00:00:00Z", "2007-10-01T12:00:00Z"]]
    extent = edr.get("collections/levels").json()["extent"]
    assert extent["temporal"]["interval"] == [["2007-10-01T00:00:00Z", "2007-10-01T04:00:00Z"]]
    assert extent["temporal"]["values"] == ["R4/2007-10-01T00:00:00Z/PT3600S"]
    assert extent["vertical"]["interval"] == [["2350", "2450"]]
    assert all("crs" in extent["spatial"] and "trs" in extent["temporal"] and "vrs" in extent["vertical"] for _ in "1")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("query", ["position", "area", "cube"])
def test_the_middle_of_every_collection(edr: httpx.Client, name: str, query: str) -> None:
    """OGC's suite asks each collection at the middle of its box for the first parameter: that must give data."""
    told = edr.get(f"collections/{name}").json()
    west, south, east, north = told["extent"]["spatial"]["bbox"][0]
    lon, lat, first = (west + east) / 2, (south + north) / 2, next(iter(told["parameter_names"]))
    ring = f"{west} {south},{east} {south},{east} {north},{west} {north},{west} {south}"
    where = {
        "position": {"coords": f"POINT({lon} {lat})"},
        "area": {"coords": f"POLYGON(({ring}))"},
        "cube": {"bbox": f"{west},{south},{east},{north}"},
    }[query]
    answer = edr.get(told["data_queries"][query]["link"]["href"], params={**where, "parameter-name": first})
    assert answer.status_code == 200, answer.text
    model = Coverage if answer.json()["type"] == "Coverage" else CoverageCollection
    model.model_validate_json(answer.content)
    assert first in answer.text


def test_features_are_edr_geojson(edr: httpx.Client) -> None:
    for address in ("stations/locations", "stations/items", "stations/items/1", "hourly/cube?bbox=7,45,8,46&f=GeoJSON"):
        answer = edr.get(f"collections/{address}")
        assert answer.headers["content-type"] == "application/geo+json"
        found = answer.json()
        for feature in found.get("features", [found]):
            assert feature["type"] == "Feature"
            assert feature["geometry"]["type"] == "Point"
            assert {"datetime", "label", "parameter-name", "edrqueryendpoint"} <= feature["properties"].keys()
            assert isinstance(feature["properties"]["parameter-name"], list)


@pytest.mark.parametrize("crs", ["CRS84", "OGC:CRS84", "CRS:84", "http://www.opengis.net/def/crs/OGC/1.3/CRS84"])
def test_crs84_by_each_of_its_names(edr: httpx.Client, crs: str) -> None:
    answer = edr.get("collections/hourly/position", params={"coords": "POINT(7.178 45.8675)", "crs": crs})
    assert answer.json()["domain"]["axes"]["x"]["values"] == [7.178]


@pytest.mark.parametrize("key", ["parameter-name", "parameter_names", "parameter_name"])
def test_parameters_by_name_and_alias(edr: httpx.Client, key: str) -> None:
    params = {"coords": "POINT(7.178 45.8675)", key: "air_temperature_variance"}
    assert list(edr.get("collections/hourly/position", params=params).json()["ranges"]) == ["air_temperature_variance"]


def test_instances(edr: httpx.Client, archive: hg.OpenArchive) -> None:
    answer = edr.get("collections/levels/instances")
    Instances.model_validate_json(answer.content)
    (first, *_) = answer.json()["instances"]
    assert first["id"] == archive.snapshot
    assert "instances" not in first["data_queries"]
    href = first["data_queries"]["position"]["link"]["href"]
    assert edr.get(href, params={"coords": "POINT(7.178 45.8675)"}).status_code == 200


def test_a_version_without_readings_is_told(edr: httpx.Client, archive: hg.OpenArchive) -> None:
    listed = {one["id"] for one in edr.get("collections/stations/instances").json()["instances"]}
    empty = next(one.id for one in archive.snapshots if one.id not in listed)
    answer = edr.get(f"collections/stations/instances/{empty}")
    assert answer.status_code == 404
    assert f"holds nothing at snapshot {empty}" in answer.json()["detail"]


BAD = [
    ("nothing/position?coords=POINT(7 45)", 404),
    ("with blank", 404),
    ("hours", 404),
    ("..%2f..%2f..%2fetc%2fpasswd", 404),
    ("hourly/instances/none", 404),
    ("hourly/instances/..%2f..%2fetc/position?coords=POINT(7 45)", 404),
    ("stations/locations/nobody", 404),
    ("stations/items/..%2f..%2fetc%2fpasswd", 404),
    ("hourly/locations", 404),
    ("hourly/trajectory?coords=LINESTRING(0 0,1 1)", 404),
    ("hourly/position", 400),
    ("hourly/position?coords=", 400),
    ("hourly/position?coords=POINT(7)", 400),
    ("hourly/position?coords=POINT(nan 45)", 400),
    ("hourly/position?coords=POINT(1e999 45)", 400),
    ("hourly/position?coords=POINT(7 91)", 400),
    ("hourly/position?coords=POINT(%00 1)", 400),
    ("hourly/position?coords=" + "(" * 3000, 400),
    ("hourly/position?coords=GEOMETRYCOLLECTION(POINT(1 1))", 400),
    ("hourly/position?coords=MULTIPOINT(" + ",".join("7.178 45.8675" for _ in range(101)) + ")", 400),
    ("hourly/area?coords=POINT(7.178 45.8675)", 400),
    ("hourly/area?coords=POLYGON((0 0,1 1,1 0,0 1,0 0))", 400),
    ("hourly/area?coords=POLYGON((170 0,-170 0,-170 1,170 0))", 400),
    ("hourly/cube", 400),
    ("hourly/cube?bbox=7,45,8", 400),
    ("hourly/cube?bbox=7,46,8,45", 400),
    ("hourly/cube?bbox=a,b,c,d", 400),
    ("hourly/cube?bbox=nan,45,8,46", 400),
    ("hourly/cube?bbox=7,45,8,46&crs=EPSG:2056", 400),
    ("hourly/cube?bbox=7,45,8,46&crs=../../etc", 400),
    ("hourly/cube?bbox=7,45,8,46&f=xls", 400),
    ("hourly/cube?bbox=7,45,8,46&parameter-name=rain", 400),
    ("hourly/cube?bbox=7,45,8,46&datetime=1600-01-01T00:00:00Z", 400),
    ("hourly/cube?bbox=7,45,8,46&datetime=yesterday", 400),
    ("hourly/cube?bbox=7,45,8,46&datetime=2007-10-02T00:00:00Z/2007-10-01T00:00:00Z", 400),
    ("hourly/cube?bbox=7,45,8,46&datetime=..", 400),
    ("hourly/cube?bbox=7,45,8,46&datetime=2007-13", 400),
    ("hourly/cube?bbox=7,45,8,46&datetime=2007-10-02/2007-10-01", 400),
    ("hourly/cube?bbox=7,45,8,46&datetime=R999999999/2007-10-01T00:00:00Z/PT1S", 400),
    ("hourly/cube?bbox=7,45,8,46&datetime=R5/2007-10-01T00:00:00Z/P1M", 400),
    ("hourly/cube?bbox=7,45,8,46&datetime=" + ",".join(["2007-10-01T00:00:00Z"] * 1001), 400),
    ("levels/cube?bbox=7,45,8,46&z=high", 400),
    ("levels/cube?bbox=7,45,8,46&z=nan", 400),
    ("stations/items?limit=0", 400),
    ("stations/items?limit=-1", 400),
    ("stations/items?limit=many", 400),
    ("stations/items?offset=-1", 400),
    ("stations/items?bbox=1", 400),
]


@pytest.mark.parametrize(("path", "status"), BAD)
def test_bad_words_are_told(edr: httpx.Client, path: str, status: int) -> None:
    answer = edr.get(f"collections/{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    problem = answer.json()
    assert problem["code"] == str(status)
    assert problem["description"] == problem["detail"]


def refused(edr: httpx.Client, address: str) -> str:
    """Return what a request that is refused is told."""
    answer = edr.get(address)
    assert (answer.status_code, answer.json()["code"]) == (400, "400"), answer.text
    return str(answer.json()["detail"])


@pytest.mark.parametrize("crs", ["EPSG:4326", "http://www.opengis.net/def/crs/EPSG/0/4326"])
def test_the_order_of_positions_is_told_to_who_asks_for_the_other(edr: httpx.Client, crs: str) -> None:
    told = refused(edr, f"collections/hourly/cube?bbox=7,45,8,46&crs={crs}")
    assert "CRS84 (OGC:CRS84)" in told
    assert "longitude, latitude" in told
    assert "latitude first" in told
    assert "latitude first" not in refused(edr, "collections/hourly/cube?bbox=7,45,8,46&crs=EPSG:2056")


AT = "collections/hourly/position?coords=POINT(7.178 45.8675)"
UNKNOWN = [
    # address, the parameter, what is told of it
    (f"{AT}&datetim=2007-10-01", "datetim", "is not known here; did you mean 'datetime'?"),
    (f"{AT}&parameterName=rain", "parameterName", "is not known here; did you mean 'parameter-name'?"),
    (f"{AT}&bbox=7,45,8,46", "bbox", "is not known here"),
    (f"{AT}&within=10", "within", "is not supported here"),
    ("collections/hourly/cube?bbox=7,45,8,46&limit=2", "limit", "is not supported here"),
    ("collections/hourly/cube?bbox=7,45,8,46&resolution-x=2", "resolution-x", "is not supported here"),
    ("collections/stations/locations?limits=2", "limits", "did you mean 'limit'?"),
    ("collections/stations/locations/1?limit=2", "limit", "is not supported here"),
    ("collections/stations/items/1?bbox=7,45,8,46", "bbox", "is not known here"),
    ("collections/stations/instances?bbox=7,45,8,46", "bbox", "is not known here"),
    ("conformance?limit=2", "limit", "is not supported here; this address takes f"),
    ("conformance?x=1", "x", "is not known here"),
    ("?x=1", "x", "is not known here"),
]


@pytest.mark.parametrize(("address", "name", "told"), UNKNOWN)
def test_parameters_that_are_not_taken_are_refused_by_name(
    edr: httpx.Client, address: str, name: str, told: str
) -> None:
    answer = refused(edr, address)
    assert f"the parameter {name!r}" in answer
    assert told in answer


PAGES = ["", "conformance", "api", "collections", "collections/hourly", "collections/hourly/instances"]


@pytest.mark.parametrize("page", PAGES)
def test_json_may_be_asked_for_and_is_what_there_is(edr: httpx.Client, page: str) -> None:
    plain = edr.get(page)
    for form in ("json", "JSON"):
        assert edr.get(page, params={"f": form}).content == plain.content
    assert "f needs one of json; got 'html'" in refused(edr, f"{page}?f=html")


def test_json_of_data_is_the_format_that_is_first(edr: httpx.Client) -> None:
    assert edr.get(f"{AT}&f=json").json() == edr.get(AT).json()
    listed = edr.get("collections/stations/items").json()
    for form in ("json", "GeoJSON"):
        assert edr.get(f"collections/stations/items?f={form}").json()["features"] == listed["features"]
    assert "f needs one of GeoJSON, json" in refused(edr, "collections/stations/locations?f=CSV")


def test_too_much_is_413(edr: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queries.web.edr.surfaces.MOST_CELLS", 479)
    answer = edr.get("collections/hourly/cube", params={"bbox": "7,45,8,46"})
    assert answer.status_code == 413
    assert (answer.json()["projected"], answer.json()["allowed"]) == (480, 479)
    assert (
        edr.get("collections/hourly/cube", params={"bbox": "7,45,8,46", "datetime": "2007-10-01T00:30:00Z"}).status_code
        == 200
    )
    monkeypatch.setattr("queries.web.edr.answers.MOST_FEATURES", 100)
    monkeypatch.setattr("queries.web.edr.routes.compute_dataset", None)  # it is refused before anything is computed
    assert edr.get("collections/part/cube", params={"bbox": "7,45,8,46", "f": "GeoJSON"}).status_code == 413


# A client of others


@pytest.fixture(scope="module")
def address(archive: hg.OpenArchive, saved_surfaces: Path) -> Iterator[str]:
    with serving(create_app(Runner(archive), Catalogue(archive, saved=saved_surfaces))) as made:
        yield f"{made}/edr"


def test_owslib_reads_every_kind_of_query(address: str) -> None:
    client = EnvironmentalDataRetrieval(address)
    assert client.data() == NAMES
    assert client.collection("hourly")["id"] == "hourly"
    assert "paths" in client.api()
    parameters = ["air_temperature"]
    for name in ("stations", "hourly"):
        at = client.query_data(name, "position", coords="POINT(7.178 45.8675)", parameter_names=parameters)
        inside = client.query_data(name, "area", coords="POLYGON((7.177 45.867,7.181 45.867,7.181 45.87,7.177 45.867))")
        box = client.query_data(
            name,
            "cube",
            bbox=[7.177, 45.867, 7.181, 45.871],
            parameter_names=parameters,
            datetime_="../2007-10-01T02:00:00Z",
        )
        for answer in (at, inside, box):
            model = Coverage if answer["type"] == "Coverage" else CoverageCollection
            model.model_validate(answer, strict=False)
    levels = client.query_data("levels", "position", coords="POINT(7.178 45.8675)", z="2350", crs="CRS84")
    assert levels["domain"]["axes"]["z"]["values"] == [2350.0]
    assert client.query_data("stations", "locations")["numberMatched"] == 5
    assert client.query_data("stations", "items")["numberMatched"] == 5
    assert client.query_data("stations", "locations/1", parameter_names=parameters)["id"] == "1"
    assert client.query_data("hourly", "instances")["instances"]
