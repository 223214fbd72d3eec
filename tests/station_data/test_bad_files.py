"""The files that must fail, fail in the way that their names say."""

from pathlib import Path

import numpy as np
import pytest

from station_data import terrain

FOLDER = Path(terrain.__file__).parent / "faults"


def fields(name: str) -> list[int]:
    return [len(line.split()) for line in (FOLDER / name).read_text().splitlines()]


def test_each_file_is_tiny() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert set(sizes) == {
        "truncated.txt",
        "empty.txt",
        "binary.txt",
        "bad_row.txt",
        "short_row.txt",
        "bad_date.csv",
    }
    assert max(sizes.values()) < 1000


def test_truncated_ends_within_a_row() -> None:
    assert not (FOLDER / "truncated.txt").read_text().endswith("\n")
    assert fields("truncated.txt")[:-1] == [17] * 5
    assert fields("truncated.txt")[-1] < 17


def test_empty_and_binary() -> None:
    assert (FOLDER / "empty.txt").read_bytes() == b""
    content = (FOLDER / "binary.txt").read_bytes()
    assert b"\0" in content
    with pytest.raises(UnicodeDecodeError):
        content.decode()


def test_rows_with_a_bad_token_and_too_few() -> None:
    assert fields("bad_row.txt") == [17] * 6
    third = (FOLDER / "bad_row.txt").read_text().splitlines()[2].split()
    with pytest.raises(ValueError, match="could not convert"):
        float(third[8])
    assert fields("short_row.txt") == [17, 17, 17, 12, 17, 17]


def test_bad_date_is_in_the_third_row() -> None:
    lines = (FOLDER / "bad_date.csv").read_text().splitlines()
    with pytest.raises(ValueError, match="Month out of range"):
        np.datetime64(lines[3].split(",")[1].removesuffix("Z"))
    assert np.datetime64(lines[2].split(",")[1].removesuffix("Z"))
