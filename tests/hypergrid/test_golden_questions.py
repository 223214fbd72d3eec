"""Questions that an earlier program asked have the same tokens and answers; its results are computed again."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import hypergrid as hg
from hypergrid.core import tokens
from hypergrid.query import OpenArchive
from tests.archives.make_questions import QUESTIONS, RESULTS, build_query, summarise, unpack_archive

ENTRIES: list[dict[str, Any]] = json.loads(QUESTIONS.read_text())


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> OpenArchive:
    return hg.open(unpack_archive(tmp_path_factory.mktemp("fixture")))


def test_tokens_stay_as_they_were(archive: OpenArchive) -> None:
    assert len(ENTRIES) == 200
    changed = [entry for entry in ENTRIES if build_query(archive, entry).token != entry["token"]]
    assert not changed


def test_every_record_of_a_token_names_itself(archive: OpenArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: set[type] = set()
    read_fields = tokens._fields
    monkeypatch.setattr(tokens, "_fields", lambda record: (hashed.add(record), read_fields(record))[1])
    for entry in ENTRIES:
        assert build_query(archive, entry).token
    assert len(hashed) > 8
    assert not [record for record in hashed if "token_name" not in vars(record)]


@pytest.mark.parametrize("part", range(10))
def test_answers_stay_as_they_were(archive: OpenArchive, part: int) -> None:
    for entry in ENTRIES[part::10]:
        answer, expected = summarise(build_query(archive, entry).compute()), entry["answer"]
        # The last digits depend on the processor.
        assert float.fromhex(answer.pop("sum")) == pytest.approx(float.fromhex(expected["sum"]), rel=1e-9, abs=1e-9)
        # Series were numbered then, also those of one a station, which are named now.
        answer["sizes"] = {"series" if dim == "station" else dim: size for dim, size in answer["sizes"].items()}
        assert answer == {key: value for key, value in expected.items() if key != "sum"}, entry["document"]


def test_results_are_computed_again(archive: OpenArchive, tmp_path: Path) -> None:
    with tarfile.open(RESULTS) as packed:
        packed.extractall(tmp_path, filter="data")
    files = sorted((tmp_path / "results").glob("*.nc"))
    assert len(files) >= 12
    for file in files:
        again = hg.again(file, archive)
        assert all(difference.is_rounding for difference in again.differences), (file.name, again.differences)
        assert not [change for change in again.changes if "token" in change]
