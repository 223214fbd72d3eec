"""Surfaces in pieces of time have the numbers of surfaces that are computed whole, to the last bit but for sums."""

import pickle
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import DamagedArchive, InvalidQuery, TooLarge
from hypergrid.core.result_dataset import restore
from hypergrid.formats import partitioned
from hypergrid.formats.partitioned import (
    compute_piece,
    gather,
    load_piece,
    pieces_token,
    save_piece,
    split_pieces,
)
from hypergrid.query import OpenArchive, Query
from tests.bench.reprocess_archive import make_archive

MODEL = {"model": "exponential", "psill": 20.0, "range_m": 30000.0, "nugget": 0.5}
KRIGED = {
    "op": "interpolate",
    "method": "ordinary_kriging",
    "grid": {"lon": 7.2, "lat": 46.2, "step": "360arcsec", "shape": [4, 5]},
    "params": {"variogram": MODEL},
}
DAILY = {"op": "aggregate", "function": "mean", "time": "1day"}
HOURLY = {"op": "aggregate", "function": "mean", "time": "1h"}

QUESTIONS: Mapping[str, tuple[dict[str, Any], int]] = {
    # What is asked, and how many pieces it comes in at least.
    "daily means, kriged": ({"steps": [DAILY, KRIGED]}, 5),
    "kriged and then averaged, with its variance": (
        {"steps": [HOURLY, KRIGED, DAILY],
         "variance": {"correlation_time": "6h"}}, 5,
    ),
    "windows that overlap": (
        {"steps": [{"op": "aggregate", "function": "max", "time": {"length": "36h", "step": "6h"}}]}, 5,
    ),
    "months": ({"steps": [{"op": "aggregate", "function": "mean", "time": "month"}]}, 2),
    "instants between readings": ({"steps": [HOURLY, {"op": "interpolate", "method": "linear", "time": "25min"}]}, 5),
    "other flags, clipped": (
        {"steps": [DAILY], "accept_flags": [1], "clip": {"time": ["2021-01-03", "2021-01-29T12:00"]}}, 2,
    ),
    "compared with what is normal": (
        {"steps": [HOURLY, {"op": "merge", "function": "anomaly", "with": [
            {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "hour_of_day"}]}
        ]}]}, 2,
    ),
    "cells that come again": ({"steps": [{"op": "aggregate", "function": "mean", "time": "hour_of_day"}]}, 1),
    "one cell": ({"steps": [DAILY, KRIGED, {"op": "aggregate", "function": "mean", "time": "all"}]}, 1),
    "a variogram that is fitted": (
        {"steps": [DAILY, {**KRIGED, "params": {"variogram": "fit"}}]}, 1,
    ),
}  # fmt: skip


