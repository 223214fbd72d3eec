"""A runner of standing queries that is driven, or waited for, until nothing is left to compute."""

from queries.standing.runner import StandingRunner


def settle(runner: StandingRunner) -> None:
    """Work until every query is fresh or failing, for a runner without a thread."""
    is_busy = True
    while is_busy or runner._behind:
        runner._poll(runner._monotonic())
        is_busy = runner.work()
        while runner.work():
            pass
    runner._keep_progress()


def is_fresh(runner: StandingRunner) -> bool:
    """Return whether every query includes the newest snapshot, except those paused or failing."""
    with runner._lock:
        newest = runner._archive.latest().snapshot
        return (
            runner._version == runner._store.version
            and newest == runner._seen_snapshot
            and not any(state.stale_since_s is not None for state in runner._states.values() if not state.failures)
        )
