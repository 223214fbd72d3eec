"""Station positions in metres: on a plane, or for wide networks on the sphere."""

import math
from typing import Final, Literal, get_args

import numpy as np
import pyproj
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.geodesy import RADIUS_M, places_m
from hypergrid.topology.space import SeriesAxis

Floats = NDArray[np.float64]
Distance = Literal["auto", "plane", "great_circle"]
"""Distance measure; "auto" chooses by the extent of the stations."""

DISTANCES: Final[tuple[str, ...]] = get_args(Distance)

MAX_PLANE_DISTORTION = 5e-3
"""Largest accepted distance error of the plane, as a share.

This equals the error of the sphere against the ellipsoid; beyond it the plane is the less accurate of the two. It is
reached when the farthest station is 1,100 km from the middle.
"""


class Metres:
    """Positions in metres, on a plane tangent at the stations' middle or on the sphere.

    The plane is the azimuthal equidistant projection of WGS84 (pyproj). Distances from the middle are exact; others are
    too long by a factor of at most t/sin(t), with t the angle from the middle to the farthest station (Snyder 1987,
    equation 25-1): 1e-4 at 160 km. Wider networks use great circles on the sphere of the earth's mean radius. Projected
    coordinates pass unchanged.

    Parameters
    ----------
    axis
        Stations, at least one of them with a position.
    distance
        "auto", or the measure to use for any extent.

    Raises
    ------
    NotFound
        Unknown distance measure.
    InvalidQuery
        Great circles between projected coordinates.
    """

    def __init__(self, axis: SeriesAxis, distance: str = "auto") -> None:
        NotFound.refuse_unknown("way to measure distance", [distance], DISTANCES)
        if axis.system == "metres":
            if distance == "great_circle":
                raise InvalidQuery(
                    "great-circle distances need stations with lon and lat; these have x and y in metres"
                )
            self._transformer: pyproj.Transformer | None = None
            self.on_sphere = False
            """Whether positions are on the sphere."""
            self.description = "projected coordinates as given"
            """How distances are measured, for people."""
            return
        # The plane depends on the stations alone, so clipping a grid never changes an estimate.
        known = np.isfinite(axis.x) & np.isfinite(axis.y)
        lon, lat = _middle_longitude(axis.x[known]), float(axis.y[known].mean())
        self._transformer = _make_transformer(lat, lon)
        off = _distortion(_project_to_plane(self._transformer, np.stack([axis.x[known], axis.y[known]], axis=1)))
        self.on_sphere = distance == "great_circle" or (distance == "auto" and not off <= MAX_PLANE_DISTORTION)
        self.description = (
            f"great circles on a sphere of radius {RADIUS_M:.1f} m"
            if self.on_sphere
            else f"azimuthal equidistant plane around {lon:.6f} E, {lat:.6f} N (WGS84), off by at most "
            f"{_format_share(off)}"
        )

    @property
    def is_given(self) -> bool:
        """Whether the input positions are already in metres."""
        return self._transformer is None and not self.on_sphere

    def project(self, points: Floats) -> Floats:
        """Convert points (x, y) [degree or m] to metres.

        Returns
        -------
        Shape (points, 2) on a plane, (points, 3) on the sphere.
        """
        if self.on_sphere:
            return places_m(points[:, 0], points[:, 1])
        return points if self._transformer is None else _project_to_plane(self._transformer, points)


def _make_transformer(lat: float, lon: float) -> pyproj.Transformer:
    """Make the transformer from WGS84 degrees to the azimuthal equidistant plane around a point.

    One transformer serves all threads.
    """
    plane = f"+proj=aeqd +lat_0={lat:.6f} +lon_0={lon:.6f} +ellps=WGS84 +units=m"
    # pyproj rebuilds the transformer in each thread, and each query runs in its own thread. A pipeline takes 0.2 ms to
    # build; coordinate system names, which need a database lookup, take 8 ms.
    return pyproj.Transformer.from_pipeline(
        f"+proj=pipeline +step +proj=unitconvert +xy_in=deg +xy_out=rad +step {plane}"
    )


def _project_to_plane(transformer: pyproj.Transformer, points: Floats) -> Floats:
    return np.stack(transformer.transform(points[:, 0], points[:, 1]), axis=1)


def _distortion(plane_m: Floats) -> float:
    """Return the largest relative error of distances on the plane."""
    angle = float(np.linalg.norm(plane_m, axis=1).max()) / RADIUS_M
    return angle / math.sin(angle) - 1.0 if 0.0 < angle < math.pi else (math.inf if angle else 0.0)


def _format_share(off: float) -> str:
    return f"{100.0 * off:.2g} %" if off >= 1e-6 else "0.0001 %"


def _middle_longitude(lon: Floats) -> float:
    """Return the mean longitude of stations within half a turn, also across the date line."""
    return float(lon[0] + np.mean((lon - lon[0] + 180.0) % 360.0 - 180.0))
