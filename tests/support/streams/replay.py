"""Recorded arrivals: the sample network's, and the motes' of Brussels; recorded stamps: the Grand-St-Bernard's."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hypergrid.core.errors import NotFound
from hypergrid.core.times import SECOND_NS
from tests.support.streams.arrivals import Arrivals, Integers

MILLISECOND_NS = SECOND_NS // 1000
DAY_S = 86_400
EPOCH_COLUMN = 7
"""Column of the stamp [s since 1970] in a station's text file; the first is 0."""


def sample_network(folder: Path, *, slice_s: int = 120, column: int = 8) -> Arrivals:
    """Return the arrivals of a network that `station_data.generate` wrote: a stream a station, by their numbers.

    Parameters
    ----------
    folder
        With `arrivals.csv` and `sensorscope/*-<station>.txt`.
    slice_s
        Length of a slice [s]: the key is the slice that the stamp falls into, counted from 1970-01-01T00:00Z.
    column
        Which column of the text files is the payload; 8 is the air temperature [degC].

    Returns
    -------
    Arrivals
        Every row of `arrivals.csv`, also those of clocks that were wrong; the payload is NaN where the reading is
        missing.

    Raises
    ------
    NotFound
        The folder has no `arrivals.csv`.
    """
    with _existing(folder / "arrivals.csv").open(newline="") as lines:
        rows = [(int(row["station"]), int(row["time"]), float(row["arrival"])) for row in csv.DictReader(lines)]
    values: dict[tuple[int, int], float] = {}
    for path in sorted((folder / "sensorscope").glob("*.txt")):
        for line in path.read_text().splitlines():
            words = line.split()
            values[int(words[0]), int(words[EPOCH_COLUMN])] = float(words[column])
    stations = [station for station, _, _ in rows]
    payload = [values.get((station, time), np.nan) for station, time, _ in rows]
    # To the millisecond, as it was written: seconds since 1970 as doubles are no exact nanoseconds.
    arrival_ns = [round(arrival * 1000) * MILLISECOND_NS for _, _, arrival in rows]
    return _in_order(stations, [time // slice_s for _, time, _ in rows], payload, arrival_ns)


def station_stamps(folder: Path, *, days: int = 7) -> list[Integers]:
    """Return the stamps of the stations of the Grand-St-Bernard (`sensorscope_gsb`) in the days with most readings.

    Parameters
    ----------
    folder
        With `stbernard-meteo-<station>.txt`, whose clocks are recorded and whose arrivals are not.
    days
        How many whole days (UTC) in a row.

    Returns
    -------
    list of (n,) integers
        Stamps of each station that sent anything then [s since 1970], in order, each once.

    Raises
    ------
    NotFound
        There are no such files.
    """
    paths = sorted(folder.glob("stbernard-meteo-*.txt")) or [_existing(folder / "stbernard-meteo-2.txt")]
    stamps = [np.unique([int(line.split()[EPOCH_COLUMN]) for line in path.open()]) for path in paths]
    each_day = np.bincount(np.concatenate(stamps) // DAY_S)
    first = int(np.convolve(each_day, np.ones(days), "valid").argmax())
    kept = [own[(own >= first * DAY_S) & (own < (first + days) * DAY_S)] for own in stamps]
    return [own for own in kept if len(own)]


def motes(path: Path) -> Arrivals:
    """Return the arrivals of 19 motes (`ulb_wsn/R1.txt`): a stream a node, in the order of their numbers.

    The key is the one-minute sequence that a packet belongs to, the payload the temperature [degC]; instants are those
    of the base station's clock, to the millisecond.

    Raises
    ------
    NotFound
        There is no such file.
    """
    rows = [line.split() for line in _existing(path).read_text().splitlines() if line.strip()]
    return _in_order(
        [int(words[1]) for words in rows],
        [int(words[2]) for words in rows],
        [float(words[3].replace(",", ".")) for words in rows],
        [int(words[0]) * MILLISECOND_NS for words in rows],
    )


def _existing(path: Path) -> Path:
    if not path.is_file():
        message = f"a replay of recorded arrivals needs {path}, which does not exist; give where the recording lies"
        raise NotFound(message)
    return path


def _in_order(
    sources: Sequence[int], keys: Sequence[int], payload: Sequence[float], arrival_ns: Sequence[int]
) -> Arrivals:
    numbers, stream = np.unique(np.array(sources), return_inverse=True)
    instants = np.array(arrival_ns, np.int64)
    columns = (stream.astype(np.int32), np.array(keys, np.int64), np.array(payload, np.float64), instants)
    return Arrivals(len(numbers), *columns).take(np.argsort(instants, kind="stable"))
