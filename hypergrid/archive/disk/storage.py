"""Storage of an archive's Icechunk repository: the archive's folder, or an S3-compatible store.

Lock, raw copies and progress always stay in the folder. Commits therefore wait for each other on the folder's lock, and
for all processes that share the folder even a server without conditional writes is safe. Writes are conditional anyway
unless `S3Store.conditional` says that the server rejects them (others ignore what they do not know). A commit from a
copy of the folder, which has its own lock, then fails instead of overwriting another.
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
"""Folder of an archive that holds the repository if no store is configured."""
BRANCH: Final = "main"
"""The branch of the archive's content; other branches are work in progress."""
STAGED: Final = "#"
"""Part of the names of files that the file system driver is writing, or was when it died."""
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_PROBE: Final = "probe"
"""Branch that is created and removed to test whether a server honours deletions."""
# Together these limit the wait for a silent server, on create and open, to about 30 s.
_TRIES: Final = 3
_CONNECT_S: Final = 4.0
_ANSWER_S: Final = 10.0
"""Number of attempts, and timeouts of a connection and of a response [s]."""
_ANY_REGION: Final = "us-east-1"
"""Region for servers without regions."""
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
"""Error codes of Icechunk, Arrow and servers, in lower-case letters only; their meaning; and the remedy."""


@dataclass(frozen=True)
class S3Store:
    """A location in an S3-compatible store; credentials come from the environment or the machine's role.

    With an endpoint, the bucket is in the path of the address, as most servers other than Amazon's require.

    Raises
    ------
    InvalidDeployment
        A field is invalid; the message names it.
    """

    bucket: str
    prefix: str = ""
    """Prefix of all keys; empty: none."""
    endpoint: str | None = None
    """Address of the server, such as "https://s3.example.org:9000"; None: Amazon's."""
    region: str | None = None
    """None: AWS_REGION of the environment, or us-east-1 if there is an endpoint."""
    conditional: bool = True
    """Whether the server supports conditional writes (If-Match, If-None-Match)."""

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.bucket):
            raise InvalidDeployment(
                f"bucket needs 3 to 63 of a-z, 0-9, '.' and '-'; got {self.bucket!r}; write s3://BUCKET/PREFIX"
            )
        if self.prefix and (not _PREFIX.fullmatch(self.prefix) or {".", ".."} & set(self.prefix.split("/"))):
            raise InvalidDeployment(f"prefix needs letters, digits, '_', '-' and '.', between '/'; got {self.prefix!r}")
        if self.endpoint is not None and not _is_address(self.endpoint):
            raise InvalidDeployment(
                "endpoint needs http://HOST:PORT or https://HOST:PORT, and nothing of a user or a password in it"
            )

    @property
    def url(self) -> str:
        """URL as the user writes it, without the endpoint."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @classmethod
    def from_url(
        cls, url: str, *, endpoint: str | None = None, region: str | None = None, conditional: bool = True
    ) -> "S3Store":
        """Parse s3://BUCKET or s3://BUCKET/PREFIX; raises the errors of the class."""
        scheme, _, path = url.partition("://")
        if scheme != "s3":
            raise InvalidDeployment(
                f"store needs s3://BUCKET/PREFIX; got {url!r}; leave it away to keep values in the folder"
            )
        bucket, _, prefix = path.rstrip("/").partition("/")
        return cls(bucket, prefix, endpoint and endpoint.rstrip("/"), region, conditional)

    def holds(self, other: "S3Store") -> bool:
        """Return whether another location is one that `with_prefix` gives to an archive here."""
        return (other.bucket, other.prefix.rpartition("/")[0], other.endpoint) == (
            self.bucket, self.prefix, self.endpoint
        )  # fmt: skip

    def with_prefix(self, name: str) -> "S3Store":
        """Return the location with a name appended to the prefix."""
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
    """Storage of a repository, including operations that Icechunk lacks."""

    @property
    def where(self) -> str:
        """Display name for messages."""

    def create(self) -> icechunk.Repository:
        """Create the repository."""

    def open(self) -> icechunk.Repository:
        """Open the current repository; older objects do not see what other processes expired."""

    def count_snapshots(self) -> int:
        """Return the number of snapshots on all branches."""

    def sweep(self, before: datetime) -> tuple[int, int]:
        """Remove partial files last written before an instant; returns their number and bytes."""

    def reach(self) -> None:
        """Wait until the storage responds."""

    def remove(self) -> None:
        """Remove the repository."""

    def translate_errors(self) -> AbstractContextManager[None]:
        """Translate errors of an unreachable or refusing store into `StoreUnavailable`; a folder has none."""
        return nullcontext()


