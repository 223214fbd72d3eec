"""The layers of an archive: groups of arrays, and entries in the root's attributes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from hypergrid.archive.arrays.records import Json, node_name
from hypergrid.archive.arrays.table import CODECS
from hypergrid.archive.disk.concurrent_io import open_array, open_group, read_blocks
from hypergrid.core.errors import InvalidLayer, NotFound
from hypergrid.layers.layer import Layer

GROUP: Final = "layers"
"""Name of the group and of the root's attribute; both are absent if the archive never had a layer."""
_CHUNK: Final = 512
_DIMENSIONS: Final = {"x": ("x",), "y": ("y",), "values": ("y", "x")}


@dataclass(frozen=True)
class LayerEntry:
    """Metadata of a stored layer, available without reading it."""

    name: str
    unit: str
    rows: int
    columns: int
    west: float
    """Outer edges of the cells [degree]."""
    south: float
    east: float
    north: float
    description: str
    token: str
    """Content token of the layer."""

    @classmethod
    def of(cls, layer: Layer) -> "LayerEntry":
        rows, columns = layer.values.shape
        return cls(layer.name, layer.unit, rows, columns, *layer.bounds, layer.description, layer.token)


@dataclass(frozen=True)
class LayerChange:
    """Result of storing a layer."""

    entry: LayerEntry
    replaced: LayerEntry | None
    """Previous layer of the same name, if any."""

    @property
    def changed(self) -> bool:
        """Whether the archive changed; storing the same content under the same name does not."""
        return self.replaced is None or self.replaced.token != self.entry.token


class Layers(Mapping[str, Layer]):
    """Layers of a snapshot by name, in order of addition, read on first access.

    An unknown name raises `NotFound`, which lists the existing names and how to add a layer.
    """

    def __init__(
        self, root: zarr.Group, explained: Callable[[], AbstractContextManager[None]] = lambda: nullcontext()
    ) -> None:
        self._root = root
        self._translate_errors = explained
        self._read: dict[str, Layer] = {}
        self.entries: Mapping[str, LayerEntry] = read_entries(root)
        """Entries by name."""

    def __getitem__(self, name: str) -> Layer:
        if name not in self.entries:
            raise make_unknown_layer(name, self.entries)
        if name not in self._read:
            with self._translate_errors():
                self._read[name] = _load_layer(self._root, name, self.entries[name])
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def get(self, name: str, default: Layer | None = None) -> Layer | None:  # type: ignore[override]
        return self[name] if name in self else default

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"Layers({', '.join(self.entries)})"


def make_unknown_layer(name: object, existing: Mapping[str, Any]) -> NotFound:
    not_found = NotFound.among("layer", name, existing)
    return NotFound(f"{not_found}; add one with 'hypergrid layers add ARCHIVE FILE --name {name}'")


def read_entries(root: zarr.Group) -> dict[str, LayerEntry]:
    stored: Any = root.attrs.get(GROUP, {})
    names = [field.name for field in fields(LayerEntry)]
    return {key: LayerEntry(**{name: content[name] for name in names}) for key, content in stored.items()}


def write_layer(root: zarr.Group, layer: Layer) -> LayerChange:
    """Store a layer, replacing one of the same name unless its content is equal.

    Raises
    ------
    InvalidLayer
        The layer is in projected metres, but stations of an archive have longitudes and latitudes.
    """
    if layer.system != "lonlat":
        raise InvalidLayer(
            f"layer {layer.name!r} needs longitudes and latitudes; got metres; reproject it to EPSG:4326"
        )
    entries = read_entries(root)
    change = LayerChange(LayerEntry.of(layer), entries.get(layer.name))
    if change.changed:
        group = root.require_group(GROUP).create_group(node_name(layer.name), overwrite=True)
        for name, dimensions in _DIMENSIONS.items():
            _write_array(group, name, getattr(layer, name), dimensions)
        _write_entries(root, {**entries, layer.name: change.entry})
    return change


def remove_layer(root: zarr.Group, name: str) -> LayerEntry:
    """Remove a layer and return its entry; older snapshots keep it.

    Raises
    ------
    NotFound
        There is no layer of this name.
    """
    entries = read_entries(root)
    if name not in entries:
        raise make_unknown_layer(name, entries)
    del root[f"{GROUP}/{node_name(name)}"]
    _write_entries(root, {key: entry for key, entry in entries.items() if key != name})
    return entries[name]


def _write_entries(root: zarr.Group, entries: Mapping[str, LayerEntry]) -> None:
    content: Json = {name: asdict(entry) for name, entry in entries.items()}
    root.attrs[GROUP] = content


def _write_array(group: zarr.Group, name: str, values: NDArray[np.float64], dimensions: tuple[str, ...]) -> None:
    # Rasters usually have 32 bits: if nothing is lost, their values take half the space.
    short = values.astype(np.float32)
    kept = short if name == "values" and np.array_equal(short, values, equal_nan=True) else values
    chunks = tuple(min(_CHUNK, length) for length in values.shape) if values.ndim == 2 else values.shape
    array = group.create_array(
        name, shape=values.shape, chunks=chunks, dtype=kept.dtype, fill_value=np.nan, compressors=CODECS,
        dimension_names=dimensions,
    )  # fmt: skip
    array[:] = kept


def _load_layer(root: zarr.Group, name: str, entry: LayerEntry) -> Layer:
    group = open_group(root, f"{GROUP}/{node_name(name)}")
    arrays = {key: read_blocks([open_array(group, key)])[0] for key in _DIMENSIONS}
    return Layer(name, arrays["x"], arrays["y"], arrays["values"], entry.unit, description=entry.description)
