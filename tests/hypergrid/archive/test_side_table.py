"""The side table, of which a window reads only the chunks that reach into it."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hypergrid.archive import Archive
from hypergrid.archive.arrays import variable_group
from hypergrid.core.readings import Readings
from hypergrid.core.times import Window
from hypergrid.core.units import Variable

Build = Callable[..., Readings]
Rows = Callable[[Readings], list[tuple[object, ...]]]
SLICE = 120 * 10**9

ROW = st.tuples(
    st.sampled_from(["s0", "s1"]), st.integers(0, 40).map(lambda n: n * SLICE // 3), st.sampled_from([1.0, 2.0, 3.0])
)
BATCHES = st.lists(st.lists(ROW, max_size=20), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty") / "archive"
    Archive.create(folder, name="p", slice_s=120, variables=[Variable("v")], now_ns=0)
    return folder


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(batches=BATCHES, first=st.integers(0, 40), length=st.integers(1, 12), forgets=st.booleans())
def test_a_window_reads_what_lies_in_it(
    empty: Path,
    readings: Build,
    rows: Rows,
    batches: list[list[tuple[str, int, float]]],
    first: int,
    length: int,
    *,
    forgets: bool,
) -> None:
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(variable_group, "CHUNK_ROWS", 3)
        archive = Archive.open(shutil.copytree(empty, Path(scratch) / "archive"))
        expected: dict[tuple[str, int], float] = {}
        for number, batch in enumerate(batches):
            with archive.commit(batch=str(number), message="", now_ns=number) as writer:
                writer.readings(readings(batch, variable="v"))
                if forgets and number == 0:
                    # As archives of earlier programs are.
                    _forget(writer._groups)  # noqa: SLF001
            expected |= {(station, stamp): value for station, stamp, value in batch}
        newest = archive.latest()
        window = Window(first * SLICE // 3, (first + length) * SLICE // 3)
        found = {(str(row[0]), int(str(row[1]))): row[2] for row in rows(newest.read("v", window=window))}
        assert found == {key: value for key, value in expected.items() if window.start_ns <= key[1] < window.stop_ns}
        for superseded in (False, True):
            every = rows(newest.read("v", superseded=superseded))
            inside = [row for row in every if window.start_ns <= int(str(row[1])) < window.stop_ns]
            assert rows(newest.read("v", window=window, superseded=superseded)) == inside
        assert list(newest.check()) == []


def _forget(groups: dict[str, variable_group.VariableGroup]) -> None:
    for group in groups.values():
        group.spans = None
        del group.group.attrs["side"]


def test_flags_reach_rows_of_any_chunk(empty: Path, readings: Build, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variable_group, "CHUNK_ROWS", 3)
        archive = Archive.open(shutil.copytree(empty, tmp_path / "archive"))
        given = readings([("a", n * SLICE + k, 1.0) for n in range(20) for k in (0, 5)], variable="v")
        with archive.commit(batch="1", message="", now_ns=1) as writer:
            writer.readings(given)
        some = archive.latest().read("v").take_rows(np.array([17, 18, 19]))
        judged = replace(some, flag=np.full(3, 3, np.uint8), tests=np.full(3, 4, np.uint16))
        with archive.latest().commit(batch="2", message="", now_ns=1) as writer:
            assert writer.flags(judged) == 3
        found = archive.latest().read("v", tests=True)
        assert np.flatnonzero(found.flag == 3).tolist() == [17, 18, 19]
        assert found.tests is not None
        assert np.flatnonzero(found.tests).tolist() == [17, 18, 19]


def test_only_chunks_that_reach_into_a_window_are_read(
    empty: Path, readings: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variable_group, "CHUNK_ROWS", 10)
    archive = Archive.open(shutil.copytree(empty, tmp_path / "archive"))
    with archive.commit(batch="1", message="", now_ns=1) as writer:
        rows = [("a", n * SLICE + k, 1.0) for n in range(200) for k in (0, 5)]
        writer.readings(readings(rows, variable="v"))
    asked: list[slice] = []
    read = variable_group.ColumnTable.read

    def watched(self: variable_group.ColumnTable, *names: str, rows: slice = slice(None)) -> list[np.ndarray]:
        asked.append(rows)
        return read(self, *names, rows=rows)

    monkeypatch.setattr(variable_group.ColumnTable, "read", watched)
    found = archive.latest().read("v", window=Window(95 * SLICE, 105 * SLICE))
    assert len(found) == 20
    assert asked == [slice(90, 110)]
