"""Where the values of an archive lie, its Icechunk repository: in its folder, or in an S3-compatible store.

Lock, raw files and progress stay in the folder wherever the values lie, so commits wait for one another on the lock of
the folder, and for all who share it a server without conditional writes is safe. Writes are conditional nevertheless,
unless `S3Store.conditional` says that the server refuses them (others take no notice of what they do not know): so a
commit from a copy of the folder, which has its own lock, fails instead of undoing another.
"""

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import icechunk
from pyarrow import fs

from hypergrid.core.errors import InvalidDeployment, StoreUnavailable

STORE: Final = "store"
"""Folder of an archive that holds the repository, where no store is named."""
BRANCH: Final = "main"
"""The branch that is the archive; others are at work on what is to become it."""
STAGED: Final = "#"
"""What is in the name of a file that the file system's driver is writing, or died while it was."""
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_PROBE: Final = "probe"
"""Name of a branch that is made and removed again, to see whether a server removes what it is told to."""
_TRIES: Final = 3
_CONNECT_S: Final = 4.0
_ANSWER_S: Final = 10.0
"""A server that does not answer when an archive is made or opened is told within some 30 s: so many tries, and how long
one waits for a connection and for an answer."""
_ANY_REGION: Final = "us-east-1"
"""What servers take that have no regions."""
_NO_BUCKET: Final = "nosuchbucket"
_NOT_REMOVED: Final = "deleteobjects"
_NOBODY: Final = (
    ("loadingcredentials", "noprovidersinchain", "unsupportedalgorithm"),
    "refuses, for AWS_ACCESS_KEY_ID is not set, and this machine has no role that may",
    "set it and AWS_SECRET_ACCESS_KEY",
)
_REFUSED: Final = (
    ("accessdenied", "invalidaccesskeyid", "signaturedoesnotmatch", "expiredtoken", "httpstatus403"),
    "refuses the credentials of the environment",
    "mend AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or let their owner read, write, list and remove objects there",
)
_ROWS: Final = (
    ((_NO_BUCKET,), "has no such bucket", "make it, or name another"),
    _NOBODY,
    _REFUSED,
    (("networkconnection", "dispatchfailure"), "does not answer", "start it, or mend the endpoint"),
    (("notimplemented",), "does not know conditional writes", "set `conditional` to false where the store is named"),
    ((_NOT_REMOVED,), "does not remove objects as it is asked to now", "take a newer version of it, or another"),
)
"""What Icechunk, Arrow and servers say, in small letters alone; what is meant; and what to do."""


@dataclass(frozen=True)
class S3Store:
    """A place in an S3-compatible store, without credentials: these come from the environment, or the machine's role.

    Where there is an endpoint the bucket is in the path of its addresses, as most servers but Amazon's want it.

    Raises
    ------
    InvalidDeployment
        A field cannot be used; the message names it.
    """

    bucket: str
    prefix: str = ""
    """What keys begin with; empty: nothing."""
    endpoint: str | None = None
    """Address of the server, as "https://s3.example.org:9000"; None: Amazon's."""
    region: str | None = None
    """None: what the environment says (AWS_REGION), or the first one."""
    conditional: bool = True
    """Whether the server knows conditional writes (If-Match, If-None-Match)."""

    def __post_init__(self) -> None:
        """Refuse what cannot be used."""
        if not _BUCKET.fullmatch(self.bucket):
            message = f"bucket needs 3 to 63 of a-z, 0-9, '.' and '-'; got {self.bucket!r}; write s3://BUCKET/PREFIX"
            raise InvalidDeployment(message)
        if self.prefix and (not _PREFIX.fullmatch(self.prefix) or {".", ".."} & set(self.prefix.split("/"))):
            message = f"prefix needs letters, digits, '_', '-' and '.', between '/'; got {self.prefix!r}"
            raise InvalidDeployment(message)
        if self.endpoint is not None and not _is_address(self.endpoint):
            message = "endpoint needs http://HOST:PORT or https://HOST:PORT, and nothing of a user or a password in it"
            raise InvalidDeployment(message)

    @property
    def url(self) -> str:
        """As people write it; without the endpoint."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @classmethod
    def from_url(
        cls, url: str, *, endpoint: str | None = None, region: str | None = None, conditional: bool = True
    ) -> "S3Store":
        """Return the place that s3://BUCKET or s3://BUCKET/PREFIX names; errors as those of the class."""
        scheme, _, path = url.partition("://")
        if scheme != "s3":
            message = f"store needs s3://BUCKET/PREFIX; got {url!r}; leave it away to keep values in the folder"
            raise InvalidDeployment(message)
        bucket, _, prefix = path.rstrip("/").partition("/")
        return cls(bucket, prefix, endpoint and endpoint.rstrip("/"), region, conditional)

    def holds(self, other: "S3Store") -> bool:
        """Return whether another place is one of those that archives get here."""
        return (other.bucket, other.prefix.rpartition("/")[0], other.endpoint) == (
            self.bucket, self.prefix, self.endpoint
        )  # fmt: skip

    def with_prefix(self, name: str) -> "S3Store":
        """Return the place under a name here."""
        prefix = f"{self.prefix}/{name}".lstrip("/")
        return S3Store(self.bucket, prefix, self.endpoint, self.region, self.conditional)


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and (
            parts.username is None and not (parts.path or parts.query or parts.fragment)
        )  # fmt: skip
    except ValueError:
        return False


