"""EDR collections at each snapshot: the stations, and saved surfaces or why they are unavailable."""

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
from queries.snapshots.latest import SeriesExtents
from queries.web.edr.metadata import Collection
from queries.web.edr.stations import ID, StationsCollection
from queries.web.edr.surfaces import collection_of

PREFIX: Final = "/edr"
_KEPT: Final = 64
"""Cached collections over the most recently requested snapshots."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""Names of saved queries that are valid in a URL."""


@dataclass(frozen=True)
class UnavailableCollection:
    """A saved query that cannot be computed at a snapshot."""

    id: str
    why: str
    is_foreign: bool
    """Whether it needs a variable or layer that the archive lacks: it was written for another archive."""


class Collections:
    """Cached collections of each snapshot; saved queries are reread on each request.

    Parameters
    ----------
    catalogue
        Provides the archive and the saved queries.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._kept: LruCache[str, tuple[Collection | UnavailableCollection | None]] = LruCache(_KEPT)
        self._lock = threading.Lock()
        self._extents = SeriesExtents()

    def list_available(self) -> list[Collection]:
        """List the available collections at the newest snapshot."""
        return [collection for collection in self._list_all() if not isinstance(collection, UnavailableCollection)]

    def surfaces(self) -> list[dict[str, Any]]:
        """List the saved surfaces, each with its collection or the reason why it is unavailable."""
        return [
            {"id": collection.id, "collection": None, "why": collection.why}
            if isinstance(collection, UnavailableCollection)
            else {"id": collection.id, "collection": f"{PREFIX}/collections/{collection.id}", "why": ""}
            for collection in self._list_all()
            if collection.id != ID
        ]

    def trouble(self) -> str:
        """Describe the unavailable saved surfaces of this archive; empty if there are none."""
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
        """Return a collection; None if it is unknown or unavailable at the snapshot."""
        collection = self._load_collection(name, self._open_snapshot(snapshot))
        return None if isinstance(collection, UnavailableCollection) else collection

    def get_collection(self, name: str, snapshot: str | None = None) -> Collection:
        """Return a collection.

        Raises
        ------
        NotFound
            The collection or snapshot is unknown, or it cannot be computed there; the message says why.
        """
        archive = self._open_snapshot(snapshot)
        collection = self._load_collection(name, archive)
        if isinstance(collection, UnavailableCollection):
            raise NotFound(
                f"collection {name!r} cannot be computed at snapshot {archive.snapshot}: {collection.why}; "
                f"{PREFIX}/collections/{name}/instances lists where it can"
            )
        if collection is None:
            existing = [collection.id for collection in self.list_available()]
            if name in existing:
                raise NotFound(
                    f"collection {name!r} holds nothing at snapshot {snapshot}; "
                    f"{PREFIX}/collections/{name}/instances lists where it does"
                )
            raise NotFound.among(kind="collection", given=name[:100], existing=existing)
        return collection

    def get_requested(self, request: Request) -> Collection:
        """Return the collection and instance that a path names; raises as `get_collection`."""
        return self.get_collection(request.path_params["collection_id"], request.path_params.get("instance_id"))

    def check_name(self, name: str) -> None:
        """Raise `NotFound` for a name without a collection, whether available or not."""
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
            # One thread at a time, so that concurrent requests do not all build the same collection.
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
