"""Ingest into an archive whose values lie in an S3-compatible store, as a deployment file asks for it."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive, S3Store
from hypergrid.cli.main import main
from hypergrid.core.errors import ArchiveConflict, InvalidDeployment
from ingest.deployment.deployment_file import load
from ingest.job import ingest
from ingest.reprocess.remap import remap
from tests.s3_server import S3Server, table

Tell = Callable[[Path], dict[str, list[tuple[object, ...]]]]


@pytest.fixture
def asking(network: Path, s3: S3Server) -> Path:
    """Return a deployment file beside the network's own that asks for a place of its own."""
    path = network.parent / "s3.toml"
    path.write_text((network / "deployment.toml").read_text() + table(s3.place()))
    return path


def test_a_batch_is_that_of_a_folder(network: Path, asking: Path, tmp_path: Path, now_ns: int, summarise: Tell) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    ingest([network], here, now_ns=now_ns)
    ingest([network], there, deployment=asking, now_ns=now_ns)
    assert summarise(there) == summarise(here)
    assert not (there / "store").exists()
    # The archive knows by itself where it is, and a file that came is known as well.
    assert ingest([network], there, now_ns=now_ns).snapshot is None
    (network / "pass-1.txt").write_bytes((network / "pass-1.txt").read_bytes().replace(b"NaN", b"1.5"))
    for folder in (here, there):
        assert ingest([network], folder, now_ns=now_ns + 1).snapshot is not None
    assert summarise(there) == summarise(here)


def test_another_place_than_the_archives_is_refused(
    network: Path, asking: Path, s3: S3Server, tmp_path: Path, now_ns: int
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    ingest([network], here, now_ns=now_ns)
    ingest([network], there, deployment=asking, now_ns=now_ns)
    other = tmp_path / "other.toml"
    other.write_text((network / "deployment.toml").read_text() + table(s3.place()))
    for folder, deployment in ((here, asking), (there, other)):
        before = Archive.open(folder).snapshot
        with pytest.raises(ArchiveConflict, match=r"has its values in .*, for ever; .* leave \[archive\] away"):
            ingest([network], folder, deployment=deployment, now_ns=now_ns)
        assert Archive.open(folder).snapshot == before


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('store = "/somewhere"', "archive cannot be used: store needs s3://BUCKET/PREFIX; got '/somewhere'"),
        ('store = "s3://Networks"', "bucket needs 3 to 63 of a-z"),
        ('store = "s3://networks/a//b"', "prefix needs letters"),
        ('store = "s3://networks"\nendpoint = "http://me:secret@host"', "nothing of a user or a password"),
        ('endpoint = "http://host"', "archive.store is missing"),
        ('store = "s3://networks"\nconditional = "no"', "archive.conditional needs true or false"),
        ('store = "s3://networks"\nsecret = "x"', "archive.secret is an unknown key"),
    ],
)
def test_what_cannot_be_a_place_is_told(network: Path, lines: str, said: str) -> None:
    path = network / "deployment.toml"
    path.write_text(f"{path.read_text()}\n[archive]\n{lines}\n")
    with pytest.raises(InvalidDeployment, match=said) as refused:
        load(path)
    assert "secret@" not in str(refused.value)


def test_a_place_is_read(network: Path) -> None:
    path = network / "deployment.toml"
    text = path.read_text()
    path.write_text(
        f'{text}\n[archive]\nstore = "s3://networks/alps/pass/"\nregion = "eu-central-1"\nconditional = false\n'
    )
    found = load(path)
    assert found.store == S3Store("networks", "alps/pass", None, "eu-central-1", conditional=False)
    path.write_text(text)
    assert load(path).store is None
    assert load(path).token() == found.token(), "where values lie is no reason to read files again"


def test_the_command_tells_in_a_line_what_keeps_it(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, s3: S3Server
) -> None:
    with (network / "deployment.toml").open("a") as deployment:
        deployment.write(table(S3Store("nowhere", "x", s3.endpoint)))
    monkeypatch.setattr(sys, "argv", ["hypergrid", "ingest", str(network), "--archive", str(tmp_path / "archive")])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert ended.value.code == 1
    assert said.startswith("hypergrid: the values of the archive are needed at s3://nowhere/x/")
    assert said.endswith("has no such bucket; make it, or name another")
    assert [path.name for path in tmp_path.iterdir()] == ["network"]


def test_a_description_that_was_wrong_is_mended_there_as_well(
    network: Path, asking: Path, tmp_path: Path, now_ns: int, summarise: Tell
) -> None:
    wrong = asking.read_text().replace('wind_speed", unit = "m s-1"', 'wind_speed", unit = "km/h"')
    (network / "deployment.toml").write_text(wrong)
    ingest([network], tmp_path / "archive", now_ns=now_ns)
    before = Archive.open(tmp_path / "archive").read("wind_speed").value
    remap(tmp_path / "archive", deployment=asking, now_ns=now_ns + 1)
    np.testing.assert_allclose(Archive.open(tmp_path / "archive").read("wind_speed").value, before * 3.6, rtol=1e-6)
