"""Commands that back up and restore an archive, optionally with the server's state."""

import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from hypergrid.archive.disk.folder import BACKUP
from hypergrid.archive.durability.backup import CLOSED, back_up
from hypergrid.archive.durability.backup import restore as run
from hypergrid.archive.state_backup import has_access_control
from hypergrid.cli.archive_argument import ArchiveArgument
from hypergrid.cli.console import show_json, show_message, show_stages
from hypergrid.cli.options import JsonOption
from hypergrid.continuous.records import LIVE_FILE
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.settings import read_settings
from queries.jobs.job_history import FILE as JOBS
from queries.jobs.job_history import POST_AGAIN, Journal
from queries.standing.repository import FILE as CATALOGUE
from queries.standing.repository import FOLDER as STANDING
from queries.standing.repository import StandingStore
from queries.web.auth.access import AUDIT_FILE
from queries.web.auth.keys import FILE as KEYS
from queries.web.auth.keys import FOLDER as SERVER
from queries.web.auth.keys import KeyStore


def backup(
    archive: ArchiveArgument,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Folder of the backup: new, or an earlier one.")],
    *,
    with_server: Annotated[
        bool, typer.Option("--with-server", help="Take keys, audit log, jobs, standing and continuous queries along.")
    ] = False,
    settings: Annotated[
        Path | None, typer.Option(help="Settings file (TOML): where the server keeps keys, with --with-server.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy an archive while others commit to it; again into the same folder, only what is new."""
    state = read_settings(settings).state
    with show_stages(quiet=as_json) as on_progress:
        done = back_up(
            archive, target, now_ns=time.time_ns(), with_server=with_server, server=Path(state) if state else None,
            progress=on_progress,
        )  # fmt: skip
    if as_json:
        show_json(asdict(done))
        return
    show_message(
        f"{done.backup} holds snapshot {done.snapshot} of {done.archive}: {done.files_copied:,} files "
        f"({done.bytes_copied:,} bytes) were copied and compared in {done.seconds:.2f} s; {done.files_there:,} "
        f"({done.bytes_there:,} bytes) were there; {done.files_removed:,} that nothing needs any more were removed"
    )
    if done.state_made:
        when = "of now" if with_server else f"of {done.state_made}, from an earlier run --with-server"
        show_message(f"state of the server in it, {when}{': ' if done.state else ''}{', '.join(done.state)}")
    for note in done.notes:
        show_message(f"warning: {note}")
    if done.left_out:
        show_message(f"not in it, as state beside the data: {', '.join(done.left_out)}")


def restore(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="Folder of the archive; nothing may be there.")],
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="Folder that 'hypergrid backup' wrote.")],
    *,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Restore though files of the backup are damaged; name them.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make an archive of a backup; every file is compared with its checksum. Keys come back revoked."""
    if (archive / BACKUP).is_file() and not (source / BACKUP).is_file():
        raise InvalidQuery(
            f"restore takes the archive first, then the backup; got the backup {archive} first: 'hypergrid restore "
            f"{source} {archive}'"
        )
    with show_stages(quiet=as_json) as on_progress:
        done = run(source, archive, secure=secure_state, damaged=damaged, progress=on_progress)
    if as_json:
        show_json(asdict(done))
        return
    made_anew = "" if done.state_made else "; keys, jobs, standing and continuous queries start empty"
    show_message(
        f"{done.archive} is the archive at snapshot {done.snapshot}: {done.files_copied:,} files "
        f"({done.bytes_copied:,} bytes) in {done.seconds:.2f} s{made_anew}"
    )
    if done.state_made:
        show_message(f"state of the server, of {done.state_made}: {', '.join(done.state)}")
    for note in done.notes:
        show_message(note)


COMMANDS: Final = (backup, restore)
"""Commands registered by the command line."""


def secure_state(archive: Path, made: str) -> list[str]:
    """Make the state of a restored archive safe to serve.

    All keys are revoked but kept in the file, so access control stays on. Unfinished jobs are marked as failed.
    Standing queries are paused and pending alerts cancelled. Continuous queries are left unchanged: the restored
    archive contains all readings that they have processed, so they resume after their last results.

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
        (archive / LIVE_FILE, _count_continuous),
    )
    notes = [step(path, why) for path, step in steps if path.exists()]
    if has_access_control(archive / SERVER) and not (archive / SERVER / KEYS).exists():
        notes.insert(0, CLOSED)
    if (archive / SERVER / AUDIT_FILE).exists():
        notes.append("audit log: as it was")
    return notes


def _revoke_keys(path: Path, why: str) -> str:
    with closing(KeyStore(path)) as store:
        count = store.revoke_all(f"{why}; make new ones", now_ns=time.time_ns())
        if store.exist:
            store.require()
        closed = "access control stays on, so make new ones: 'hypergrid keys create'" if store.exist else "none existed"
    return f"keys: {count} revoked; {closed}"


def _end_jobs(path: Path, why: str) -> str:
    journal = Journal(path, now_ns=time.time_ns(), reason=f"the archive was {why}; {POST_AGAIN}")
    journal.close()
    return f"jobs: {journal.lost} unfinished, now failed; post them again"


def _pause_standing(path: Path, why: str) -> str:
    with closing(StandingStore(path)) as store:
        paused, refused = store.suspend(why)
    return (
        f"standing queries: {paused} paused, with their webhooks and mails ('hypergrid standing resume'); "
        f"{refused} waiting alerts will not be sent"
    )


def _count_continuous(path: Path, _why: str) -> str:
    from hypergrid.continuous.live.store import LiveStore  # noqa: PLC0415 - loads numba

    with closing(LiveStore(path)) as store:
        return f"continuous queries: {len(store.list_entries())}, resuming after their last results"
