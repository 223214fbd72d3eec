"""A slow account of what counters grew by: one reading at a time, lists and loops, pooling by hand.

It shares no code with `hypergrid.physics.counters`; what it must give is written there.
"""

import math
import statistics
from collections.abc import Callable, Sequence

DAY_NS = 86_400 * 10**9


def increments(
    series: Sequence[tuple[int, float]], max_gap_ns: int, resolution: float | None = None, rollover: float | None = None
) -> dict[int, float]:
    """Return by how much a counter grew up to each reading, by its place in the series.

    Parameters
    ----------
    series
        Times [ns] and values, in order of time, none missing.
    max_gap_ns
        Longest time between two readings over which the growth is known [ns].
    resolution, rollover
        As declared [the counter's unit]; None where they are not.
    """
    span, found = max(DAY_NS, max_gap_ns), {}
    for number, (now, _) in enumerate(series):
        window = now // span * span
        near = [i for i, (time, _) in enumerate(series) if window - span <= time < window + 2 * span]
        part = [series[i] for i in near]
        grown = _grown(tuple(part), max_gap_ns, resolution, rollover)
        value = grown[near.index(number)]
        if not math.isnan(value):
            found[number] = value
    return found


_KNOWN: dict[object, list[float]] = {}


def _grown(
    part: tuple[tuple[int, float], ...], max_gap_ns: int, resolution: float | None, rollover: float | None
) -> list[float]:
    key = (part, max_gap_ns, resolution, rollover)
    if key not in _KNOWN:
        if len(_KNOWN) > 200:
            _KNOWN.clear()
        _KNOWN[key] = _work_out(part, max_gap_ns, resolution, rollover)
    return _KNOWN[key]


def _changes(value: list[float]) -> list[float]:
    return [later - earlier for earlier, later in zip(value, value[1:], strict=False)]


def _work_out(
    part: tuple[tuple[int, float], ...], max_gap_ns: int, resolution: float | None, rollover: float | None
) -> list[float]:
    value = [shown for _, shown in part]
    gap = [later - earlier > max_gap_ns for (earlier, _), (later, _) in zip(part, part[1:], strict=False)]
    tiny = [1e-9 * max(abs(a), abs(b)) for a, b in zip(value, value[1:], strict=False)]
    step = _changes(value)
    odd = any(s < -t or (rollover is not None and s > 0.9 * rollover) for s, t in zip(step, tiny, strict=True))
    if not odd:
        return [math.nan, *(math.nan if g else max(s, 0.0) for s, g in zip(step, gap, strict=True))]
    changes = [abs(s) for s, t in zip(step, tiny, strict=True) if abs(s) > t]
    wobbles = [-s for i, (s, t) in enumerate(zip(step, tiny, strict=True))
               if s < -t and not 0 <= value[i + 1] <= value[i] / 2]  # fmt: skip
    noisy = len(wobbles) >= 5 and len(wobbles) >= 0.1 * len(changes)
    noise = statistics.median(wobbles) / (0.6744897501960817 * math.sqrt(2)) if noisy else 0.0
    quantum = resolution
    if quantum is None:
        quantum = min(changes) if len(changes) > 1 else 0.05 * sum(changes)
    held = _hold(value, part, gap, tiny, (noisy, noise, quantum), rollover)
    if not noisy:
        for i in _restarts(part, held, tiny, quantum):
            while i in held:
                value[i] = part[i][1]
                held.remove(i)
                i += 1  # noqa: PLW2901 - to the end of the dropout
    step = _changes(value)
    grown, kinds = _told_apart(value, step, part, gap, tiny, (noisy, noise, quantum), rollover)
    unknown = [math.isnan(g) for g in grown]
    breaks = [u or kind in ("reset", "rollover") for u, kind in zip(unknown, kinds, strict=True)]
    for i in range(len(grown)):
        if unknown[i]:
            grown[i] = _level(value, breaks, i, noise) if noisy else 0.0
    seconds = [(time - part[0][0]) / 1e9 for time, _ in part]
    if all(g >= -t for g, t in zip(grown, tiny, strict=True)):
        result = [max(g, 0.0) for g in grown]
    else:
        curve = [0.0]
        for g in grown:
            curve.append(curve[-1] + g)
        day_s = part[0][0] % DAY_NS / 1e9
        lost, rate = _drift(curve, seconds, day_s, noise, quantum) if noisy else (lambda _: 0.0, lambda _: 0.0)
        pooled = _isotonic([c + lost(s) for c, s in zip(curve, seconds, strict=True)])
        result = [max(b - a - max(rate((s + t) / 2), 0.0) * (t - s), 0.0)
                  for a, b, s, t in zip(pooled, pooled[1:], seconds, seconds[1:], strict=False)]  # fmt: skip
    return [math.nan, *(math.nan if u else r for u, r in zip(unknown, result, strict=True))]


