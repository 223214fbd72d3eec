"""Groups and arrays of an archive are created and opened without Zarr's own functions, and are what these make."""

from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.errors import NodeNotFoundError

from hypergrid.archive.arrays.cells import ARRAYS, describe_cells
from hypergrid.archive.arrays.table import CODECS
from hypergrid.archive.disk.concurrent_io import (
    EmptyArray,
    create_nodes,
    open_group,
    open_nodes,
    open_root,
    place_nodes,
)


@pytest.fixture
def session(tmp_path: Path) -> icechunk.Session:
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "store")))
    return repository.writable_session("main")


def test_a_node_is_that_of_zarr(session: icechunk.Session) -> None:
    root = zarr.create_group(session.store)
    asked: dict[str, Any] = {
        "dtype": "float64", "shape": (10, 3), "chunks": (4, 2), "fill_value": np.nan, "compressors": CODECS,
        "dimension_names": ("slice", "series"),
    }  # fmt: skip
    group = root.create_group("of_zarr", attributes={"columns": {"a": "text"}})
    group.create_array("value", **asked, attributes={"units": "K"})
    array = EmptyArray("float64", (10, 3), (4, 2), CODECS, np.nan, ("slice", "series"), {"units": "K"})
    create_nodes(root, place_nodes("ours", {"": {"columns": {"a": "text"}}, "value": array}))
    for path in ("", "/value"):
        ours, of_zarr = (read(session, f"{name}{path}/zarr.json") for name in ("ours", "of_zarr"))
        assert ours == of_zarr
    (opened, values), (expected, cells) = open_nodes(root, ["ours", "ours/value"]), (root["ours"], root["ours/value"])
    assert isinstance(opened, zarr.Group)
    assert isinstance(values, zarr.Array)
    assert isinstance(cells, zarr.Array)
    assert opened.metadata == expected.metadata
    assert repr(values.metadata.to_dict()) == repr(cells.metadata.to_dict())
    assert (values.attrs.asdict(), values.read_only) == ({"units": "K"}, False)
    values[1:3, 1] = [5.0, 6.0]
    np.testing.assert_array_equal(cells[0:4, 1], [np.nan, 5, 6, np.nan])


def read(session: icechunk.Session, path: str) -> bytes:
    document = sync(session.store.get(path, default_buffer_prototype()))
    assert document is not None
    return document.to_bytes()


def test_an_array_that_changed_changes_no_other_one(session: icechunk.Session) -> None:
    root = zarr.create_group(session.store)
    create_nodes(root, {name: {} for name in ("a", "b")})
    for name in ("a", "b"):
        create_nodes(root, place_nodes(name, describe_cells(slices=10, unit="K")))
    (first,) = open_nodes(root, ["a/value"])
    assert isinstance(first, zarr.Array)
    first.resize((10, 7))
    first.attrs["note"] = "of a"
    for path, shape in (("a/value", (10, 7)), ("b/value", (10, 0)), ("a/flag", (10, 0))):
        (node,) = open_nodes(root, [path])
        assert isinstance(node, zarr.Array)
        assert node.shape == shape, path
        assert node.attrs.asdict().get("note") == ("of a" if path == "a/value" else None), path


def test_nodes_are_written_where_the_session_is_for_writing(tmp_path: Path, session: icechunk.Session) -> None:
    zarr.create_group(session.store, attributes={"variables": ["a"]})
    create_nodes(open_root(session), describe_cells(slices=10, unit="K"))
    session.commit("cells")
    stored = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "store")))
    root = open_root(stored.readonly_session("main"))
    assert dict(root.attrs) == {"variables": ["a"]}
    assert set(root.array_keys()) == set(ARRAYS)
    with pytest.raises(icechunk.IcechunkError, match="read"):
        create_nodes(root, {"more": {}})


def test_equal_arrays_are_described_once() -> None:
    documents = [EmptyArray("float64", (7, 0), (4, 2), CODECS, float("nan")).encode_document() for _ in range(2)]
    assert documents[0] is documents[1]


def test_a_node_that_is_not_there_is_named(session: icechunk.Session) -> None:
    root = zarr.create_group(session.store)
    with pytest.raises(NodeNotFoundError, match="'nowhere/value'"):
        open_nodes(root, ["nowhere/value"])
    with pytest.raises(NodeNotFoundError, match="'nowhere'"):
        open_group(root, "nowhere")