class Storage(Protocol):
    """Where a repository lies, and what Icechunk cannot do there."""

    @property
    def where(self) -> str:
        """As people are told of it."""
        ...

    def create(self) -> icechunk.Repository:
        """Make the repository."""
        ...

    def open(self) -> icechunk.Repository:
        """Return the repository, as it is now: an older object does not know what others let expire."""
        ...

    def count_snapshots(self) -> int:
        """Return how many snapshots there are, on all branches."""
        ...

    def sweep(self, before: datetime) -> tuple[int, int]:
        """Remove what was half written before an instant and is no object yet; return how much, and its bytes."""
        ...

    def reach(self) -> None:
        """Return once it has answered."""
        ...

    def remove(self) -> None:
        """Remove the repository."""
        ...

    def translate_errors(self) -> AbstractContextManager[None]:
        """Turn errors of a store that does not answer, or refuses, into `StoreUnavailable`."""
        ...


@dataclass(frozen=True)
class LocalStorage:
    """In the folder of the archive."""

    folder: Path

    @property
    def where(self) -> str:
        """As people are told of it."""
        return STORE

    def create(self) -> icechunk.Repository:
        """Make the repository."""
        return icechunk.Repository.create(self._storage())

    def open(self) -> icechunk.Repository:
        """Return the repository, as it is now."""
        # By default many manifests are loaded with the first array, which takes 13 ms of a query's 60; from a store far
        # away, where each request waits, they still are.
        never = icechunk.ManifestPreloadConfig(preload_if=icechunk.ManifestPreloadCondition.false())
        settings = icechunk.RepositoryConfig(manifest=icechunk.ManifestConfig(preload=never))
        return icechunk.Repository.open(self._storage(), settings)

    @property
    def store(self) -> Path:
        """The folder of the repository."""
        return self.folder / STORE

    def count_snapshots(self) -> int:
        """Return how many snapshots there are."""
        return sum(1 for _ in (self.folder / STORE / "snapshots").iterdir())

    def sweep(self, before: datetime) -> tuple[int, int]:
        """Remove what the driver of the file system was writing when it died."""
        staged = [path for path in (self.folder / STORE).rglob(f"*{STAGED}*") if path.is_file()]
        old = [path for path in staged if datetime.fromtimestamp(path.stat().st_mtime, UTC) < before]
        size = sum(path.stat().st_size for path in old)
        for path in old:
            path.unlink(missing_ok=True)
        return len(old), size

    def reach(self) -> None:
        """Do nothing: what cannot be written is told by who writes."""

    def remove(self) -> None:
        """Do nothing: it goes with the folder."""

    def translate_errors(self) -> AbstractContextManager[None]:
        """Leave errors as they are."""
        return nullcontext()

    def _storage(self) -> icechunk.Storage:
        return icechunk.local_filesystem_storage(str(self.folder / STORE))


