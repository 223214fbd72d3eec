"""The collections at each snapshot: the stations, and saved surfaces, with why where one cannot be computed."""

import re
import threading
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request

from hypergrid.core.errors import HyperGridError, NotFound
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.tokens import token
from hypergrid.query import OpenArchive, open_archive
from queries.snapshots.catalogue import Catalogue
from queries.snapshots.extents import SeriesExtents
from queries.web.edr.metadata import Collection
from queries.web.edr.stations import ID, StationsCollection
from queries.web.edr.surfaces import collection_of

PREFIX: Final = "/edr"
_KEPT: Final = 64
"""Collections, of all snapshots that were asked for last, that are kept as they were understood."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""Names of saved queries that can stand in an address."""


@dataclass(frozen=True)
class UnavailableCollection:
    """A saved query that cannot be computed at a snapshot."""

    id: str
    why: str
    is_foreign: bool
    """Whether it is of a variable, or of a layer, that the archive does not have: it was written for another one."""


class Collections:
    """The collections at each snapshot, as they were understood; saved queries are looked for anew each time.

    Parameters
    ----------
    catalogue
        Knows the archive and the saved queries.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._kept: LruCache[str, tuple[Collection | UnavailableCollection | None]] = LruCache(_KEPT)
        self._lock = threading.Lock()
        self._extents = SeriesExtents()

    def list_available(self) -> list[Collection]:
        """Return the collections at the newest snapshot."""
        return [collection for collection in self._list_all() if not isinstance(collection, UnavailableCollection)]

    def surfaces(self) -> list[dict[str, Any]]:
        """Return the saved surfaces by name, each with its collection, or with why it cannot be computed now."""
        return [
            {"id": collection.id, "collection": None, "why": collection.why}
            if isinstance(collection, UnavailableCollection)
            else {"id": collection.id, "collection": f"{PREFIX}/collections/{collection.id}", "why": ""}
            for collection in self._list_all()
            if collection.id != ID
        ]

    def trouble(self) -> str:
        """Return which saved surfaces cannot be computed, and why; empty: all can, but those of other archives."""
        every = self._list_all()
        lost = [
            collection
            for collection in every
            if isinstance(collection, UnavailableCollection) and not collection.is_foreign
        ]
        if not lost:
            return ""
        count = len(lost) + sum(
            collection.id != ID for collection in every if not isinstance(collection, UnavailableCollection)
        )
        names = ", ".join(collection.id for collection in lost)
        return f"{len(lost)} of {count} cannot be computed: {names}; {lost[0].id}: {lost[0].why}"

    def find_collection(self, name: str, snapshot: str | None) -> Collection | None:
        """Return a collection, None where there is none of the name, or none at the snapshot."""
        collection = self._load_collection(name, self._open_snapshot(snapshot))
        return None if isinstance(collection, UnavailableCollection) else collection

    def get_collection(self, name: str, snapshot: str | None = None) -> Collection:
        """Return a collection.

        Raises
        ------
        NotFound
            There is no such collection or snapshot, or it cannot be computed there; the message says why.
        """
        archive = self._open_snapshot(snapshot)
        collection = self._load_collection(name, archive)
        if isinstance(collection, UnavailableCollection):
            message = (
                f"collection {name!r} cannot be computed at snapshot {archive.snapshot}: {collection.why}; "
                f"{PREFIX}/collections/{name}/instances lists where it can"
            )
            raise NotFound(message)
        if collection is None:
            existing = [collection.id for collection in self.list_available()]
            if name in existing:
                message = (
                    f"collection {name!r} holds nothing at snapshot {snapshot}; "
                    f"{PREFIX}/collections/{name}/instances lists where it does"
                )
                raise NotFound(message)
            raise NotFound.among(kind="collection", given=name[:100], existing=existing)
        return collection

    def get_requested(self, request: Request) -> Collection:
        """Return the collection that a path names, at the instance where it names one; raises as `one` does."""
        return self.get_collection(request.path_params["collection_id"], request.path_params.get("instance_id"))

    def check_name(self, name: str) -> None:
        """Refuse a name that no collection has, whether it can be computed now or not; raises `NotFound`."""
        if not isinstance(self._load_collection(name, self._open_snapshot(None)), UnavailableCollection):
            self.get_collection(name)

    def _open_snapshot(self, snapshot: str | None) -> OpenArchive:
        archive = self._catalogue.archive.latest()
        return archive if snapshot in (None, archive.snapshot) else open_archive(archive.path, snapshot=snapshot)

    def _list_all(self) -> list[Collection | UnavailableCollection]:
        archive = self._open_snapshot(None)
        names = [ID, *(name for name in self._catalogue.saved_queries() if name != ID and _NAME.fullmatch(name))]
        return [collection for name in names if (collection := self._load_collection(name, archive)) is not None]

    def _load_collection(self, name: str, archive: OpenArchive) -> Collection | UnavailableCollection | None:
        document = None if name == ID else self._catalogue.saved_queries().get(name)
        if (document is None and name != ID) or not _NAME.fullmatch(name):
            return None
        key = token(archive.snapshot, name, document)
        known = self._kept.peek(key)
        if known is None:
            # One thread at a time works out what everybody asks for at once.
            with self._lock:
                made: Collection | UnavailableCollection | None
                try:
                    made = (
                        StationsCollection(archive.store, self._extents)
                        if document is None
                        else collection_of(name, document, archive)
                    )
                except HyperGridError as error:
                    made = UnavailableCollection(name, str(error), isinstance(error, NotFound))
                is_empty = not isinstance(made, UnavailableCollection) and (made is None or not made.parameters)
                known = (None if is_empty else made,)
            self._kept.put(key, known, 1)
        return known[0]
