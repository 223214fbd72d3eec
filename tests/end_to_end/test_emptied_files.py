"""Every file of an archive emptied, one at a time: each read gives an error or what it gave, and the check names it."""

import json
import random
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from hypergrid.archive import Archive, RetentionPolicy
from hypergrid.archive.disk.checksums import read_checked, write_checked
from hypergrid.archive.disk.raw_copies import read_back
from hypergrid.core.errors import HyperGridError
from hypergrid.execution import Outcome
from hypergrid.formats.partitioned import load_piece, save_piece
from hypergrid.layers.layer import Layer
from ingest.deployment.deployment_file import deploy, read_versions
from ingest.job import ingest
from ingest.sources.spool import durable, frames, segments
from ingest.streaming.restart import RESTART_FILE
from ingest.streaming.stream_commit import CHECKPOINT, DEPLOYMENTS, STREAM
from queries.standing.notifications import webhook_secret
from tests.hypergrid.cli.test_archive_commands import run
from tests.ingest.stream_loop import Loop, end
from tests.ingest.stream_loop import made as made_for_stream
from tests.ingest.streamed import everything, messages, write_deployment, write_spool
from tests.queries.test_damaged_state import (
    read_jobs,
    read_keys,
    read_standing,
    write_audit,
    write_jobs,
    write_keys,
    write_standing,
)

NOT_NAMED: Final = {
    "lock": "a lock holds nothing but, at times, a word on who has it",
    "stream/progress.jsonl": "a log for those who watch; a line of it is a moment that was not drawn",
    "server/keys.required": "that it is there says all",
    "server/hypergrid.pid": "a server writes it anew when it starts",
}
"""Files, by name or path, that no check names, and why none needs to."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with a file of every kind: of streams, files, layers, citations, a server, a reprocessing."""
    folder = tmp_path_factory.mktemp("emptied")
    sent = messages(("1", "3"), until_h=3.0)
    archive, deployment = made_for_stream(folder)
    deploy(archive / STREAM / DEPLOYMENTS, folder / "deployment.toml", first=1)
    write_spool(archive / "spool", sent, at_once=20, segment_bytes=8_000)
    end(archive)
    loop = Loop(archive, deployment, batch_bytes=10_000)
    for _ in range(3):
        loop.step(upto=len(sent))
    files = folder / "files"
    files.mkdir()
    corrected = [{**json.loads(one.payload), "air_temperature": 3.5} for one in sent[:30]]
    (files / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in corrected))
    write_deployment(files, arrivals=False)
    ingest([files], archive, now_ns=sent[-1].arrival_ns, engine="inprocess")
    opened = Archive.open(archive)
    opened.cite()
    opened.add_layer(Layer("slope", np.arange(4.0), np.arange(3.0), np.ones((3, 4)), "degree"), now_ns=1)
    opened.latest().maintain(RetentionPolicy(keep_s=3600.0))
    _put_beside(archive)
    return archive


def _put_beside(archive: Path) -> None:
    """Put beside the store what a server, Spark and an interrupted reprocessing leave."""
    for name in ("server", "standing"):
        (archive / name).mkdir()
    write_keys(archive / "server" / "keys.sqlite")
    write_jobs(archive / "server" / "jobs.sqlite")
    write_audit(archive / "server" / "audit.jsonl")
    write_standing(archive / "standing" / "standing.sqlite")
    webhook_secret(archive / "standing")
    (archive / "server" / "hypergrid.pid").write_text("1")
    (archive / STREAM / "progress.jsonl").write_text('{"at_ns": 1}\n')
    write_checked(archive / STREAM / RESTART_FILE, {"stream": "", "upto": 3})
    offsets = archive / STREAM / CHECKPOINT / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "7").write_bytes(b"v1\n{}\n9")
    (offsets / ".7.crc").write_bytes(b"crc\x00\x00\x00\x02\x00" + zlib.crc32(b"v1\n{}\n9").to_bytes(4))
    (archive / "reprocess" / "run").mkdir(parents=True)
    save_piece(Outcome(np.arange(50.0)), archive / "reprocess" / "run" / "000000000.npz")


def _readings(archive: Path) -> Any:  # noqa: ANN401 - whatever is compared
    return everything(archive)


def _tables(archive: Path) -> Any:  # noqa: ANN401 - whatever is compared
    opened = Archive.open(archive)
    return opened.files(), opened.rejects(), dict(opened.stations), opened.cited, opened.streams


