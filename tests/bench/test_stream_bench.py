"""The benchmark of streaming in small."""

from pathlib import Path

import pytest

from tests.bench.ingest_stream import closing, deployment_file, sample, tables


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str, bytes]]:
    return sample(tmp_path_factory.mktemp("sample"), 12_000)


def test_messages_come_in_the_order_of_their_arrival(sent: list[tuple[int, str, bytes]]) -> None:
    assert len(sent) == 12_000
    assert [one[0] for one in sent] == sorted(one[0] for one in sent)
    assert {one[1] for one in sent} == {str(number) for number in range(1, 25)}


def test_slices_are_whole_when_they_close(sent: list[tuple[int, str, bytes]], tmp_path: Path) -> None:
    found = closing(sent, tmp_path, deployment_file(tmp_path))
    assert found["whole_at_first_closing_after_all_were_heard"] >= 0.992
    # The station that sends every six hours is waited for once it has been heard.
    assert 150 < found["slices_closed_after_all_were_heard"] < found["slices_closed"]
    # A slice closes with its last row at the soonest.
    assert found["wait_s_median"] >= 0
    assert found["state_rows_mean"] > 0
    assert [title for title, _, _ in tables({"closing": found})] == ["Streaming: closing"]
