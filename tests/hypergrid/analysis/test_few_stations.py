"""Parts of a surface in whose slices few stations report: they are what the whole query has there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.readings import Position, Station
from hypergrid.core.result_names import by_role
from hypergrid.formats.partitioned import compute_piece
from hypergrid.query import open_archive
from queries.standing.service import StandingQueries
from tests.hypergrid.continuous.live.test_live_surfaces import H, draw_rows, make_readings
from tests.hypergrid.continuous.test_surfaces import GRID, KRIGED, MEANS
from tests.support.continuous_live_archives import NAMES, commit, create
from tests.support.networks import START_NS
from tests.support.standing_runner import settle

METHODS: list[tuple[str, dict[str, Any]]] = [
    ("linear", {}),
    ("universal_kriging", {"variogram": KRIGED["params"]["variogram"]}),
]


def make_archive(folder: Path) -> None:
    """Write two hours, in the second of which only two stations are heard; that one waits."""
    create(folder)
    with Archive.open(folder).commit(batch="places", message="places", now_ns=START_NS + 1) as writer:
        writer.stations(
            Station(name, name.upper(), (Position(None, 7.177 + 0.001 * number, 45.867 + 0.0015 * (number % 2), 0.0),))
            for number, name in enumerate(NAMES)
        )
    commit(folder, 1, [make_readings("air_temperature", draw_rows(0, H))])


def add_second_hour(folder: Path) -> None:
    rows = [row for row in draw_rows(H, 2 * H) if row[0] in NAMES[:2]]
    commit(folder, 2, [make_readings("air_temperature", rows)])


def make_document(method: str, params: dict[str, Any]) -> dict[str, Any]:
    step = {"op": "interpolate", "method": method, "grid": GRID, "params": params}
    return {"variable": "air_temperature", "steps": [MEANS, step]}


@pytest.mark.parametrize(("method", "params"), METHODS)
def test_a_surface_grows_and_is_split_where_few_stations_report(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    folder, document = tmp_path / "a", make_document(method, params)
    make_archive(folder)
    growing = hg.Growing(open_archive(folder).query(document))
    add_second_hour(folder)
    query = open_archive(folder).query(document)
    whole = by_role(query.compute())["value"].to_numpy()
    assert not growing.update().why
    np.testing.assert_allclose(by_role(growing.dataset())["value"].to_numpy(), whole, rtol=1e-9)
    piece = compute_piece(query, slice(8, 12)).value
    np.testing.assert_allclose(piece, whole[8:12].reshape(piece.shape), rtol=1e-9)


@pytest.mark.parametrize(("method", "params"), METHODS)
def test_a_standing_query_goes_on_where_few_stations_report(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    folder, document = tmp_path / "a", make_document(method, params)
    make_archive(folder)
    standing = StandingQueries(hg.open(folder), clock=lambda: START_NS)
    try:
        standing.add({"name": "map", "query": document, "to": ["archive"]})
        settle(standing.runner)
        add_second_hour(folder)
        settle(standing.runner)
    finally:
        standing.stop()
    whole = by_role(open_archive(folder).query(document).compute())["value"].to_numpy()
    (file,) = (folder / "standing" / "results" / "map").glob("*.nc")
    kept = by_role(xr.load_dataset(file))["value"].to_numpy()
    np.testing.assert_allclose(kept, whole[-len(kept) :], rtol=1e-9)
    assert len(kept) == 6
