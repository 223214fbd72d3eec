"""Layers in an archive: exact, versioned, and nothing committed for what is there already."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import hypergrid as hg
from hypergrid.archive import Archive, LayerEntry
from hypergrid.archive.disk.folder import VERSION
from hypergrid.core.errors import InvalidLayer, NotFound
from hypergrid.core.readings import Readings
from hypergrid.core.units import KNOWN_VARIABLES
from hypergrid.layers.layer import Layer
from hypergrid.perspective.sources.archive_source import ArchiveSource
from tests.support.archive_counts import count_content

Build = Callable[..., Readings]


def ground(height: float = 2400.0, *, name: str = "elevation", description: str = "made") -> Layer:
    """Uneven values that need 64 bits, with a hole."""
    values = height + np.arange(12.0).reshape(3, 4) / 3.0
    values[1, 2] = np.nan
    return Layer(
        name, x=7.0 + np.arange(4) * 0.1, y=45.0 + np.arange(3) * 0.1, values=values, unit="m", description=description
    )


def test_an_archive_without_layers_has_none(archive: Archive) -> None:
    assert dict(archive.layers) == {}
    assert archive.layers.entries == {}
    assert "elevation" not in archive.layers
    assert archive.layers.get("elevation") is None
    # An archive that never had a layer is one that a program without layers could read.
    assert VERSION == 3
    assert "layers" not in dict(archive.root.group.attrs)
    with pytest.raises(
        NotFound, match=r"unknown layer 'elevation'.*none; add one with 'hypergrid layers add ARCHIVE FILE"
    ):
        archive.layers["elevation"]


def test_a_layer_comes_back_exactly(archive: Archive) -> None:
    given = ground()
    change = archive.add_layer(given, now_ns=11)
    assert change.changed
    assert change.replaced is None
    newest = archive.latest()
    read = newest.layers["elevation"]
    for name in ("x", "y", "values"):
        np.testing.assert_array_equal(getattr(read, name), getattr(given, name))
    assert (read.name, read.unit, read.system, read.description) == ("elevation", "m", "lonlat", "made")
    assert read.token == given.token == newest.layers.entries["elevation"].token
    assert newest.layers["elevation"] is read
    assert newest.layers.entries == {"elevation": LayerEntry.of(given)}
    assert (newest.snapshots[0].message, newest.snapshots[0].time_ns) == ("layer elevation", 11)
    assert newest.snapshots[0].metadata["layers"] == ["elevation"]


def test_values_that_fit_in_32_bits_take_no_more(archive: Archive) -> None:
    coarse = Layer("coarse", x=[7, 8], y=[45, 46], values=[[0.5, np.nan], [2.0, -1.0]])
    with archive.commit(batch="two", message="two layers", now_ns=1) as writer:
        writer.layer(coarse)
        writer.layer(ground())
    newest = archive.latest()
    stored = {name: newest.root.group[f"layers/{name}/values"] for name in newest.layers}
    assert {name: one.dtype for name, one in stored.items() if isinstance(one, zarr.Array)} == {
        "coarse": np.dtype(np.float32),
        "elevation": np.dtype(np.float64),
    }
    assert newest.layers["coarse"].token == coarse.token
    assert newest.snapshots[0].metadata["layers"] == ["coarse", "elevation"]


def test_a_large_layer_comes_back_over_many_chunks(archive: Archive) -> None:
    values = np.random.default_rng(3).normal(size=(700, 1100))
    given = Layer("noise", x=np.arange(1100) * 0.01, y=np.arange(700) * 0.01, values=values)
    archive.add_layer(given, now_ns=1)
    np.testing.assert_array_equal(archive.latest().layers["noise"].values, values)


def test_the_same_content_again_commits_nothing(archive: Archive) -> None:
    archive.add_layer(ground(), now_ns=1)
    before = archive.latest()
    again = archive.add_layer(ground(description="another file"), now_ns=2)
    assert not again.changed
    assert archive.latest().snapshot == before.snapshot


def test_an_old_snapshot_keeps_its_layer(archive: Archive) -> None:
    archive.add_layer(ground(2400.0, description="old"), now_ns=1)
    first = archive.latest()
    change = archive.add_layer(ground(2500.0, description="new"), now_ns=2)
    assert change.replaced is not None
    assert change.replaced.description == "old"
    second = archive.latest()
    removed = archive.remove_layer("elevation", now_ns=3)
    assert removed == change.entry
    third = archive.latest()
    assert third.snapshots[0].metadata["layers"] == ["elevation"]
    lowest = {
        number: float(Archive.open(archive.path, snapshot=one.snapshot).layers["elevation"].values[0, 0])
        for number, one in enumerate((first, second))
    }
    assert lowest == {0: 2400.0, 1: 2500.0}
    assert first.layers["elevation"].token != second.layers["elevation"].token
    assert list(third.layers) == []
    assert list(archive.layers) == []
    # What was there once can come again.
    assert archive.add_layer(ground(2400.0), now_ns=3).changed
    assert archive.latest().layers["elevation"].token == first.layers["elevation"].token


def test_a_smaller_layer_replaces_a_larger_one_whole(archive: Archive) -> None:
    archive.add_layer(ground(), now_ns=1)
    archive.add_layer(Layer("elevation", x=[7, 8], y=[45, 46], values=np.ones((2, 2))), now_ns=2)
    assert archive.latest().layers["elevation"].values.shape == (2, 2)


@pytest.mark.parametrize("name", ["zarr.json", "__x", "a/b", "Höhe", "..", " "])
def test_every_name_goes(archive: Archive, name: str) -> None:
    archive.add_layer(ground(name=name), now_ns=1)
    archive.add_layer(ground(), now_ns=2)
    newest = archive.latest()
    assert list(newest.layers) == [name, "elevation"]
    assert newest.layers[name].name == name
    archive.remove_layer(name, now_ns=3)
    assert list(archive.latest().layers) == ["elevation"]


def test_readings_and_layers_leave_each_other_alone(archive: Archive, readings: Build) -> None:
    rows = readings([("a", "2007-10-01T00:00", 1.5), ("b", "2007-10-01T00:00", 2.5)])
    with archive.commit(batch="1", message="both", now_ns=1) as writer:
        writer.readings(rows)
        writer.layer(ground())
    with archive.commit(batch="2", message="more", now_ns=2) as writer:
        writer.readings(readings([("a", "2007-10-01T00:02", 3.5)]))
    newest = archive.latest()
    assert count_content(newest)["air_temperature"]["readings"] == 3
    assert newest.layers["elevation"].token == ground().token
    assert "layers" not in newest.snapshots[0].metadata


def test_a_commit_that_fails_leaves_the_layers_as_they_were(archive: Archive) -> None:
    archive.add_layer(ground(), now_ns=1)
    before = archive.latest().snapshot

    def fail() -> None:
        with archive.commit(batch="2", message="never", now_ns=2) as writer:
            writer.layer(ground(1.0))
            writer.remove_layer("elevation")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert archive.latest().snapshot == before
    assert archive.latest().layers["elevation"].token == ground().token


def test_metres_and_unknown_names_are_refused(archive: Archive) -> None:
    metres = Layer("elevation", x=[0, 1], y=[0, 1], values=np.ones((2, 2)), system="metres")
    with pytest.raises(InvalidLayer, match="needs longitudes and latitudes"):
        archive.add_layer(metres, now_ns=1)
    archive.add_layer(ground(), now_ns=1)
    with pytest.raises(NotFound, match="did you mean 'elevation'"):
        archive.remove_layer("elevatoin", now_ns=2)
    assert len(archive.latest().snapshots) == 2


def test_queries_find_the_layers_of_their_snapshot(tmp_path: Path, readings: Build) -> None:
    air = KNOWN_VARIABLES["air_temperature"]
    made = Archive.create(tmp_path / "archive", name="pass", slice_s=120, variables=[air], now_ns=7)
    with made.commit(batch="1", message="readings", now_ns=8) as writer:
        writer.readings(readings([("a", "2007-10-01T00:00", 1.5)]))
    before = made.latest()
    made.add_layer(ground(), now_ns=9)
    opened = hg.open(made.path)
    assert list(opened.layers) == ["elevation"]
    assert len(hg.open(made.path, snapshot=before.snapshot).layers) == 0
    source = ArchiveSource(opened.store, air)
    assert source.layer("elevation") is opened.layers["elevation"]
    np.testing.assert_allclose(source.layer("elevation").sample([(7.05, 45.0)]), [2400.0 + 1.0 / 6.0])
    with pytest.raises(NotFound, match="unknown layer 'elevation'"):
        ArchiveSource(before, air).layer("elevation")
