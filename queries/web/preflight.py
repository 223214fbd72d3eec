"""`hypergrid serve --check`: whether an archive can be served, and how."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hypergrid.archive.disk.row_checksums import DamagedState, find_damage
from hypergrid.core.errors import HyperGridError
from hypergrid.core.settings import Settings
from hypergrid.query import open_archive
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import standing_folder
from queries.web.commands import access_of, state_folder, written_folders
from queries.web.routes.health import LEAST_FREE_BYTES
from queries.web.routes.metrics import free_bytes
from queries.web.server import is_loopback, listen


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    what: str
    is_fine: bool
    message: str


def check(archive: Path, settings: Settings, saved: Path | None, *, now_ns: int) -> list[Finding]:
    """Run the checks of a server without starting it or changing anything."""

    def network() -> str:
        opened = open_archive(archive)
        return f"{opened.name}: {len(opened.stations)} stations, {len(opened.variables)} variables, {opened.snapshot}"

    def keys() -> str:
        access = access_of(archive, settings, settings.host, required=not is_loopback(settings.host))
        held = [] if access.store is None else access.store.keys()
        valid = sum(key.state(now_ns) == "valid" for key in held)
        if not access.is_on:
            return "access control is off: everybody on this machine may do everything"
        suffix = ", and anybody may read" if settings.anonymous_read else ""
        return f"access control is on: {valid} of {len(held)} keys open something{suffix}"

    def address() -> str:
        access = access_of(archive, settings, settings.host, required=not is_loopback(settings.host))
        with closing(listen(settings.host, settings.port, access)) as listening:
            host, port = listening.getsockname()[:2]
        names = ", ".join(access.rules.names)
        return f"{host} port {port}{access.rules.root_path} can be listened on; it answers to {names}"

    def disk() -> str:
        folders = {folder: free_bytes(folder) for folder in written_folders(archive, settings).values()}
        if not folders:
            return "nothing is written"
        for folder, free in folders.items():
            if free < LEAST_FREE_BYTES:
                raise OSError(f"{folder} has {free:,} bytes free, and needs {LEAST_FREE_BYTES:,}; make room")
        return ", ".join(f"{folder} has {free / 2**30:.1f} GiB free" for folder, free in folders.items())

    def state() -> str:
        folders = (state_folder(archive, settings), standing_folder(archive, settings))
        files = [path for folder in folders for path in sorted(folder.glob("*.*")) if path.is_file()]
        damage = [f"{path}: {where or what}" for path in files for where, what in find_damage(path)]
        if damage:
            raise DamagedState(f"{'; '.join(damage[:10])}; 'hypergrid check' says what to do")
        return "keys, jobs, audit log and standing queries are whole"

    def queries() -> str:
        catalogue = Catalogue(open_archive(archive), saved=saved)
        for problem in catalogue.list_unreadable():
            raise problem
        return f"{len(catalogue.saved_queries())} saved queries"

    looks: dict[str, Callable[[], str]] = {
        "archive": network, "keys": keys, "address": address, "disk": disk, "saved": queries,
        "state": state,
    }  # fmt: skip
    return [_run_check(what, look) for what, look in looks.items()]


def _run_check(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, is_fine=True, message=look())
    except (HyperGridError, OSError) as error:
        return Finding(what, is_fine=False, message=str(error))
