"""Where a map is extrapolated: the page's convex hull of stations, against that of Shapely."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from shapely import MultiPoint, Polygon, box

from viz.site import PAGES

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js, which runs scripts of the pages")
BOX = (7.0, 9.0, 45.0, 46.5)
"""West, east, south and north of a map."""


def look(folder: Path, points: NDArray[np.float64]) -> dict[str, Any]:
    """Return the hull of stations, what is drawn of it on the map, and the share of 20 by 15 cells beyond it."""
    for name in ("hull.js", "api.js", *(file.name for file in PAGES.glob("text*.js")), "units.js"):
        (folder / name).write_text((PAGES / name).read_text("utf-8"), "utf-8")
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    west, east, south, north = BOX
    surface = {
        "dims": ["lat", "lon"],
        "lon": centres(west, east, 20).tolist(),
        "lat": centres(south, north, 15).tolist(),
    }
    (folder / "run.js").write_text(
        "import { asColumns, hullOf, shareBeyond } from './hull.js';"
        f"const hull = hullOf({json.dumps(points.tolist())});"
        f"console.log(JSON.stringify({{ hull, drawn: asColumns(hull, [{west}, {east}], [{south}, {north}]),"
        f" share: shareBeyond(hull, {json.dumps(surface)}) }}));",
        "utf-8",
    )
    done = subprocess.run(["node", folder / "run.js"], capture_output=True, check=True, text=True)  # noqa: S607
    return dict(json.loads(done.stdout))


def centres(low: float, high: float, count: int) -> NDArray[np.float64]:
    """Return the centres of equal cells between two edges."""
    return low + (np.arange(count) + 0.5) * (high - low) / count


@pytest.mark.parametrize("reach", [0.5, 2.0])
@pytest.mark.parametrize("count", [3, 4, 20, 500])
def test_a_map_is_paled_outside_of_the_hull_alone(count: int, reach: float, tmp_path: Path) -> None:
    west, east, south, north = BOX
    spread = np.random.default_rng(count).uniform(-0.5, 0.5, (count, 2)) * reach
    points = np.array([8.0, 45.75]) + spread * [east - west, north - south]
    found, oracle = look(tmp_path, points), MultiPoint(points).convex_hull
    assert Polygon(found["hull"]).normalize().equals_exact(oracle.normalize(), 1e-12)
    (xs,), (ys,) = found["drawn"]["beyond"].values()
    rings = [np.column_stack(ring) for ring in zip(xs[0], ys[0], strict=True)]
    shaded = Polygon(rings[0], rings[1:])
    beyond = box(west, south, east, north) - oracle
    assert shaded.area == pytest.approx(beyond.area, abs=1e-9)
    assert shaded.symmetric_difference(beyond).area == pytest.approx(0, abs=1e-9)
    cells = MultiPoint([(x, y) for y in centres(south, north, 15) for x in centres(west, east, 20)])
    outside = [not oracle.covers(cell) for cell in cells.geoms]
    assert found["share"] == pytest.approx(np.mean(outside))


@pytest.mark.parametrize("points", [[[8.0, 45.5]], [[7.5, 45.5], [8.5, 46.0]], [[7.2, 45.2], [7.7, 45.7], [8.2, 46.2]]])
def test_stations_on_one_line_leave_all_of_a_map_beyond(points: list[list[float]], tmp_path: Path) -> None:
    found = look(tmp_path, np.array(points))
    assert found["hull"] == []
    assert found["share"] == 1.0
    assert found["drawn"] == {
        "beyond": {"xs": [[[[7, 9, 9, 7]]]], "ys": [[[[45, 45, 46.5, 46.5]]]]}, "hull": {"xs": [], "ys": []},
    }  # fmt: skip


def test_a_map_beside_all_stations_is_paled_in_full(tmp_path: Path) -> None:
    found = look(tmp_path, np.array([[1.0, 1.0], [2.0, 1.0], [1.5, 2.0]]))
    assert found["share"] == 1.0
    assert found["drawn"]["beyond"]["xs"] == [[[[7, 9, 9, 7]]]]
    assert found["drawn"]["hull"]["xs"] == [[1.0, 2.0, 1.5, 1.0]]
