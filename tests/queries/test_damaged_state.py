"""State beside the data: whichever bit flips, a read gives what was written, leaves the row out, or says so."""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hypergrid.store.row_checksums import DamagedState, find_damage, read_line
from queries.scheduling.journal import Journal
from queries.standing.definition import definition_from_json
from queries.standing.store import Alert, CatalogueUnavailable, Found, Progress, StandingStore
from queries.web.audit import Audit
from queries.web.keys import KeyStore

NOW_NS = 1_700_000_000 * 10**9
FLIPS = 400
"""Bits that are flipped in each file, one at a time."""
Values = dict[str, Any]
"""What a file holds, by row."""


def write_keys(path: Path) -> None:
    store = KeyStore(path)
    for number in range(6):
        store.create(f"key-{number}", "query", now_ns=NOW_NS, limits={"cells": 1000.0 + number})
    store.revoke("key-2", now_ns=NOW_NS + 1)
    store.close()


def read_keys(path: Path) -> Values:
    store = KeyStore(path)
    try:
        assert store.exist, "access control must not go off"
        found = {key.id: (key, store._row(key.id)) for key in store.keys()}
        return found | {f"get {key_id}": store.get(key_id) for key_id in found}
    finally:
        store.close()


def write_jobs(path: Path) -> None:
    journal = Journal(path, now_ns=NOW_NS)
    for number in range(6):
        job = SimpleNamespace(
            id=f"job-{number}", owner="alice", token=f"t{number}", snapshot="S", created_ns=NOW_NS + number,
            document={"variable": "air_temperature", "steps": [{"op": "aggregate", "time": f"{number}h"}]},
            outline=SimpleNamespace(cells=100 + number), state="done", started_ns=NOW_NS, ended_ns=NOW_NS + 9,
            error=None,
        )  # fmt: skip
        journal.asked(job)  # type: ignore[arg-type]
        journal.ended(job)  # type: ignore[arg-type]
    journal.close()


def read_jobs(path: Path) -> Values:
    journal = Journal(path, now_ns=NOW_NS + 50)
    try:
        found = {job.id: job for job in journal.noted()}
        return found | {f"find {number}": journal.find(f"job-{number}") for number in range(6)}
    finally:
        journal.close()


def write_standing(path: Path) -> None:
    store = StandingStore(path)
    for number in range(4):
        name = f"frost-{number}"
        definition = definition_from_json(
            {
                "name": name, "query": {"variable": "air_temperature", "steps": []}, "to": ["email:a@example.org"],
                "condition": {"kind": "threshold", "below": "0 degC", "clear": "1 degC"},
            },
            settings=None,
        )  # fmt: skip
        store.add(definition, Progress("S1", NOW_NS), now_ns=NOW_NS)
        body = {"place": "here", "text": f"cold {number}"}
        store.keep([Found(name, Progress("S2", NOW_NS, NOW_NS), ((Alert(name, "raised", body, NOW_NS), None),))])
    store.pause("frost-1", paused=True)
    store.close()


def read_standing(path: Path) -> Values:
    store = StandingStore(path)
    try:
        found: Values = {f"query {one.name}": one for one in store.entries()}
        found |= {f"alert {one.number}": one for one in store.alerts()}
        found |= {f"letter {number}": str(target) for number, target in store.letters()}
        found |= {f"{one.name} {one.number}": one for n in range(4) for one in store.alerts(name=f"frost-{n}")}
        waiting = [one for n in range(4) for one in store.undelivered(f"frost-{n}", limit=9)]
        return found | {f"undelivered {one['number']}": one for one in waiting}
    finally:
        store.close()


def write_audit(path: Path) -> None:
    audit = Audit(path)
    for number in range(20):
        audit.note(now_ns=NOW_NS + number, who=f"alice ({number})", what="POST /api/v1/standing", status=201)


def read_audit(path: Path) -> Values:
    contents = filter(None, map(read_line, path.read_bytes().split(b"\n")))
    return {content["who"]: content for content in contents}


@dataclass(frozen=True)
class File:
    name: str
    write: Callable[[Path], None]
    read: Callable[[Path], Values]


FILES = (
    File("keys.sqlite", write_keys, read_keys),
    File("jobs.sqlite", write_jobs, read_jobs),
    File("standing.sqlite", write_standing, read_standing),
    File("audit.jsonl", write_audit, read_audit),
)


def flips(data: bytes, count: int) -> Iterable[tuple[int, int]]:
    """Yield places and bits, most of them in bytes that hold something."""
    chosen = random.Random(7)
    held = [place for place, byte in enumerate(data) if byte]
    for number in range(count):
        place = chosen.choice(held) if number % 8 else chosen.randrange(len(data))
        yield place, chosen.randrange(8)


def outcome(file: File, path: Path, original: Values) -> str:
    """Return what a reader makes of a file: "same", "left out" (and found by the check), "told", or "silent"."""
    damage = list(find_damage(path))
    try:
        found = file.read(path)
    except (DamagedState, CatalogueUnavailable) as error:
        return "told" if str(path) in str(error) else "silent"
    changed = [key for key, value in found.items() if value is not None and original.get(key) != value]
    missing = [key for key in original if found.get(key) is None]
    if changed:
        return "silent"
    if missing:
        return "left out" if damage else "silent"
    return "same"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_flipped_bit_is_read_as_something_else(file: File, tmp_path: Path) -> None:
    prove(file, tmp_path, FLIPS)


@pytest.mark.soak
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_none_of_many_flipped_bits_is_read_as_something_else(file: File, tmp_path: Path) -> None:
    prove(file, tmp_path, 20_000)


def prove(file: File, folder: Path, count: int) -> None:
    whole = folder / file.name
    file.write(whole)
    data, original = whole.read_bytes(), file.read(whole)
    assert list(find_damage(whole)) == []
    outcomes: Counter[str] = Counter()
    for place, bit in flips(data, count):
        damaged = folder / "damaged" / file.name
        shutil.rmtree(damaged.parent, ignore_errors=True)
        damaged.parent.mkdir()
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit
        damaged.write_bytes(flipped)
        result = outcome(file, damaged, original)
        outcomes[result] += 1
        assert result != "silent", (place, bit)
    assert outcomes["left out"] > count // 10, outcomes
    assert file.name == "audit.jsonl" or outcomes["told"] > 0, outcomes
