"""Zones: named polygons (a catchment, a municipality) as cells, read from GeoJSON (RFC 7946)."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import shapely
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.tokens import token

Shapes = NDArray[np.object_]
"""Shapely polygons and multipolygons, one per zone."""

# Names are URNs such as urn:ogc:def:crs:OGC:1.3:CRS84, so only the end is compared.
LONLAT: Final = ("CRS84", "EPSG::4326", "EPSG:4326", "WGS84")
"""Suffixes of GeoJSON 2008 coordinate system names that mean longitude and latitude."""
# Other common formats, recognised to suggest a conversion.
_FORMATS: Final = {".shp", ".gpkg", ".kml", ".kmz", ".gml", ".fgb", ".parquet"}


@dataclass(frozen=True, eq=False)
class Zones:
    """Valid named polygons; they may overlap, leave gaps, and have holes and parts.

    Edges are straight in the given coordinates: in longitude and latitude an edge along a parallel stays on it.
    """

    names: tuple[str, ...]
    """Unique zone names."""
    shapes: Shapes
    """Polygons in degrees (longitude, latitude) or projected metres, matching the grid; shape (zones,)."""
    crs: str | None = None
    """Coordinate system named in the GeoJSON (allowed before RFC 7946), or None."""

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Zones({', '.join(self.names[:8])}{', …' if len(self) > 8 else ''})"

    @property
    def is_lonlat(self) -> bool | None:
        """Whether `crs` is longitude and latitude; None without a `crs`."""
        return None if self.crs is None else self.crs.upper().endswith(LONLAT)

    def select(self, *names: str) -> "Zones":
        """Return some of the zones, in the order of the names.

        Raises
        ------
        NotFound
            Unknown zone name.
        InvalidQuery
            No name, or a repeated one.
        """
        NotFound.refuse_unknown("zone", names, self.names)
        if not names or len(set(names)) < len(names):
            raise InvalidQuery(f"select needs the names of zones, each once; got {', '.join(names) or 'none'}")
        return Zones(names, self.shapes[[self.names.index(name) for name in names]], self.crs)

    def to_json(self) -> dict[str, Any]:
        """Return the zones as a GeoJSON FeatureCollection; each feature has the property "name"."""
        features = [
            {"type": "Feature", "properties": {"name": name}, "geometry": json.loads(shapely.to_geojson(shape))}
            for name, shape in zip(self.names, self.shapes, strict=True)
        ]
        document: dict[str, Any] = {"type": "FeatureCollection", "features": features}
        if self.crs is not None:
            document["crs"] = {"type": "name", "properties": {"name": self.crs}}
        return document

    def token(self) -> str:
        return self._token

    @cached_property
    def _token(self) -> str:
        return token("zones", self.names, [np.frombuffer(wkb, np.uint8) for wkb in shapely.to_wkb(self.shapes)])


def zones(given: object, *, name: str | None = None) -> Zones:
    """Read zones from GeoJSON.

    Parameters
    ----------
    given
        Path of a GeoJSON file, its text, a mapping (FeatureCollection, Feature, Polygon, MultiPolygon, or names to
        geometries), or an object with `__geo_interface__`, such as a GeoDataFrame.
    name
        Property that names a zone. Default: the property "name", else the feature's id, else its number from 1.

    Raises
    ------
    InvalidQuery
        Unreadable input, no zone, or an invalid polygon; the message names the zone and the reason.
    NotFound
        The file does not exist, or a feature lacks the property `name`.

    Examples
    --------
    >>> square = {"type": "Polygon", "coordinates": [[[7, 46], [8, 46], [8, 47], [7, 47], [7, 46]]]}
    >>> zones({"Morges": square})
    Zones(Morges)
    """
    if isinstance(given, Zones):
        return given
    document = _read_document(given)
    kind = document.get("type")
    if kind == "FeatureCollection":
        features = document.get("features")
        if not isinstance(features, list | tuple) or not features:
            raise InvalidQuery("zones need at least one feature with a polygon; the FeatureCollection has none")
    elif kind == "Feature":
        features = [document]
    elif kind is None and document:
        features = [{"id": key, "geometry": _read_interface(shape)} for key, shape in document.items()]
    else:
        features = [{"geometry": document}]
    names = _read_names(features, name)
    shapes = np.array([_make_shape(item.get("geometry"), of) for item, of in zip(features, names, strict=True)], object)
    return Zones(names, shapes, _read_crs(document))


def inline_zone_files(document: object, folder: Path) -> object:
    """Replace references to zone files in a query's JSON form by their content.

    A query on the command line may contain `"zones": {"file": "catchments.geojson", "name": "NAME"}`; the form that is
    stored, sent and written into results is self-contained.

    Parameters
    ----------
    document
        Query JSON, not yet validated.
    folder
        Base of relative paths: the query's own folder.
    """
    if isinstance(document, list):
        return [inline_zone_files(item, folder) for item in document]
    if not isinstance(document, Mapping):
        return document
    document_copy = {key: inline_zone_files(item, folder) for key, item in document.items() if key != "zones"}
    if "zones" in document:
        reference = document["zones"]
        document_copy["zones"] = reference
        if isinstance(reference, Mapping) and "file" in reference:
            if set(reference) - {"file", "name"} or not all(isinstance(value, str) for value in reference.values()):
                raise InvalidQuery(f"zones of a file need 'file' and perhaps 'name', as text; got {dict(reference)}")
            document_copy["zones"] = zones(folder / reference["file"], name=reference.get("name")).to_json()
    return document_copy


def _read_document(given: object) -> Mapping[str, Any]:
    document = _read_interface(given)
    if isinstance(document, str) and document.lstrip().startswith("{"):
        document = _parse_json(document, "the text of the zones")
    elif isinstance(document, str | Path):
        document = _read_file(Path(document))
    if not isinstance(document, Mapping):
        raise InvalidQuery(
            f"zones need GeoJSON: the path of a file, its text, or a mapping; got {type(given).__name__}"
        )
    # The JSON of a query, which may come from another machine, must not read files here.
    if "file" in document and "type" not in document:
        raise InvalidQuery(
            "zones are given as GeoJSON itself; a file can be named by hg.zones and in a query file only"
        )
    return document


def _read_interface(given: object) -> object:
    return getattr(given, "__geo_interface__", given)


def _read_file(path: Path) -> object:
    if path.suffix.lower() in _FORMATS:
        raise InvalidQuery(
            f"zones are read from GeoJSON; convert {path.name} first: ogr2ogr -t_srs EPSG:4326 zones.geojson …"
        )
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise (NotFound if isinstance(error, OSError) else InvalidQuery)(
            f"the zone file {path} cannot be read: {reason}"
        ) from error
    return _parse_json(text, f"the zone file {path}")


def _parse_json(text: str, what: str) -> object:
    try:
        return json.loads(text)
    # Deeply nested JSON raises RecursionError.
    except (ValueError, RecursionError) as error:
        raise InvalidQuery(f"{what} is no JSON that can be read: {error}") from error


def _read_names(features: Sequence[Any], name: str | None) -> tuple[str, ...]:
    for number, feature in enumerate(features, start=1):
        if not isinstance(feature, Mapping):
            raise InvalidQuery(
                f"feature {number} of the zones needs to be a GeoJSON Feature; got {type(feature).__name__}"
            )
    properties = [item.get("properties") or {} for item in features]
    if name is not None:
        for held in properties:
            NotFound.refuse_unknown("property of a zone", [name], held)
        labels = [held[name] for held in properties]
    elif all("name" in held for held in properties):
        labels = [held["name"] for held in properties]
    else:
        labels = [item.get("id", number) for number, item in enumerate(features, start=1)]
    names = tuple(str(item) for item in labels)
    (commonest, times), *_ = Counter(names).most_common(1)
    if times > 1:
        raise InvalidQuery(
            f"{times} zones are named {commonest!r}; join them to one MultiPolygon, or name zones by another "
            "property, name=…"
        )
    return names


def _make_shape(geometry: object, name: str) -> object:
    kind = geometry.get("type") if isinstance(geometry, Mapping) else geometry
    if not isinstance(geometry, Mapping) or kind not in ("Polygon", "MultiPolygon"):
        raise InvalidQuery(f"zone {name!r} needs a Polygon or a MultiPolygon; its geometry is {kind!r}")
    coordinates = geometry.get("coordinates")
    polygons = [coordinates] if kind == "Polygon" else coordinates
    if not isinstance(polygons, list | tuple) or not polygons:
        raise InvalidQuery(f"zone {name!r} is an empty {kind}; leave it out")
    # Built ring by ring, so that an error names the zone and the reason.
    made = [_make_polygon(rings, name) for rings in polygons]
    shape = made[0] if kind == "Polygon" else shapely.multipolygons(made)
    if not shapely.is_valid(shape):
        raise InvalidQuery(
            f"zone {name!r} is no valid polygon: {shapely.is_valid_reason(shape)}; repair it, for example with "
            "shapely.make_valid, and look at the result"
        )
    return shape


def _make_polygon(rings: object, name: str) -> object:
    if not isinstance(rings, list | tuple) or not rings:
        raise InvalidQuery(f"zone {name!r} has a polygon without a ring; leave it out")
    shell, *holes = (shapely.linearrings(_make_ring(ring, name)) for ring in rings)
    return shapely.polygons(shell, holes or None)


def _make_ring(ring: object, name: str) -> NDArray[np.float64]:
    try:
        # Heights are dropped.
        points = np.array([position[:2] for position in ring], np.float64)  # type: ignore[attr-defined]
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        points = np.empty(0)
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise InvalidQuery(f"zone {name!r} needs rings of positions [x, y], finite numbers; got {str(ring)[:80]}")
    if len(points) < 4:
        raise InvalidQuery(
            f"zone {name!r} has a ring of {len(points)} positions; it needs at least 4, the last as the first"
        )
    if (points[0] != points[-1]).any():
        raise InvalidQuery(
            f"zone {name!r} has an open ring: it starts at {points[0].tolist()} and ends at {points[-1].tolist()}; "
            "repeat its first position at the end"
        )
    return points


def _read_crs(document: Mapping[str, Any]) -> str | None:
    crs = document.get("crs")
    named = crs.get("properties") if isinstance(crs, Mapping) else None
    crs_name = named.get("name") if isinstance(named, Mapping) else None
    return str(crs_name) if crs_name is not None else None
