"""Rows of a stream that wait on disk: beyond a limit of memory, until their slices are due (DBF of thesis 3.5.2).

The join holds the numbers of rows, with 32 bytes for each and some for each slice; the rows themselves are many times
as large and needed only when their slice closes. The oldest ones are written in order of arrival, so no index is
needed: a file has all rows that waited between two numbers. Files never change. Which rows of them still wait is part
of the state of the stream, so a batch that is repeated from an earlier state finds them again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hypergrid.core.errors import HyperGridError, InvalidQuery
from hypergrid.core.files import replace_atomically, seal, sync_folder, unseal
from ingest.streaming.spool_decoder import RowBatch, concatenate_batches

VERSION: Final = 1
MAGIC: Final = b"HGROWS"
KEPT_VERSIONS: Final = 6
"""Batches for which a file stays after its last use: Spark repeats its last ones, and has the states of four."""
_MIX: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9))
"""Odd constants of a mixing function (splitmix64)."""


class StateUnusable(HyperGridError):
    """The saved state of a stream is damaged or of another version.

    The stream can restart from its spool.
    """


@dataclass
class _RowFile:
    """A file of rows, f of them, in order of their numbers."""

    name: str
    first: int
    last: int
    """Numbers of its first and last row."""
    first_seq: int
    """First spool record among its rows."""
    gone: NDArray[np.bool_]
    """Rows that wait no more, shape (f,)."""
    readings: int
    """Readings of the rows that wait."""
    keys: NDArray[np.uint64]
    """Hashes of stations and instants of the rows, ascending, shape (f,)."""
    emptied: int = -1
    """Batch after which none of its rows waited; -1: some do."""

    @property
    def rows(self) -> int:
        return int(np.count_nonzero(~self.gone))


class SpilledRows:
    """Rows on disk of one group of stations.

    Parameters
    ----------
    folder
        Their files; made with the first one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[_RowFile] = []

    def __len__(self) -> int:
        return sum(file.rows for file in self._files)

    @property
    def readings(self) -> int:
        return sum(file.readings for file in self._files)

    @property
    def first_seq(self) -> int | None:
        """First spool record with a row in a file that is not empty; None if there is none."""
        return min((file.first_seq for file in self._files if file.emptied < 0), default=None)

    @property
    def memory_bytes(self) -> int:
        """Memory of what is known of the rows [bytes]."""
        return sum(file.keys.nbytes + file.gone.nbytes for file in self._files if file.emptied < 0)

    @property
    def disk_bytes(self) -> int:
        """Size of the files, including those that stay for a while [bytes]."""
        return sum(path.stat().st_size for path in self._folder.glob("*.*"))

    def write(self, rows: RowBatch, numbers: NDArray[np.int64], *, version: int) -> None:
        """Write rows, whose numbers ascend and exceed all before, durably; `version` is the batch that does."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # A repeated batch writes the same rows under the same name.
        name = f"{version:012d}-{int(numbers[0]):015d}"
        keys = np.sort(hash_keys(rows))
        content = seal(MAGIC, VERSION, rows.to_bytes(numbers=numbers.tobytes()))
        with replace_atomically(self._folder / f"{name}.keys", durable=True) as path, path.open("wb") as file:
            np.save(file, keys)
        with replace_atomically(self._folder / f"{name}.rows", durable=True) as path:
            path.write_bytes(content)
        sync_folder(self._folder)
        gone = np.zeros(len(rows), np.bool_)
        self._files.append(
            _RowFile(name, int(numbers[0]), int(numbers[-1]), int(rows.seq.min()), gone, rows.readings, keys)
        )

    def find_same(self, rows: RowBatch, left_out: NDArray[np.int64]) -> RowBatch:
        """Return the waiting rows with a station and instant of some rows, in order of arrival.

        Rows whose numbers are `left_out` are not among them.
        """
        wanted = np.unique(hash_keys(rows))
        same = [RowBatch.empty(rows.origins, rows.columns)]
        for file in self._files:
            if file.emptied < 0 and _has_any(file.keys, wanted):
                held, numbers = self._read(file, rows)
                is_same = np.isin(hash_keys(held), wanted)
                same.append(held.take(is_same & ~file.gone & ~np.isin(numbers, left_out)))
        return concatenate_batches(same)

    def take(self, numbers: NDArray[np.int64], like: RowBatch, *, version: int) -> list[RowBatch]:
        """Take rows out, by their numbers, which ascend, in parts; origins and columns are those of `like`."""
        parts: list[RowBatch] = []
        for file in self._files:
            wanted = numbers[slice(*np.searchsorted(numbers, [file.first, file.last + 1]))]
            if not len(wanted):
                continue
            held, own = self._read(file, like)
            at = np.searchsorted(own, wanted)
            if not np.array_equal(own[np.minimum(at, len(own) - 1)], wanted) or file.gone[at].any():
                raise StateUnusable(f"{self._folder / file.name} lacks rows that wait")
            parts.append(held.take(at))
            file.gone[at] = True
            file.readings -= parts[-1].readings
            if file.gone.all():
                file.emptied = version
        lacking = len(numbers) - sum(map(len, parts))
        if lacking:
            raise StateUnusable(f"{lacking} rows that wait are in no file of {self._folder}")
        return parts

    def sweep(self, version: int) -> None:
        """Remove files that no repeated batch can need any more."""
        for file in [file for file in self._files if 0 <= file.emptied <= version - KEPT_VERSIONS]:
            for suffix in (".keys", ".rows"):
                (self._folder / f"{file.name}{suffix}").unlink(missing_ok=True)
            self._files.remove(file)

    def _read(self, file: _RowFile, like: RowBatch) -> tuple[RowBatch, NDArray[np.int64]]:
        """Read a file: its rows and their numbers."""
        path = self._folder / f"{file.name}.rows"
        try:
            rows, _, more = RowBatch.from_bytes(unseal(path.read_bytes(), MAGIC, VERSION, label="a stream"))
        except (FileNotFoundError, InvalidQuery, pa.ArrowException, LookupError, ValueError) as error:
            raise StateUnusable(f"rows that wait cannot be read: {path}: {error}") from error
        # Numbers of origins and columns are permanent; there may be more of them by now.
        return replace(rows, origins=like.origins, columns=like.columns), np.frombuffer(more["numbers"], np.int64)

    def to_json(self) -> list[dict[str, Any]]:
        """Describe the files, without which rows of them have gone (`gone_bits`)."""
        return [
            {
                "name": file.name, "first": file.first, "last": file.last, "first_seq": file.first_seq,
                "readings": file.readings, "emptied": file.emptied, "size": len(file.gone),
            }
            for file in self._files
        ]  # fmt: skip

    def gone_bits(self) -> bytes:
        """Return which rows of all files have gone, a bit each."""
        return np.packbits(np.concatenate([np.zeros(0, np.bool_), *(file.gone for file in self._files)])).tobytes()

    @classmethod
    def restore(cls, folder: Path, described: Iterable[Mapping[str, Any]], gone_bits: bytes) -> "SpilledRows":
        """Restore rows from `to_json` and `gone_bits`.

        Raises
        ------
        StateUnusable
            A file is missing.
        """
        made, start = cls(folder), 0
        bits = np.unpackbits(np.frombuffer(gone_bits, np.uint8)).astype(np.bool_)
        for entry in described:
            about = dict(entry)
            size = about.pop("size")
            try:
                # A batch that was lost may have removed files that are empty.
                keys = np.load(folder / f"{about['name']}.keys") if about["emptied"] < 0 else np.zeros(0, np.uint64)
            except (FileNotFoundError, ValueError, EOFError) as error:
                raise StateUnusable(f"rows that wait cannot be read: {error}") from error
            made._files.append(_RowFile(**about, gone=bits[start : start + size].copy(), keys=keys))
            start += size
        return made


def hash_keys(rows: RowBatch) -> NDArray[np.uint64]:
    """Hash station and instant of each row, shape (m,); equal hashes of different ones cost time and nothing else."""
    with np.errstate(over="ignore"):
        mixed = rows.time_ns.astype(np.uint64) * _MIX[0] + rows.origin.astype(np.uint64) * _MIX[1]
        return (mixed ^ (mixed >> np.uint64(31))) * _MIX[1]


def _has_any(keys: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> bool:
    """Tell whether ascending keys have any of the wanted ones."""
    at = np.searchsorted(keys, wanted)
    inside = at < len(keys)
    return bool((keys[at[inside]] == wanted[inside]).any())