def _layer(archive: Path) -> Any:  # noqa: ANN401 - whatever is compared
    return Archive.open(archive).layers["slope"].values.tolist()


def _cited(archive: Path) -> Any:  # noqa: ANN401 - whatever is compared
    opened = Archive.open(archive)
    then = Archive.open(archive, snapshot=opened.cited[0])
    return {name: then.read(name).value.tobytes() for name in then.variables}


def _raw(archive: Path) -> Any:  # noqa: ANN401 - whatever is compared
    return [read_back(archive / "raw", path.stem) for path in sorted((archive / "raw").glob("*/*.zst"))]


def _spool(archive: Path) -> Any:  # noqa: ANN401 - whatever is compared
    first = segments(archive / "spool")[0][0]
    return [batch.to_pylist() for batch in frames(archive / "spool", first - 1, durable(archive / "spool"))]


READS: Final[dict[str, Callable[[Path], Any]]] = {
    "readings": _readings,
    "tables": _tables,
    "layer": _layer,
    "cited": _cited,
    "raw": _raw,
    "spool": _spool,
    "deployments": lambda archive: [one.text for one in read_versions(archive / STREAM / DEPLOYMENTS)],
    "note": lambda archive: read_checked(archive / STREAM / RESTART_FILE),
    "piece": lambda archive: load_piece(archive / "reprocess" / "run" / "000000000.npz").value.tolist(),
    "keys": lambda archive: read_keys(archive / "server" / "keys.sqlite"),
    "jobs": lambda archive: read_jobs(archive / "server" / "jobs.sqlite"),
    "secret": lambda archive: webhook_secret(archive / "standing"),
    "standing": lambda archive: read_standing(archive / "standing" / "standing.sqlite"),
}
"""What is read of an archive; the audit log is a file that people read, and the check says of which lines are whole."""


def answers(archive: Path) -> Iterator[tuple[str, Any]]:
    """Yield what each read gives: its values, or the error."""
    for name, read in READS.items():
        try:
            yield name, read(archive)
        except (HyperGridError, OSError) as error:
            yield name, error


def kind(path: Path, archive: Path) -> str:
    """Return what a file is one of: its folder, its name without ids and numbers, and of raw copies no more."""
    parts = path.relative_to(archive).parts
    name = "" if parts[0] == "store" else re.sub("[0-9A-Z]{20}|[0-9]+", "0", parts[-1])
    return parts[0] if parts[0] == "raw" else "/".join((*parts[:-1], name))


def prove(made: Path, folder: Path, *, of_each_kind: int | None) -> int:
    """Empty files of an archive, one at a time; return how many."""
    archive = Path(shutil.copytree(made, folder / "archive"))
    expected = dict(answers(archive))
    assert not [one for one in expected.values() if isinstance(one, Exception)]
    status, out, _ = run("check", archive, "--deep", "--json")
    assert (status, json.loads(out)["defects"]) == (0, [])
    kinds: dict[str, list[Path]] = {}
    for path in sorted(made.rglob("*")):
        if path.is_file() and path.stat().st_size:
            kinds.setdefault(kind(path, made), []).append(path.relative_to(made))
    chosen = random.Random(1)
    files = [one for some in kinds.values() for one in chosen.sample(some, min(len(some), of_each_kind or len(some)))]
    for path in files:
        shutil.rmtree(archive)
        shutil.copytree(made, archive)
        (archive / path).write_bytes(b"")
        if path.name not in NOT_NAMED and str(path) not in NOT_NAMED:
            status, out, said = run("check", archive, "--deep", "--json")
            assert status == 1, (path, said)
            named = {one["where"].partition(": ")[0] for one in json.loads(out)["defects"]}
            beside = str(path.with_name(path.name[1:].removesuffix(".crc"))) if path.suffix == ".crc" else ""
            assert {str(path), beside} & named, (path, named)
        for name, found in answers(archive):
            if isinstance(found, Exception):
                assert "icechunk" not in str(found).lower(), (path, name, found)
            else:
                assert found == expected[name], (path, name)
    return len(files)


def test_a_file_of_each_kind_emptied_is_named_and_read_by_nobody(made: Path, tmp_path: Path) -> None:
    assert prove(made, tmp_path, of_each_kind=1) > 20


@pytest.mark.soak
def test_every_file_emptied_is_named_and_read_by_nobody(made: Path, tmp_path: Path) -> None:
    assert prove(made, tmp_path, of_each_kind=None) > 60
