"""Upgrades of archives without checksums: a value that a flipped bit changed is found in the raw copies."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import LAYOUT, Archive, read_layout
from hypergrid.archive.disk.raw_copies import copy_path
from hypergrid.archive.durability.upgrade import upgrade
from hypergrid.core.errors import DamagedArchive
from hypergrid.core.readings import Readings
from ingest.repair.restore_values import upgrade_compared
from ingest.repair.verify_values import verify
from tests.hypergrid.archive.test_upgrade import NOW_NS, fixture_of
from tests.hypergrid.cli.test_archive_commands import run

AIR = "air_temperature"
OLD = 2


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixture_of(OLD, tmp_path_factory.mktemp("old"))


@pytest.fixture
def archive(old: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(old, tmp_path / "archive"))


def read(archive: Path) -> Readings:
    return Archive.open(archive).read(AIR, tests=True)


def chunks(archive: Path) -> list[Path]:
    """Return the chunks that the readings of the newest snapshot need."""
    found = []
    for path in sorted((archive / "store" / "chunks").iterdir()):
        path.rename(aside := archive / "aside")
        try:
            read(archive)
        except DamagedArchive:
            found.append(path)
        aside.rename(path)
    return found


def flips(archive: Path, rounds: int, *, seed: int) -> Iterator[Readings]:
    """Flip a bit in a chunk at a time; yield what is read then, where that raises nothing.

    The chunk is mended when the next is asked for: who asks for no more keeps the flip.
    """
    chosen, needed = random.Random(seed), chunks(archive)
    for number in range(rounds):
        path = needed[number % len(needed)]
        before = path.read_bytes()
        data = bytearray(before)
        data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
        path.write_bytes(data)
        try:
            yield read(archive)
        except DamagedArchive:
            pass
        path.write_bytes(before)


def flip_until(archive: Path, column: str) -> None:
    """Flip a bit that changes one column of the readings alone, and that no rule finds."""
    truth, last = read(archive), None
    for found in flips(archive, 400, seed=3):
        last = [name for name in ("index", "time_ns", "value", "flag", "arrival_ns") if differs(found, truth, name)]
        if last == [column] and not list(Archive.open(archive).check(deep=True)):
            return
    pytest.fail(f"no flip changed {column} alone, but the last {last}")


def differs(one: Readings, other: Readings, column: str) -> bool:
    return not np.array_equal(getattr(one, column), getattr(other, column), equal_nan=column == "value")


def test_values_of_the_fixture_are_those_of_its_raw_copies(archive: Path) -> None:
    report = upgrade_compared(archive, now_ns=NOW_NS)
    assert report.upgraded.compared
    assert report.repaired is None
    assert report.values is not None
    assert report.values.is_complete
    assert (report.values.other, report.values.other_arrivals) == (0, 0)
    assert report.values.readings == len(read(archive))
    again = upgrade_compared(archive, now_ns=NOW_NS)
    assert (again.upgraded.changed, again.values) == (False, None)


def test_a_value_that_lost_a_bit_is_refused_and_comes_back(archive: Path) -> None:
    truth = read(archive)
    flip_until(archive, "value")
    with pytest.raises(DamagedArchive, match=rf"stays at layout {OLD}: {AIR} of station .* --repair' upgrades it"):
        upgrade_compared(archive, now_ns=NOW_NS)
    assert read_layout(archive) == OLD
    # Without raw copies nothing tells, and this is said.
    alone = Path(shutil.copytree(archive, archive.with_name("alone")))
    assert not upgrade(alone, now_ns=NOW_NS).compared
    assert verify(Archive.open(alone)).lost
    report = upgrade_compared(archive, now_ns=NOW_NS, mend=True)
    assert report.repaired is not None
    assert report.repaired.restored > 0
    assert not any(differs(read(archive), truth, name) for name in ("index", "time_ns", "value"))
    assert verify(Archive.open(archive)).lost == []
    assert list(Archive.open(archive).check(deep=True)) == []
    # Also where main had moved already, as after a kill.
    assert upgrade_compared(alone, now_ns=NOW_NS, mend=True).repaired is not None
    assert verify(Archive.open(alone)).lost == []


def test_arrivals_that_are_others_are_counted(archive: Path) -> None:
    flip_until(archive, "arrival_ns")
    status, _, told = run("upgrade", archive)
    assert status == 0
    assert "arrived at another instant than these tell" in told
    assert "flags and the tests that set them are in no raw copy" in told


def test_what_no_raw_copy_has_is_counted(archive: Path) -> None:
    entry = Archive.open(archive).files()[0]
    copy_path(archive / "raw", entry.sha256).unlink()
    other = verify(Archive.open(archive)).other
    assert other > 0
    status, _, told = run("upgrade", archive)
    assert (status, f"{other:,} readings in force were not found in raw copies" in told) == (0, True)


def test_the_command_upgrades_and_stores_what_raw_copies_say(archive: Path) -> None:
    assert "has no checksums" in run("check", archive)[2]
    assert "gives it layout" in run("maintain", archive)[2]
    flip_until(archive, "value")
    status, _, told = run("upgrade", archive)
    assert (status, "readings of raw copies are not stored" in told) == (2, True)
    status, out, _ = run("upgrade", archive, "--repair", "--json")
    done = json.loads(out)
    assert (status, done["compared"], done["repair"]["restored"] > 0) == (0, True, True)
    assert (done["layout"], done["layout_before"]) == (LAYOUT, OLD)
    assert "already" in run("upgrade", archive)[2]


def prove_flips(archive: Path, folder: Path, rounds: int, *, seed: int) -> int:
    """Upgrade with one flipped bit at a time: refused, or with the values of before; return how many were refused."""
    truth, refused = read(archive), 0
    for number, _ in enumerate(flips(archive, rounds, seed=seed)):
        copy = Path(shutil.copytree(archive, folder / f"copy-{number}"))
        try:
            upgrade_compared(copy, now_ns=NOW_NS)
        except DamagedArchive:
            refused += 1
            assert read_layout(copy) == OLD
        else:
            assert not any(differs(read(copy), truth, name) for name in ("index", "time_ns", "value"))
        shutil.rmtree(copy)
    return refused


def test_no_flipped_bit_gives_an_upgraded_archive_another_value(archive: Path, tmp_path: Path) -> None:
    assert prove_flips(archive, tmp_path, 8, seed=5)


@pytest.mark.soak
def test_none_of_200_flipped_bits_gives_an_upgraded_archive_another_value(archive: Path, tmp_path: Path) -> None:
    assert prove_flips(archive, tmp_path, 200, seed=6) > 20