def _hold(  # noqa: PLR0913 - what is known of the readings
    value: list[float], part: tuple[tuple[int, float], ...], gap: list[bool], tiny: list[float],
    gauge: tuple[bool, float, float], rollover: float | None,
) -> set[int]:  # fmt: skip
    """Hold what dropouts hide, and return where."""
    noisy, noise, quantum = gauge
    before = _changes(value)
    held: set[int] = set()
    for i, change in enumerate(before):
        falls = change < -tiny[i]
        if gap[i] or not (abs(change) > max(50 * quantum, 20 * noise) if noisy else falls or change > 50 * quantum):
            continue
        now = value[i + 1] - value[i]
        if abs(now) <= tiny[i] or (rollover is not None and abs(now) > rollover / 2):
            continue
        if now < 0 and value[i + 1] <= 2 * quantum:
            after = next((j for j in range(i + 2, len(value)) if value[j] > 2 * quantum), None)
            soon = after and (part[after][0] - part[0][0]) / 1e9 - (part[i][0] - part[0][0]) / 1e9 <= 7200.0
            if after and soon and abs(value[after] - value[i]) <= quantum + noise and abs(now) >= 10 * quantum:
                for k in range(i + 1, after):
                    value[k] = value[i]
                    held.add(k)
                continue
            if abs(now) < 50 * quantum:
                continue
        for j in range(i + 2, min(i + 5, len(value))):
            if (value[j - 1] - value[i]) * now <= 0:
                break
            back = value[j - 1] - value[j] if now > 0 else value[j] - value[j - 1]
            if 0.9 * abs(now) <= back <= 1.1 * abs(now):
                for k in range(i + 1, j):
                    value[k] = value[i]
                    held.add(k)
                break
    return held


def _restarts(
    part: tuple[tuple[int, float], ...], held: set[int], tiny: list[float], quantum: float
) -> list[int]:  # fmt: skip
    """Return where a dropout begins at whose time of day more falls to zero last on other days than do not."""
    dropouts, lasting = [], []
    for i in range(1, len(part)):
        before, after = part[i - 1][1], part[i][1]
        if before - after > tiny[i - 1] and after <= 2 * quantum and after <= before / 2:
            if i in held:
                dropouts.append(i)
            elif i + 3 < len(part) and part[-1][0] - part[i][0] >= 7200 * 10**9:
                lasting.append(i)

    def alike(i: int, j: int) -> bool:
        """Return whether two readings lie whole days apart, but for less than the time since the reading before."""
        late = (part[j][0] - part[i][0]) % DAY_NS
        length = part[i][0] - part[i - 1][0]
        return abs(part[j][0] - part[i][0]) > DAY_NS // 2 and min(late, DAY_NS - late) < length

    return [i for i in dropouts if sum(alike(i, j) for j in lasting) > sum(alike(i, j) for j in dropouts)]


