"""The standing queries of a small live network."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hypergrid as hg
from hypergrid.core.settings import Settings
from queries.standing.service import StandingQueries
from queries.standing.statistics import StandingUpdate
from tests.queries.standing.live import STATIONS, VARIABLES, Clock, Live
from tests.support.standing_runner import settle


@pytest.fixture
def live(tmp_path: Path) -> Live:
    """Four stations, of each the first ten slices at 5 degrees."""
    made = Live(tmp_path / "archive")
    made.add_all([(slice_, dict.fromkeys(STATIONS, 5.0)) for slice_ in range(10)], variables=VARIABLES)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_standing(live: Live, clock: Clock) -> Iterator[Callable[..., StandingQueries]]:
    """Open the standing queries of the network; those opened are closed at the end of the test."""
    opened: list[StandingQueries] = []

    def make(**settings: object) -> StandingQueries:
        made = StandingQueries(hg.open(live.folder), Settings(**settings), clock=clock.time_ns)  # type: ignore[arg-type]
        made.updates = []  # type: ignore[attr-defined]
        made.runner.listen(made.updates.append)  # type: ignore[attr-defined]
        opened.append(made)
        return made

    yield make
    for one in opened:
        one.stop()


@pytest.fixture
def standing(make_standing: Callable[..., StandingQueries]) -> StandingQueries:
    return make_standing()


@pytest.fixture
def evaluate(standing: StandingQueries) -> Callable[[], dict[str, StandingUpdate]]:
    """Evaluate until all is fresh; return what was told since, by query."""

    def run() -> dict[str, StandingUpdate]:
        standing.updates.clear()  # type: ignore[attr-defined]
        settle(standing.runner)
        return {update.name: update for update in standing.updates}  # type: ignore[attr-defined]

    return run
