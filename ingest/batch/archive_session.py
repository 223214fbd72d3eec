"""The archive that a run writes: opened or made, for one run at a time, gone again where the run that made it fails."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from hypergrid.archive import Archive
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.core.errors import ArchiveConflict
from ingest.deployment.deployment_file import FILE_NAME, Deployment

STAGING: Final = "staging"
"""Folder of an archive that ingest stages in; the lock in it is held by the one run that works."""


def open_if_exists(folder: Path) -> Archive | None:
    """Return the archive in the folder; None where one can be made.

    Raises
    ------
    hypergrid.core.errors.NotAnArchive
        The folder holds something else.
    """
    return None if _is_vacant(folder) else Archive.open(folder)


def _is_vacant(folder: Path) -> bool:
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def check_same(archive: Archive, deployment: Deployment) -> None:
    """Raise `ArchiveConflict` unless network, slices and place of an archive are those that a deployment describes."""
    if (archive.name, round(archive.slice_s * 1e9)) != (deployment.name, round(deployment.slice_s * 1e9)):
        message = (
            f"the archive {archive.path} is of network {archive.name!r} with slices of {archive.slice_s:g} s; "
            f"{deployment.path or f'without {FILE_NAME}, this run'} describes {deployment.name!r} with "
            f"{deployment.slice_s:g} s; use another archive or deployment file"
        )
        raise ArchiveConflict(message)
    wanted = deployment.store
    if wanted is not None and (archive.store is None or not wanted.holds(archive.store)):
        message = (
            f"the archive {archive.path} has its values in {archive.storage.where}, for ever; {deployment.path} wants "
            f"them below {wanted.url} at {wanted.endpoint or 'Amazon'}; leave [archive] away, or make another archive"
        )
        raise ArchiveConflict(message)


def check_units(archive: Archive, deployment: Deployment) -> None:
    """Raise `ArchiveConflict` unless the archive keeps what the deployment declares in the same units."""
    named = [column.variable for feed in deployment.feeds for column in feed.columns]
    kept = archive.variables
    for name in dict.fromkeys([*named, *(variable.name for variable in deployment.variables)]):
        unit = deployment.variable(name).unit
        if name in kept and kept[name].unit != unit:
            message = (
                f"the archive keeps {name!r} in {kept[name].unit!r}; {deployment.path} declares it in {unit!r}; "
                f"declare {kept[name].unit!r} (values are converted), or make another archive"
            )
            raise ArchiveConflict(message)


@contextmanager
def locked_archive(
    folder: Path, deployment: Deployment, *, now_ns: int, on_wait: Callable[[], None]
) -> Iterator[Archive]:
    """Give the archive, at its newest snapshot, to one run at a time; make it where there is none.

    Where the context raises and nothing was committed, an archive that was made for it is removed again, with the
    folders above it that were made too. `on_wait` is called once a wait for another run begins.

    Raises
    ------
    hypergrid.core.errors.ArchiveConflict
        The archive is of another network, has slices of another length, or has its values elsewhere.
    hypergrid.core.errors.StoreUnavailable
        The S3-compatible store that holds its values does not answer, or refuses.
    """
    while True:
        was_folder, parents = folder.is_dir(), [above for above in folder.resolve().parents if not above.exists()]
        made = _is_vacant(folder) and _create(folder, deployment, now_ns)
        with ExitStack() as stack:
            try:
                (folder / STAGING).mkdir(exist_ok=True)
                stack.enter_context(wait_for_lock(folder / STAGING / "lock", on_wait=on_wait))
            except FileNotFoundError:
                # The run that we waited for had made the archive, failed, and removed it: it is ours to make.
                continue
            archive = Archive.open(folder)
            check_same(archive, deployment)
            try:
                yield archive
            except BaseException:
                if made and archive.discard():
                    _restore(folder, parents, was_folder=was_folder)
                raise
            return


def _create(folder: Path, deployment: Deployment, now_ns: int) -> bool:
    """Make the archive; return False where another run was faster."""
    names = dict.fromkeys(column.variable for feed in deployment.feeds for column in feed.columns)
    variables = [deployment.variable(name) for name in names]
    try:
        Archive.create(folder, name=deployment.name, slice_s=deployment.slice_s, variables=variables, now_ns=now_ns,
                       store=deployment.store)  # fmt: skip
    except ArchiveConflict:
        return False
    return True


def _restore(folder: Path, parents: Sequence[Path], *, was_folder: bool) -> None:
    if was_folder:
        folder.mkdir()
    for above in parents:
        with suppress(OSError):
            above.rmdir()
