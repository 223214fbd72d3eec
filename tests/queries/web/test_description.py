"""What the server says of itself is true: Schemathesis asks what its description allows and forbids."""

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import hypergrid as hg
from queries.boards.repository import BoardStore
from queries.jobs.admission import Limits
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries
from queries.web.app import Services, create_app
from queries.web.auth.access import Access, CallerLimits, Rules
from queries.web.auth.keys import KeyStore
from tests.serving import serving

# What a schema cannot say is refused all the same: a name that is not in the archive, a grid without cells, a snapshot
# that expired, or more than the caller may have. So a document that fits the schema may be refused, as a document.
SETTINGS = textwrap.dedent(
    """
    color = false

    [checks.positive_data_acceptance]
    expected-statuses = ["2xx", 304, 400, 401, 403, 404, 409, 410, 413, 422, 429]

    [generation]
    deterministic = true
    """
)
STREAMS = "(/events|/zarr/)"
"""Streams last as long as their reader does."""


@pytest.fixture
def address(archive: hg.OpenArchive, make_runner: Callable[..., Runner], tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A server with access control, and a key for all of it, with which nobody can keep this machine busy."""
    store = KeyStore(tmp_path / "keys.sqlite")
    _, key = store.create("all", "admin", now_ns=time.time_ns())
    small = CallerLimits(queries=Limits(cells=2000, seconds=1.0, bytes=1 << 28))
    access = Access(store, time.time_ns, Rules(keyed=small, anonymous=CallerLimits()))
    runner = make_runner(archive, capacity=100_000, allowed_bytes=1 << 29)
    with StandingQueries(archive, clock=time.time_ns, folder=tmp_path / "standing") as standing:
        with closing(BoardStore(tmp_path / "boards.sqlite")) as boards:
            app = create_app(
                runner, Catalogue(archive), services=Services(standing=standing, boards=boards), access=access
            )
            with serving(app) as address:
                yield address, key
    store.close()


def judge(address: tuple[str, str], folder: Path, examples: int, phases: str) -> int:
    """Have Schemathesis judge a server, with all checks, also across requests; return how many cases it made."""
    (folder / "schemathesis.toml").write_text(SETTINGS)
    done = subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "schemathesis.toml"), "run",
            f"{address[0]}/openapi.json", "--checks", "all", "--max-examples", str(examples),
            "--exclude-path-regex", STREAMS, "-H", f"Authorization: Bearer {address[1]}", "--continue-on-failure",
            "--phases", phases, "--warnings", "off", "--suppress-health-check", "all",
        ],
        cwd=folder, capture_output=True, text=True, check=False, timeout=7200,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "160"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-2_000:]
    print(done.stdout[-4_000:])
    counted = re.search(r"([\d,]+) generated", done.stdout)
    assert counted is not None, done.stdout[-2_000:]
    return int(counted[1].replace(",", ""))


def test_the_description_is_true(address: tuple[str, str], tmp_path: Path) -> None:
    assert judge(address, tmp_path, 5, "examples,fuzzing,stateful") > 100


@pytest.mark.soak
def test_the_description_is_true_in_twenty_thousand_cases(address: tuple[str, str], tmp_path: Path) -> None:
    assert judge(address, tmp_path, 500, "examples,coverage,fuzzing,stateful") >= 20_000
