"""Archive session of a run: open or create the archive under a lock."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from hypergrid.archive import Archive
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.core.errors import ArchiveConflict
from ingest.deployment.deployment_file import FILE_NAME, Deployment

STAGING: Final = "staging"
"""Staging folder of an archive; its lock is held by the one active run."""


def open_if_exists(folder: Path) -> Archive | None:
    """Return the archive in the folder; None if the folder is vacant.

    Raises
    ------
    hypergrid.core.errors.NotAnArchive
        The folder holds something else.
    """
    return None if _is_vacant(folder) else Archive.open(folder)


def _is_vacant(folder: Path) -> bool:
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def check_same(archive: Archive, deployment: Deployment) -> None:
    """Raise `ArchiveConflict` if network, slice length or storage of an archive differ from the deployment's."""
    if (archive.name, round(archive.slice_s * 1e9)) != (deployment.name, round(deployment.slice_s * 1e9)):
        raise ArchiveConflict(
            f"the archive {archive.path} is of network {archive.name!r} with slices of {archive.slice_s:g} s; "
            f"{deployment.path or f'without {FILE_NAME}, this run'} describes {deployment.name!r} with "
            f"{deployment.slice_s:g} s; use another archive or deployment file"
        )
    wanted = deployment.store
    if wanted is not None and (archive.store is None or not wanted.holds(archive.store)):
        raise ArchiveConflict(
            f"the archive {archive.path} has its values in {archive.storage.where}, for ever; {deployment.path} wants "
            f"them below {wanted.url} at {wanted.endpoint or 'Amazon'}; leave [archive] away, or make another archive"
        )


def check_units(archive: Archive, deployment: Deployment) -> None:
    """Raise `ArchiveConflict` if the archive keeps a declared variable in another unit."""
    named = [column.variable for feed in deployment.feeds for column in feed.columns]
    kept = archive.variables
    for name in dict.fromkeys([*named, *(variable.name for variable in deployment.variables)]):
        unit = deployment.variable(name).unit
        if name in kept and kept[name].unit != unit:
            raise ArchiveConflict(
                f"the archive keeps {name!r} in {kept[name].unit!r}; {deployment.path} declares it in {unit!r}; "
                f"declare {kept[name].unit!r} (values are converted), or make another archive"
            )


@contextmanager
def locked_archive(
    folder: Path, deployment: Deployment, *, now_ns: int, on_wait: Callable[[], None]
) -> Iterator[Archive]:
    """Lock the archive for one run and open its newest snapshot; create it if missing.

    If the context raises and nothing was committed, an archive that was created for it is removed, with its new parent
    folders. `on_wait` is called once when waiting for another run begins.

    Raises
    ------
    hypergrid.core.errors.ArchiveConflict
        The archive belongs to another network, has another slice length, or its values are stored elsewhere.
    hypergrid.core.errors.StoreUnavailable
        The S3-compatible object store does not answer, or refuses.
    """
    while True:
        was_folder, parents = folder.is_dir(), [above for above in folder.resolve().parents if not above.exists()]
        made = _is_vacant(folder) and _create(folder, deployment, now_ns)
        with ExitStack() as stack:
            try:
                (folder / STAGING).mkdir(exist_ok=True)
                stack.enter_context(wait_for_lock(folder / STAGING / "lock", on_wait=on_wait))
            except FileNotFoundError:
                # The run that held the lock had created the archive, failed, and removed it: create it again.
                continue
            archive = Archive.open(folder)
            check_same(archive, deployment)
            try:
                yield archive
            except BaseException:
                # A failed run must not leave the archive that it created.
                if made and archive.discard():
                    _restore(folder, parents, was_folder=was_folder)
                raise
            return


def _create(folder: Path, deployment: Deployment, now_ns: int) -> bool:
    """Create the archive; return False if another run was faster."""
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
