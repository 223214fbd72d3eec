"""State of a server in a restored archive: credentials revoked since the backup stay invalid."""

import time
from pathlib import Path

from hypergrid.archive.durability.backup import CLOSED
from hypergrid.archive.state_backup import has_access_control
from queries.jobs.job_history import FILE as JOBS
from queries.jobs.job_history import POST_AGAIN, Journal
from queries.standing.repository import FILE as CATALOGUE
from queries.standing.repository import FOLDER as STANDING
from queries.standing.repository import StandingStore
from queries.web.auth.access import AUDIT_FILE
from queries.web.auth.keys import FILE as KEYS
from queries.web.auth.keys import FOLDER as SERVER
from queries.web.auth.keys import KeyStore


def secure_state(archive: Path, made: str) -> list[str]:
    """Make the state of a restored archive safe to serve.

    All keys are revoked but kept in the file, so access control stays on. Unfinished jobs are marked as failed.
    Standing queries are paused and pending alerts cancelled.

    Parameters
    ----------
    archive
        Folder of the archive.
    made
        Instant of the backup.

    Returns
    -------
    What was done, in sentences for the console.
    """
    why = f"restored from a backup of {made}"
    steps = (
        (archive / SERVER / KEYS, _revoke_keys),
        (archive / SERVER / JOBS, _end_jobs),
        # Pending alerts are cancelled because the server that was backed up may have sent them.
        (archive / STANDING / CATALOGUE, _pause_standing),
    )
    notes = [step(path, why) for path, step in steps if path.exists()]
    if has_access_control(archive / SERVER) and not (archive / SERVER / KEYS).exists():
        notes.insert(0, CLOSED)
    if (archive / SERVER / AUDIT_FILE).exists():
        notes.append("audit log: as it was")
    return notes


def _revoke_keys(path: Path, why: str) -> str:
    store = KeyStore(path)
    try:
        count = store.revoke_all(f"{why}; make new ones", now_ns=time.time_ns())
        if store.exist:
            store.require()
        closed = "access control stays on, so make new ones: 'hypergrid keys create'" if store.exist else "none existed"
    finally:
        store.close()
    return f"keys: {count} revoked; {closed}"


def _end_jobs(path: Path, why: str) -> str:
    journal = Journal(path, now_ns=time.time_ns(), reason=f"the archive was {why}; {POST_AGAIN}")
    journal.close()
    return f"jobs: {journal.lost} unfinished, now failed; post them again"


def _pause_standing(path: Path, why: str) -> str:
    store = StandingStore(path)
    try:
        paused, refused = store.suspend(why)
    finally:
        store.close()
    return (
        f"standing queries: {paused} paused, with their webhooks and mails ('hypergrid standing resume'); "
        f"{refused} waiting alerts will not be sent"
    )