LOOK_AROUND = ("windows that overlap", "instants between readings", "compared with what is normal")
"""Those whose pieces need readings that others need too."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> OpenArchive:
    folder = tmp_path_factory.mktemp("in_parts") / "a"
    made = make_archive(folder, days=40, stations=8)
    readings = made.read("air_temperature")
    # Some readings are suspect, and left out.
    rows = (readings.time_ns % 7 == 0) & (np.arange(len(readings)) % 3 == 0)
    suspect = replace(readings, flag=np.where(rows, 3, 2).astype(np.uint8))
    with made.commit(batch="flags", message="flags", now_ns=1) as writer:
        writer.flags(suspect)
    return hg.open(folder)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned, "READINGS_OF_A_PIECE", 8_000)
    monkeypatch.setattr(partitioned, "CELLS_OF_A_PIECE", 200)


def _query(archive: OpenArchive, name: str) -> Query:
    return archive.query({"variable": "air_temperature", **QUESTIONS[name][0]})


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
@pytest.mark.parametrize("name", list(QUESTIONS))
def test_pieces_give_what_the_whole_gives(archive: OpenArchive, tmp_path: Path, name: str, suffix: str) -> None:
    query = _query(archive, name)
    expected = query.compute()
    ranges = split_pieces(query, workers=3)
    fewest = QUESTIONS[name][1]
    assert len(ranges) >= fewest if fewest > 1 else len(ranges) == 1
    assert (ranges[0].start, ranges[-1].stop) == (0, expected["value"].shape[0])
    assert all(one.stop == two.start for one, two in zip(ranges[:-1], ranges[1:], strict=True))
    places = []
    for one in ranges:
        places.append(tmp_path / f"{one.start}.npz")
        save_piece(compute_piece(query, one), places[-1])
    missing = gather(query, zip(ranges, places, strict=True), tmp_path / f"out{suffix}", history="tested")
    found = xr.open_zarr(tmp_path / "out.zarr") if suffix == ".zarr" else xr.open_dataset(tmp_path / "out.nc")
    with found as opened:
        found = restore(opened)
        assert set(found.variables) == set(expected.variables)
        for key in expected.variables:
            if expected[key].dtype.kind == "f":
                np.testing.assert_allclose(found[key].values, expected[key].values, rtol=1e-11, atol=1e-11, err_msg=key)
            else:
                np.testing.assert_array_equal(found[key].values, expected[key].values, key)
        # Readings that several pieces need are left out in each, so that their number is another.
        untold = {"history", "comment", *(["hypergrid_readings_left_out"] if name in LOOK_AROUND else [])}
        told, wanted = ({k: v for k, v in one.attrs.items() if k not in untold} for one in (found, expected))
        assert told == wanted
        assert missing == int(expected["value"].isnull().sum())
    assert hg.again(tmp_path / f"out{suffix}", archive).confirmed
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".npz") == [f"out{suffix}"]


def test_pieces_of_another_question_have_another_name(archive: OpenArchive) -> None:
    one, two = _query(archive, "daily means, kriged"), _query(archive, "months")
    ranges = split_pieces(one, workers=1)
    names = {pieces_token(one, ranges), pieces_token(one, ranges[1:]), pieces_token(two, ranges)}
    assert len(names) == 3
    assert pieces_token(_query(archive, "daily means, kriged"), ranges) in names


def test_a_piece_is_there_whole_or_not_at_all(archive: OpenArchive, tmp_path: Path) -> None:
    query = _query(archive, "daily means, kriged")
    piece = compute_piece(query, slice(3, 5))
    (tmp_path / ".a.npz").write_bytes(b"half of it")
    save_piece(piece, tmp_path / "a.npz")
    np.testing.assert_array_equal(load_piece(tmp_path / "a.npz").value, piece.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


class _Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('it ran')",)


def test_a_piece_is_data_and_what_was_written_or_refused(archive: OpenArchive, tmp_path: Path) -> None:
    query = _query(archive, "kriged and then averaged, with its variance")
    path, random = tmp_path / "a.npz", np.random.default_rng(1)
    piece = compute_piece(query, split_pieces(query, workers=1)[0])
    save_piece(piece, path)
    content, silent = path.read_bytes(), 0
    headers = [match.start() + at for match in re.finditer(b"PK|NUMPY", content) for at in range(0, 130, 3)]
    for place in [*random.integers(0, len(content), 300).tolist(), *(at for at in headers if at < len(content))]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            found = load_piece(path)
        except DamagedArchive:
            continue
        silent += 1
        for name in ("value", "count", "possible", "variance", "variance_low", "extrapolated"):
            np.testing.assert_array_equal(getattr(found, name), getattr(piece, name))
        assert (found.left_out, found.notes, found.correlation) == (piece.left_out, piece.notes, piece.correlation)
    assert silent < 200, "bits that say nothing, as the time in a header"
    for other in (b"", content[:-1], content[:100], pickle.dumps(_Harmful())):
        path.write_bytes(other)
        with pytest.raises(DamagedArchive, match="is not what was written .* start the same command again"):
            load_piece(path)


def test_what_does_not_fit_in_memory_is_to_be_a_store(
    archive: OpenArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioned, "free_bytes", lambda: 1000)
    with pytest.raises(TooLarge, match=r"name it \.zarr"):
        gather(_query(archive, "daily means, kriged"), [], tmp_path / "out.nc", history="")


def test_what_cannot_be_asked_is_refused_before(archive: OpenArchive) -> None:
    with pytest.raises(InvalidQuery):
        split_pieces(
            archive.query({"variable": "air_temperature", "steps": [KRIGED, DAILY]}).clip(
                time=("2030-01-01", "2031-01-01")
            ),
            workers=1,
        )
