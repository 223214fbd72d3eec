"""Deployments of a stream over time: each reads the spool from its first record on."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hypergrid.archive.disk.checksums import list_written_twice, read_either, write_twice
from hypergrid.core.errors import NotFound
from ingest.deployment.deployment_file import Deployment, from_mapping, load_with_text


@dataclass(frozen=True)
class DeploymentVersion:
    """A deployment, and the first spool record that it reads."""

    first: int
    text: str
    path: Path
    """File that it was read from."""

    @property
    def deployment(self) -> Deployment:
        return _parse_text(self.text, self.path)


@lru_cache(maxsize=16)
def _parse_text(text: str, path: Path) -> Deployment:
    return from_mapping(tomllib.loads(text), file=path.name, path=path)


def read_versions(folder: Path) -> list[DeploymentVersion]:
    """Return the deployments of a stream, in the order of the records that they read.

    Raises
    ------
    hypergrid.core.errors.DamagedArchive
        One is damaged, and so is its spare.
    """
    versions = []
    for path in list_written_twice(folder):
        content = read_either(path)
        versions.append(DeploymentVersion(int(path.stem.partition("-")[2]), content["text"], Path(content["path"])))
    return versions


def deploy(folder: Path, path: Path, *, first: int, check: Callable[[Deployment], None] = lambda _: None) -> bool:
    """Use a deployment file from record `first` on; return whether it is a new one.

    It is on disk when this returns; `first` must lie beyond all records of planned batches.

    Parameters
    ----------
    check
        Raises if the deployment is not acceptable.

    Raises
    ------
    InvalidDeployment, NotFound
        As `ingest.deployment.deployment_file.load`.
    """
    described, text = load_with_text(path)
    check(described)
    before = read_versions(folder)
    # An unchanged file needs no new version.
    if before and before[-1].text == text:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    write_twice(folder / f"from-{first:016d}.json", {"text": text, "path": str(path.resolve())})
    return True


def version_at(versions: list[DeploymentVersion], seq: int) -> Deployment:
    """Return the deployment that reads a record.

    Raises
    ------
    NotFound
        The stream has no deployment.
    """
    # The first version also reads the records before it.
    earlier_versions = [version for version in versions if version.first <= seq] or versions[:1]
    if not earlier_versions:
        raise NotFound("the stream of this archive has no deployment yet; give --deployment FILE")
    return earlier_versions[-1].deployment


def split_by_version(versions: list[DeploymentVersion], after: int, upto: int) -> list[tuple[int, int, Deployment]]:
    """Split the records with after < seq <= upto into spans (after, upto), each with its deployment."""
    cuts = sorted({after, upto, *(version.first - 1 for version in versions if after < version.first - 1 < upto)})
    return [(start, stop, version_at(versions, stop)) for start, stop in zip(cuts[:-1], cuts[1:], strict=True)]