def _told_apart(  # noqa: PLR0913 - what is known of the readings
    value: list[float], step: list[float], part: tuple[tuple[int, float], ...], gap: list[bool], tiny: list[float],
    gauge: tuple[bool, float, float], rollover: float | None,
) -> tuple[list[float], list[str]]:  # fmt: skip
    noisy, noise, quantum = gauge
    grown, kinds = list(step), [""] * len(step)
    near = max(2 * quantum, 4 * noise)
    for i, change in enumerate(step):
        if rollover is not None and change > 0.9 * rollover:
            grown[i] = change - rollover
        fall = -change
        if fall > tiny[i] and (not noisy or fall > 8 * noise):
            rates = [0.0]
            for j in range(max(i - 3, 0), min(i + 4, len(step))):
                usual = rollover is None or step[j] <= 0.9 * rollover
                if j != i and step[j] > 0 and usual:
                    rates.append(step[j] / ((part[j + 1][0] - part[0][0]) / 1e9 - (part[j][0] - part[0][0]) / 1e9))
            length = (part[i + 1][0] - part[0][0]) / 1e9 - (part[i][0] - part[0][0]) / 1e9
            raining = max(near, 4 * max(rates) * length)
            landed = near if noisy else raining
            lasts = not any(2 * step[j] >= fall for j in range(max(i - 3, 0), min(i + 4, len(step))) if j != i)
            if rollover is not None and (fall > rollover / 2 or (lasts and not noisy and value[i + 1] > near)):
                possible = (20 if value[i + 1] <= near else 250) * quantum * max(length, 600.0) / 600.0
                if rollover - fall <= max(raining, min(rollover / 4, possible)):
                    kinds[i] = "rollover"
                else:
                    kinds[i] = "reset" if value[i + 1] <= landed else "emptied"
            elif -near <= value[i + 1] <= landed and value[i + 1] <= value[i] / 2:
                kinds[i] = "reset"
            elif lasts or gap[i]:
                kinds[i] = "emptied"
            if kinds[i] == "reset":
                grown[i] = max(value[i + 1], 0.0)
            elif kinds[i] == "rollover" and rollover is not None:
                grown[i] = rollover - fall
            elif kinds[i] == "emptied":
                grown[i] = math.nan
    for i in [] if noisy else _unread_restarts(value, part, kinds, quantum):
        if step[i] > tiny[i]:
            rates = [0.0]
            for j in range(max(i - 3, 0), min(i + 4, len(step))):
                if j != i and step[j] > 0 and (rollover is None or step[j] <= 0.9 * rollover):
                    rates.append(step[j] / ((part[j + 1][0] - part[0][0]) / 1e9 - (part[j][0] - part[0][0]) / 1e9))
            length = (part[i + 1][0] - part[0][0]) / 1e9 - (part[i][0] - part[0][0]) / 1e9
            if value[i + 1] <= max(near, 4 * max(rates) * length):
                kinds[i], grown[i] = "reset", value[i + 1]
    for i in range(len(step)):
        if gap[i]:
            grown[i] = math.nan
    return grown, kinds


def _unread_restarts(
    value: list[float], part: tuple[tuple[int, float], ...], kinds: list[str], quantum: float
) -> list[int]:  # fmt: skip
    """Return the steps that lack a reading and hold the time of a restart on a day beside, if the day beyond fits."""
    ends = [(before[0], after[0]) for before, after in zip(part, part[1:], strict=False)]
    found = []
    for i, (begin, end) in enumerate(ends):
        for j, (earlier, later) in enumerate(ends):
            for day in (-DAY_NS, DAY_NS):
                if kinds[j] != "reset" or kinds[i] or 2 * (end - begin) <= 3 * (later - earlier):
                    continue
                holds = begin <= earlier + day and end >= later + day
                beyond = [k for k, (a, b) in enumerate(ends) if a < later + 2 * day and b > earlier + 2 * day]
                if holds and beyond and all(kinds[k] == "reset" or value[k] <= 2 * quantum for k in beyond):
                    found.append(i)
    return sorted(set(found))


def _level(value: list[float], breaks: list[bool], i: int, noise: float) -> float:
    """Return the step that lays what is on both sides of a break on one another.

    On each side that is the median of five readings, or where it rains the reading beside the break.
    """
    first, last = i, i + 1
    while first > 0 and not breaks[first - 1] and first > i - 4:
        first -= 1
    while last + 1 < len(value) and not breaks[last] and last < i + 5:
        last += 1
    before, after = value[first : i + 1], value[i + 1 : last + 1]
    if not _rises(before, noise):
        before = [statistics.median(before)]
    if not _rises(after, noise):
        after = [statistics.median(after)]
    return (value[i + 1] - after[0]) - (value[i] - before[-1])


def _rises(near: list[float], noise: float) -> bool:
    half = len(near) // 2
    return half > 0 and statistics.median(near[-half:]) - statistics.median(near[:half]) > 2 * noise