@dataclass(frozen=True)
class LocalStorage(Storage):
    """Storage in the folder of the archive."""

    folder: Path

    @property
    def where(self) -> str:
        return STORE

    def create(self) -> icechunk.Repository:
        return icechunk.Repository.create(self._storage())

    def open(self) -> icechunk.Repository:
        """Open the current repository, without preloading manifests."""
        # By default Icechunk loads many manifests with the first array, which takes 13 ms of a query's 60. A distant
        # store, where each request waits, still does so.
        never = icechunk.ManifestPreloadConfig(preload_if=icechunk.ManifestPreloadCondition.false())
        settings = icechunk.RepositoryConfig(manifest=icechunk.ManifestConfig(preload=never))
        return icechunk.Repository.open(self._storage(), settings)

    @property
    def store(self) -> Path:
        return self.folder / STORE

    def count_snapshots(self) -> int:
        return sum(1 for _ in (self.folder / STORE / "snapshots").iterdir())

    def sweep(self, before: datetime) -> tuple[int, int]:
        """Remove partial files that the file system driver left when it died."""
        staged = [path for path in (self.folder / STORE).rglob(f"*{STAGED}*") if path.is_file()]
        old = [path for path in staged if datetime.fromtimestamp(path.stat().st_mtime, UTC) < before]
        size = sum(path.stat().st_size for path in old)
        for path in old:
            path.unlink(missing_ok=True)
        return len(old), size

    def reach(self) -> None:
        """Do nothing: a failed write raises its own error."""

    def remove(self) -> None:
        """Do nothing: the repository is removed with the folder."""

    def _storage(self) -> icechunk.Storage:
        return icechunk.local_filesystem_storage(str(self.folder / STORE))


@dataclass(frozen=True)
class S3Storage(Storage):
    """Storage in an S3-compatible store, below a prefix that only this archive uses."""

    store: S3Store

    @property
    def where(self) -> str:
        return self.store.url

    def create(self) -> icechunk.Repository:
        """Create the repository.

        Raises
        ------
        StoreUnavailable
            The store does not respond or refuses access.
        """
        with self.translate_errors():
            made = icechunk.Repository.create(self._storage, self._settings)
            # Icechunk continues silently if a server ignores its delete requests.
            made.create_branch(_PROBE, made.lookup_branch("main"))
            made.delete_branch(_PROBE)
            if _PROBE in made.list_branches():
                raise self._unavailable_error(_NOT_REMOVED)
        return made

    def open(self) -> icechunk.Repository:
        """Open the current repository; raises the errors of `create`."""
        # Icechunk itself retries ten times regardless of its settings (its client is created before it reads them),
        # and waits forever if a server accepts a request and never responds.
        self.reach()
        with self.translate_errors():
            return icechunk.Repository.open(self._storage, self._settings)

    def count_snapshots(self) -> int:
        """Return the number of snapshots; raises the errors of `create`."""
        return len(self._list_files("snapshots"))

    def sweep(self, before: datetime) -> tuple[int, int]:
        """Do nothing: objects are written atomically."""
        return 0, 0

    def reach(self) -> None:
        """Wait until the store responds; raises the errors of `create`."""
        if self._list_files("refs"):
            return
        try:
            there = self._files.get_file_info(self.store.bucket).type != fs.FileType.NotFound
        except OSError:
            # Permission to list a prefix does not imply permission to query the bucket.
            there = True
        if not there:
            raise self._unavailable_error(_NO_BUCKET)

    def remove(self) -> None:
        """Remove all objects; raises the errors of `create`."""
        try:
            with self._translate_file_errors():
                self._files.delete_dir(self._path)
        except StoreUnavailable:
            # Arrow finally creates an empty object for the parent folder, which not all servers accept.
            if self._list_files(""):
                raise

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate errors of an unreachable or refusing store into `StoreUnavailable`."""
        try:
            yield
        except icechunk.IcechunkError as error:
            if _find_row(str(error)) is not None:
                raise self._unavailable_error(str(error)) from error
            # If Icechunk gives no reason, the store does.
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
        # Without configured credentials, a refusal means that there were none.
        if row is _REFUSED and not any(os.environ.get(key) for key in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE")):
            row = _NOBODY
        problem, remedy = row[1:] if row else (f"says {' '.join(reason.split())[:200]!r}", "mend what it tells")
        server = self.store.endpoint or "Amazon S3"
        return StoreUnavailable(f"the values of the archive are needed at {self.where}; {server} {problem}; {remedy}")


def _find_row(reason: str) -> tuple[tuple[str, ...], str, str] | None:
    # Compared without case and punctuation, like the codes in `_ROWS`.
    words = re.sub(r"[\W_]", "", reason).lower()
    return next((row for row in _ROWS if any(code in words for code in row[0])), None)


def open_storage(folder: Path, store: S3Store | None) -> Storage:
    return LocalStorage(folder) if store is None else S3Storage(store)
