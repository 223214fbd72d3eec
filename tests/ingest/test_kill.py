"""kill -9 at any moment: the next run makes the archive that an undisturbed one makes."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hypergrid.archive import Archive
from hypergrid.core.errors import NotAnArchive
from ingest.job import Engine, ingest
from tests.s3_server import S3Server, table

Tell = Callable[[Path], dict[str, list[tuple[object, ...]]]]

CHILD = """
import sys
from ingest.job import ingest
if sys.argv[4] == "spark":
    import ingest.spark.batch as _
print("ready", flush=True)
ingest([sys.argv[1]], sys.argv[2], now_ns=int(sys.argv[3]), engine=sys.argv[4])
"""


def run_and_kill(network: Path, archive: Path, now_ns: int, engine: Engine, after_s: float) -> tuple[bool, float]:
    """Start a run, kill it after `after_s` [s] of work; tell whether it was alive then, and its time [s]."""
    arguments = [sys.executable, "-c", CHILD, str(network), str(archive), str(now_ns), engine]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        start = time.perf_counter()
        try:
            child.wait(timeout=after_s)
        except subprocess.TimeoutExpired:
            child.kill()
        code = child.wait()
        assert code in (0, -9)
        return code == -9, time.perf_counter() - start


def prove(
    network: Path, folder: Path, now_ns: int, summarise: Tell, *, engine: Engine, moments: list[float], minimum: int
) -> None:
    """Kill a run at each of the moments (fractions of an undisturbed run), run again, and compare."""
    killed, duration_s = run_and_kill(network, folder / "undisturbed", now_ns, engine, 300.0)
    assert not killed
    expected = summarise(folder / "undisturbed")
    alive = 0
    for place, moment in enumerate(moments):
        archive = folder / f"killed-{place}"
        alive += run_and_kill(network, archive, now_ns, engine, moment * duration_s)[0]
        try:
            committed = len(Archive.open(archive).snapshots) > 1
        except NotAnArchive:
            assert not archive.exists()
            committed = False
        report = ingest([network], archive, now_ns=now_ns, engine="inprocess")
        # All or nothing: what was committed needs nothing more, what was not needs everything.
        assert (report.snapshot is None) == committed
        assert summarise(archive) == expected
        assert [path.name for path in (archive / "staging").iterdir()] == ["lock"]
        assert not list((archive / "raw").glob("*/.partial-*"))
    assert alive >= minimum


@pytest.fixture
def larger(network: Path, make_text: Callable[..., bytes]) -> Path:
    for station in ("1", "2", "3"):
        data = make_text(station, 1500).splitlines(keepends=True)
        data[700] = b"spoilt\n"
        (network / f"pass-{station}.txt").write_bytes(b"".join(data))
    return network


@pytest.mark.parametrize(("every", "minimum"), [(2, 3), (1, 5)])
def test_ten_random_moments(
    every: int, minimum: int, larger: Path, tmp_path: Path, now_ns: int, summarise: Tell
) -> None:
    chosen = random.Random(2007)
    moments = [(place + chosen.random()) / 10 for place in range(10)][::every]
    prove(larger, tmp_path, now_ns, summarise, engine="inprocess", moments=moments, minimum=minimum)


@pytest.mark.parametrize("moments", [[0.5], [0.5, 0.75]])
def test_on_spark(moments: list[float], larger: Path, tmp_path: Path, now_ns: int, summarise: Tell) -> None:
    prove(larger, tmp_path, now_ns, summarise, engine="spark", moments=moments, minimum=1)


def test_in_an_s3_store(larger: Path, tmp_path: Path, now_ns: int, summarise: Tell, s3: S3Server) -> None:
    place = s3.place()
    with (larger / "deployment.toml").open("a") as deployment:
        deployment.write(table(place))
    prove(larger, tmp_path, now_ns, summarise, engine="inprocess", moments=[0.3, 0.5, 0.7, 0.9], minimum=2)
    # Each archive has its objects, and what was killed before it had any left none.
    stores = [Archive.open(marker.parent).store for marker in tmp_path.glob("*/hypergrid.json")]
    assert len(stores) == 5
    assert {path.relative_to(s3.folder).parts[3] for path in s3.objects(place)} == {
        one.prefix.split("/")[1] for one in stores if one
    }


@pytest.mark.soak
def test_ten_random_moments_on_spark(larger: Path, tmp_path: Path, now_ns: int, summarise: Tell) -> None:
    chosen = random.Random(2008)
    moments = [(place + chosen.random()) / 10 for place in range(10)]
    prove(larger, tmp_path, now_ns, summarise, engine="spark", moments=moments, minimum=5)