def _drift(
    curve: list[float], seconds: list[float], day_s: float, noise: float, quantum: float
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Return what drifted away until a second, and the rate of what evaporates at it."""
    length = max(3600.0, 4 * statistics.median(_changes(seconds)))
    bins: dict[int, list[float]] = {}
    for shown, second in zip(curve, seconds, strict=True):
        bins.setdefault(int(second // length), []).append(shown)
    numbers = list(bins)
    pairs = {b: (bins[a], bins[b]) for a, b in zip(numbers, numbers[1:], strict=False) if b - a == 1}
    change = {b: statistics.median(two) - statistics.median(one) for b, (one, two) in pairs.items()}
    if len(change) < 12:
        return (lambda _: 0.0), (lambda _: 0.0)
    usual = statistics.median(change.values())
    spread = 3 * 1.4826 * statistics.median(abs(c - usual) for c in change.values())
    calm = {
        b
        for b, (one, two) in pairs.items()
        if abs(change[b] - usual)
        < max(spread, 3 * (1.25 * noise * math.sqrt(1 / len(two) + 1 / len(one))), 1.01 * quantum)
    }
    # The bounds beside the first and the last are no bounds of hours: they forbid nothing.
    beside = dict(zip(numbers[1:], zip([None, *numbers[1:]], [*numbers[2:], None], strict=False), strict=False))
    dry = [b for b in calm if all(other is None or other in calm for other in beside[b])]
    if len(dry) < 12:
        return (lambda _: 0.0), (lambda _: 0.0)
    speed = 2 * math.pi / 86_400
    runs: list[list[int]] = []
    for b in numbers:
        if b in dry:
            runs[-1].append(b)
        else:
            runs.append([b])

    def losses(second: float) -> list[float]:
        turn = speed * (day_s + second)
        return [second / 86_400, math.sin(turn), math.cos(turn)]

    rows: list[list[float]] = []
    for run in runs:
        mine = [[*losses((b + 0.5) * length), -statistics.median(bins[b])] for b in run]
        means = [math.fsum(column) / len(mine) for column in zip(*mine, strict=True)]
        rows += [[x - mean for x, mean in zip(row, means, strict=True)] for row in mine]
    normal = [[math.fsum(row[i] * row[j] for row in rows) for j in range(4)] for i in range(3)]
    normal[1][1] += 3.0
    normal[2][2] += 3.0
    first_of_inverse = _solved([[*normal[i][:3], float(i == 0)] for i in range(3)])[0]
    daily, sine, cosine = _solved([*normal])
    left = [row[3] - daily * row[0] - sine * row[1] - cosine * row[2] for row in rows]
    misfit = math.fsum(x * x for x in left) / len(left)
    expected = math.fsum((1.25 * noise) ** 2 / len(shown) for shown in bins.values()) / len(bins)
    if daily < 0 and daily * daily > 9 * min(misfit, expected) * first_of_inverse:
        return (lambda _: 0.0), (lambda _: 0.0)
    if daily < 0:
        # The best fit that does not rise has no line.
        daily, (sine, cosine) = 0.0, _solved([row[1:] for row in normal[1:]])
    mean, height = daily / 86_400, speed * math.hypot(sine, cosine)
    share = min(1.0, math.pi / 2 * mean / height) if height else 0.0

    def lost(second: float) -> float:
        line, up, along = losses(second)
        return daily * line + sine * up + cosine * along

    def rate(second: float) -> float:
        turn = speed * (day_s + second)
        return mean + share * speed * (sine * math.cos(turn) - cosine * math.sin(turn))

    return lost, rate


def _solved(rows: list[list[float]]) -> list[float]:
    """Return the solution of equations whose right side is each row's last number: elimination, and back."""
    size = len(rows)
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [b - factor * a for a, b in zip(rows[i], rows[j], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (rows[i][size] - math.fsum(rows[i][j] * found[j] for j in range(i + 1, size))) / rows[i][i]
    return found


def _isotonic(curve: list[float]) -> list[float]:
    """Return the rising curve of least squares: neighbours that fall are pooled to their mean."""
    pools: list[tuple[float, int]] = []
    for level in curve:
        pool = (level, 1)
        while pools and pools[-1][0] >= pool[0]:
            mean, size = pools.pop()
            pool = ((mean * size + pool[0] * pool[1]) / (size + pool[1]), size + pool[1])
        pools.append(pool)
    return [mean for mean, size in pools for _ in range(size)]
