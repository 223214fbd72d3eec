"""`EMIT NOW` over a stretch: rows with each arrival, and corrections of what arrived too late for them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hypergrid as hg
from hypergrid.continuous.live import AtOnceQuery
from hypergrid.continuous.query import LiveArchive
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS
from tests.support.continuous_archives import elements_of, random_sources
from tests.support.continuous_live_archives import QUERIES, commit, create, draw_commits
from tests.support.networks import START_NS

TEXTS = {
    "rows": "Select Istream(station, value) From air_temperature Where value > 5",
    "mean": "Select station, avg(value) as mean, count(*) as k From air_temperature [Range 20 Minutes] "
    "Group By station",
    "slide": "Rstream(Select station, max(value) as most From air_temperature [Range 15 Minutes Slide 5 Minutes] "
    "Group By station)",
    "total": "Select station, count(*) as k, max(value) as most From air_temperature Group By station",
    "last": "Select station, value From air_temperature [Partition By station Rows 2]",
    "left": "Select Dstream(station) From (Select distinct station From air_temperature [Range 10 Minutes])",
}


def count_rows(frame: pd.DataFrame, columns: int) -> Counter[tuple[object, ...]]:
    counts = Counter[tuple[object, ...]]()
    instants = frame["tau"].astype("int64").to_list()
    rows = frame.iloc[:, 2 : 2 + columns].astype(object).where(frame.iloc[:, 2 : 2 + columns].notna(), None)
    for tau, sign, row in zip(instants, frame["sign"].to_list(), rows.itertuples(index=False, name=None), strict=True):
        counts[tau, *row] += sign
    return Counter({key: count for key, count in counts.items() if count})


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("seed", range(2))
def test_rows_are_those_that_each_arrival_makes_known(tmp_path: Path, seed: int, name: str) -> None:
    archive, table = random_sources(tmp_path / "a", seed, hours=1)
    everything = elements_of(table)
    everything = everything[everything["variable"] == "air_temperature"]
    elements = everything[everything["flag"].isin([1, 2])][["tau", "arrival", "station", "series", "value"]]
    stop = int(everything["tau"].max()) + 1200 * SECOND_NS
    query = hg.continuous(archive).query(f"{TEXTS[name]} EMIT NOW")
    frame = query.run(START_NS - 7200 * SECOND_NS, stop)
    columns = frame.shape[1] - 4
    assert list(frame.columns[-2:]) == ["given", "corrects"]
    assert frame["given"].is_monotonic_increasing
    given = Counter[tuple[object, ...]]()
    newest = -1
    # Each arrival: what the elements that had arrived by then give, at once.
    for arrival in np.unique(everything["arrival"]).tolist():
        known = elements[elements["arrival"] <= arrival].drop(columns="arrival")
        source = hg.continuous({"air_temperature": known})
        before, newest = newest, int(everything[everything["arrival"] <= arrival]["tau"].max())
        expected = count_rows(source.query(TEXTS[name]).run(until=newest), columns)
        # What is after the newest element comes when the stretch ends.
        part = frame[(frame["given"].astype("int64") == arrival) & (frame["tau"].astype("int64") <= newest)]
        given.update(count_rows(part, columns))
        assert {key: count for key, count in given.items() if count} == expected, arrival
        # What was given before is corrected, and nothing else is a correction.
        assert ((part["tau"].astype("int64") <= before) == part["corrects"]).all()
    final = count_rows(hg.continuous(archive).query(TEXTS[name]).run(START_NS - 7200 * SECOND_NS, stop), columns)
    assert count_rows(frame, columns) == final
    assert frame["corrects"].any()


@pytest.mark.parametrize("name", ["mean", "join", "stuck", "total", "near"])
def test_all_rows_together_are_the_final_ones(tmp_path: Path, name: str) -> None:
    create(tmp_path / "a")
    for number, parts in enumerate(draw_commits(7, 5)):
        # Whole commits come late, and amendments after them.
        late = [part.take_rows(np.arange(len(part))) for part in parts]
        for part in late:
            part.arrival_ns[:] = START_NS + (number + 1) * 2160 * SECOND_NS
        commit(tmp_path / "a", number, late)
    archive = hg.continuous(tmp_path / "a")
    text = QUERIES[name]
    at_once, final = (archive.query(each).run() for each in (f"{text} EMIT NOW", text))
    columns = final.shape[1] - 2
    assert count_rows(at_once, columns) == count_rows(final, columns)
    assert at_once["corrects"].any()
    assert at_once["given"].nunique() >= 5
    assert (at_once["given"] >= at_once["tau"]).all()


def test_a_stretch_that_memory_cannot_hold_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "a")
    commit(tmp_path / "a", 0, draw_commits(7, 1)[0])
    archive = hg.continuous(tmp_path / "a")
    query = archive.query(QUERIES["first"])
    assert isinstance(query, AtOnceQuery)
    with pytest.raises(
        InvalidQuery, match=r"EMIT NOW holds the elements of the stretch, [\d,]+ bytes, and may take 100;"
    ):
        query.run(allowed_bytes=100)
    assert isinstance(archive, LiveArchive)
    # Nothing of a table is late, and back-tests say what was true.
    assert not isinstance(archive.query("Select station From stations EMIT NOW"), AtOnceQuery)
    frame = next(query.iterate(by_value=True))[0]
    assert "given" not in frame