@dataclass(frozen=True)
class S3Storage:
    """In an S3-compatible store, below a prefix that is this archive's alone."""

    store: S3Store

    @property
    def where(self) -> str:
        """As people are told of it."""
        return self.store.url

    def create(self) -> icechunk.Repository:
        """Make the repository.

        Raises
        ------
        StoreUnavailable
            The store does not answer, or refuses.
        """
        with self.translate_errors():
            made = icechunk.Repository.create(self._storage, self._settings)
            # Icechunk goes on in silence where a server does not take its requests to remove objects.
            made.create_branch(_PROBE, made.lookup_branch("main"))
            made.delete_branch(_PROBE)
            if _PROBE in made.list_branches():
                raise self._unavailable_error(_NOT_REMOVED)
        return made

    def open(self) -> icechunk.Repository:
        """Return the repository, as it is now; errors as those of `create`."""
        # Icechunk itself tries ten times, whatever it is told (its client is made before it reads settings), and waits
        # for ever where a server takes a request and says nothing.
        self.reach()
        with self.translate_errors():
            return icechunk.Repository.open(self._storage, self._settings)

    def count_snapshots(self) -> int:
        """Return how many snapshots there are; errors as those of `create`."""
        return len(self._list_files("snapshots"))

    def sweep(self, before: datetime) -> tuple[int, int]:
        """Do nothing: an object is there as a whole, or not at all."""
        return 0, 0

    def reach(self) -> None:
        """Return once the store has answered; errors as those of `create`."""
        if self._list_files("refs"):
            return
        try:
            there = self._files.get_file_info(self.store.bucket).type != fs.FileType.NotFound
        except OSError:
            # Who may list what is below a prefix need not be allowed to ask for the bucket.
            there = True
        if not there:
            raise self._unavailable_error(_NO_BUCKET)

    def remove(self) -> None:
        """Remove all objects; errors as those of `create`."""
        try:
            with self._translate_file_errors():
                self._files.delete_dir(self._path)
        except StoreUnavailable:
            # Arrow makes an empty object for the folder above at last, which not all servers take.
            if self._list_files(""):
                raise

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn errors of a store that does not answer, or refuses, into `StoreUnavailable`."""
        try:
            yield
        except icechunk.IcechunkError as error:
            if _find_row(str(error)) is not None:
                raise self._unavailable_error(str(error)) from error
            # Where Icechunk does not say why, the store does.
            self.reach()
            raise

    @cached_property
    def _storage(self) -> icechunk.Storage:
        store = self.store
        return icechunk.s3_storage(
            bucket=store.bucket,
            prefix=store.prefix,
            region=self._region,
            endpoint_url=store.endpoint,
            allow_http=store.endpoint is not None and store.endpoint.startswith("http://"),
            force_path_style=store.endpoint is not None,
            from_env=True,
        )

    @cached_property
    def _settings(self) -> icechunk.RepositoryConfig:
        conditional = self.store.conditional
        return icechunk.RepositoryConfig(
            storage=icechunk.StorageSettings(
                unsafe_use_conditional_create=conditional, unsafe_use_conditional_update=conditional
            )
        )

    @cached_property
    def _files(self) -> fs.S3FileSystem:
        scheme, _, host = (self.store.endpoint or "https://").partition("://")
        return fs.S3FileSystem(
            scheme=scheme,
            endpoint_override=host or None,
            region=self._region,
            connect_timeout=_CONNECT_S,
            request_timeout=_ANSWER_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
        )

    @property
    def _region(self) -> str | None:
        return self.store.region or (None if self.store.endpoint is None else _ANY_REGION)

    @property
    def _path(self) -> str:
        return f"{self.store.bucket}/{self.store.prefix}"

    def _list_files(self, name: str) -> list[fs.FileInfo]:
        with self._translate_file_errors():
            file_infos: list[fs.FileInfo] = self._files.get_file_info(
                fs.FileSelector(f"{self._path}/{name}".rstrip("/"), allow_not_found=True)
            )
        return file_infos

    @contextmanager
    def _translate_file_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unavailable_error(str(error)) from error

    def _unavailable_error(self, reason: str) -> StoreUnavailable:
        row = _find_row(reason)
        if row is _REFUSED and not any(os.environ.get(key) for key in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE")):
            row = _NOBODY
        problem, remedy = row[1:] if row else (f"says {' '.join(reason.split())[:200]!r}", "mend what it tells")
        server = self.store.endpoint or "Amazon S3"
        return StoreUnavailable(f"the values of the archive are needed at {self.where}; {server} {problem}; {remedy}")


def _find_row(reason: str) -> tuple[tuple[str, ...], str, str] | None:
    words = re.sub(r"[\W_]", "", reason).lower()
    return next((row for row in _ROWS if any(code in words for code in row[0])), None)


def open_storage(folder: Path, store: S3Store | None) -> Storage:
    """Return where the values of the archive in a folder lie: in a store, or in the folder."""
    return LocalStorage(folder) if store is None else S3Storage(store)
