"""When the end of summer time is seen in local times."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ingest.batch.dry_run import dry_run
from ingest.batch.proposal import propose_deployment

BERLIN = 'timezone = "Europe/Berlin"'


def stamps(first: str, count: int, step_min: int) -> list[str]:
    start = datetime.fromisoformat(first)
    return [(start + timedelta(minutes=step_min * number)).isoformat(timespec="minutes") for number in range(count)]


def doubled(step_min: int) -> list[str]:
    """Return the local times of a day whose hour from 02:00 is there twice."""
    return stamps("2007-10-28T00:00", 180 // step_min, step_min) + stamps("2007-10-28T02:00", 600 // step_min, step_min)


def table(times: list[str], header: str = "T [degC]", cells: str = "") -> str:
    return f"time,{header}\n" + "".join(f"{time},{5 + n % 7}{cells}\n" for n, time in enumerate(times))


@pytest.mark.parametrize("step_min", [1, 10, 30, 60])
def test_an_hour_that_is_there_twice_is_the_end_of_summer_time(step_min: int, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table(doubled(step_min)))
    assert BERLIN in propose_deployment(dry_run([tmp_path]))


@pytest.mark.parametrize("repeated", [1, 2])
def test_single_rows_that_are_there_twice_are_not(repeated: int, tmp_path: Path) -> None:
    times = stamps("2007-10-28T00:00", 144, 10)
    place = times.index("2007-10-28T02:10") + repeated
    (tmp_path / "a.csv").write_text(table([*times[:place], *times[place - repeated :]]))
    run = dry_run([tmp_path])
    assert run.sources[0].clock_back is None
    assert 'timezone = "UTC"' in propose_deployment(run)


def test_a_declared_zone_is_believed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table(doubled(10)))
    (tmp_path / "deployment.toml").write_text(
        '[network]\nname = "n"\n[[feed]]\nname = "f"\nfiles = "*.csv"\nformat = "csv"\ntimezone = "UTC"\n'
    )
    assert dry_run([tmp_path]).sources[0].clock_back is None


@pytest.mark.parametrize("wide", [0, 1])
def test_one_feed_of_two_headers_keeps_the_zone_of_either(wide: int, tmp_path: Path) -> None:
    plain = stamps("2007-10-28T00:00", 48, 10)
    for number, times in enumerate((doubled(10), plain)):
        has_both = number == wide
        text = table(times, "T [degC],RH [%]" if has_both else "T [degC]", ",60" if has_both else "")
        (tmp_path / f"log_{number}.csv").write_text(text)
    # A third file makes the patterns of both collide.
    (tmp_path / "log_2.csv").write_text(table(plain))
    (tmp_path / "log_3.csv").write_text(table(plain, "T [degC],RH [%]", ",60"))
    text = propose_deployment(dry_run([tmp_path]))
    assert text.count("[[feed]]") == 1
    assert BERLIN in text
