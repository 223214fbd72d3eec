"""The stations of the Grand-St-Bernard pass: every reading of every column, against a slow reader."""

from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from ingest.formats.sensorscope import COLUMNS
from ingest.job import ingest

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "sensorscope_gsb"
DEPLOYMENT = ROOT / "station_data" / "deployments" / "gsb.toml"


@pytest.mark.skipif(not DATA.is_dir(), reason="the real station files ../shared/data/sensorscope_gsb are not here")
def test_every_reading_of_every_column_is_in_the_archive(tmp_path: Path, now_ns: int) -> None:
    report = ingest([DATA], tmp_path / "a", deployment=DEPLOYMENT, now_ns=now_ns)
    assert (report.stations, report.rows, report.rejects) == (14, 186_790, {})
    assert report.readings == 186_790 * 9 == report.stored + report.duplicates
    archive = Archive.open(tmp_path / "a")
    tables = {path.stem.rsplit("-", 1)[1]: np.loadtxt(path) for path in DATA.glob("stbernard-meteo-*.txt")}
    assert len(tables) == 14
    for place, name in enumerate(COLUMNS):
        readings = archive.read(name)
        stations = np.array([one.station for one in archive.series(name)])[readings.index]
        assert set(stations.tolist()) == set(tables)
        for station, rows in tables.items():
            mine = stations == station
            epochs, first = np.unique(rows[:, 7].astype(np.int64), return_index=True)
            np.testing.assert_array_equal(readings.time_ns[mine], epochs * 10**9)
            # Two rows come twice in these files, each time with equal values.
            np.testing.assert_array_equal(readings.value[mine], rows[first, 8 + place])
    assert ingest([DATA], tmp_path / "a", deployment=DEPLOYMENT, now_ns=now_ns).snapshot is None
