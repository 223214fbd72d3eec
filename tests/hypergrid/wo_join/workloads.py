"""Random workloads, and what is to come of them, by slow and obvious means."""

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from hypergrid.wo_join import KnownParameters, Matches, WoJoin


@dataclass(frozen=True)
class Workload:
    streams: int
    stream: np.ndarray
    key: np.ndarray
    payload: np.ndarray
    arrival: np.ndarray

    def rows(self) -> np.ndarray:
        count = [0] * self.streams
        rows = []
        for stream in self.stream:
            rows.append(count[stream])
            count[stream] += 1
        return np.array(rows, np.int64)

    def keys_of(self, stream: int) -> list[int]:
        return self.key[self.stream == stream].tolist()

    def by_key(self) -> dict[int, list[list[int]]]:
        """Rows of each stream, by key."""
        groups: dict[int, list[list[int]]] = defaultdict(lambda: [[] for _ in range(self.streams)])
        for stream, key, row in zip(self.stream, self.key, self.rows(), strict=True):
            groups[int(key)][stream].append(int(row))
        return groups

    def joined(self) -> list[tuple[int, ...]]:
        """All combinations with one key, sorted."""
        return sorted(c for groups in self.by_key().values() for c in itertools.product(*groups))


def workload(seed: int, streams: int | None = None, keys: int = 60) -> Workload:
    """Keys from 0 on with holes and repetitions, out of order and lagging, of 2 to 8 streams."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9)) if streams is None else streams
    most = int(rng.integers(1, 4 if n < 5 else 2)) + (n < 4)
    scale = int(rng.choice([1, 7, 60_000_000_000]))
    stream, key, moment = [], [], []
    for i in range(n):
        repeats = rng.integers(0 if rng.random() < 0.5 else 1, most + 1, keys)
        own = np.repeat(np.arange(keys), repeats)
        stream.append(np.full(len(own), i))
        key.append(own * scale - 5)
        moment.append(own + rng.integers(0, 15) + rng.uniform(0, rng.choice([0.1, 3, 12]), len(own)))
    order = np.argsort(np.concatenate(moment), kind="stable")
    return Workload(
        n,
        np.concatenate(stream)[order].astype(np.int32),
        np.concatenate(key)[order],
        rng.normal(size=len(order)),
        (np.sort(np.concatenate(moment)) * 1e9).astype(np.int64),
    )


def scrambling_factor(keys: list[int]) -> int:
    """Definition 3.2.2, pair by pair."""
    return max((j - i for i, a in enumerate(keys) for j in range(i + 1, len(keys)) if keys[j] <= a), default=0)


def disorder(keys: list[int]) -> int:
    return max((max(keys[: j + 1]) - key for j, key in enumerate(keys)), default=0)


def multiplicities(load: Workload) -> tuple[int, ...]:
    return tuple(max(Counter(load.keys_of(i)).values(), default=1) for i in range(load.streams))


def lag_over_time(load: Workload, i: int, j: int) -> list[int]:
    """Definition 3.2.6 after every arrival, with full knowledge; all of i while j has brought nothing."""
    sorted_j, all_i = sorted(load.keys_of(j)), np.array(load.keys_of(i))
    lags, n_i, n_j = [], 0, 0
    for stream in load.stream:
        n_i += stream == i
        n_j += stream == j
        lags.append(n_i if n_j == 0 else n_i - int(np.sum(all_i <= sorted_j[n_j - 1])))
    return lags


def known(load: Workload) -> KnownParameters:
    """All parameters, with full knowledge; what comes in bursts beyond the mean rates is added to the lag."""
    n = load.streams
    factors = [scrambling_factor(load.keys_of(i)) for i in range(n)]
    counts = [max(1, len(load.keys_of(i))) for i in range(n)]
    lags = np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        so_far = np.cumsum(load.stream == i)[load.stream == j]
        most = max((so_far[b] - so_far[max(0, b - factors[j])] for b in range(len(so_far))), default=0)
        excess = max(0.0, most - counts[i] * factors[j] / counts[j])
        lags[i, j] = max(lag_over_time(load, i, j)) + excess
    return KnownParameters(
        scrambling_factor=tuple(factors),
        rate_hz=tuple(map(float, counts)),
        lag=tuple(map(tuple, lags.tolist())),
        disorder=tuple(disorder(load.keys_of(i)) for i in range(n)),
    )


def least_window(load: Workload) -> int:
    """The least number of tuples of each stream that, kept, lose nothing."""
    position = [[] for _ in range(load.streams)]
    for place, stream in enumerate(load.stream):
        position[stream].append(place)
    widest = 1
    for combination in load.joined():
        last = max(position[i][row] for i, row in enumerate(combination))
        for i, row in enumerate(combination):
            widest = max(widest, int(np.searchsorted(position[i], last, side="right")) - row)
    return widest


def pushed(join: WoJoin, load: Workload, cuts: int, seed: int = 0) -> list[Matches]:
    """Push it in so many pieces."""
    places = np.sort(np.random.default_rng(seed).integers(0, len(load.key) + 1, cuts - 1)).tolist()
    found = []
    for start, stop in itertools.pairwise([0, *places, len(load.key)]):
        columns = (column[start:stop] for column in (load.stream, load.key, load.payload, load.arrival))
        found.append(join.push(*columns))
    found.append(join.finish())
    return found


def together(found: list[Matches]) -> tuple[np.ndarray, ...]:
    """Columns of all results, one after the other."""
    names = ("rows", "payloads", "key", "at")
    return tuple(np.concatenate([getattr(matches, name) for matches in found]) for name in names)


def late_of(found: list[Matches]) -> list[tuple[int, int]]:
    """Stream and row of every late tuple."""
    return [pair for m in found for pair in zip(m.late.stream.tolist(), m.late.row.tolist(), strict=True)]
