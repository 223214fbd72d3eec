"""SensorScope, Grand-St-Bernard 2007: 14 stations, 186,790 rows, whole."""

import json
from pathlib import Path

import numpy as np
import pytest

import hypergrid as hg
from ingest.job import ingest

NOW_NS = 1_200_000_000 * 10**9


@pytest.fixture(scope="module")
def files(root: Path) -> Path:
    """The folder of real files."""
    folder = root.parent / "shared/data/sensorscope_gsb"
    if not folder.is_dir():
        pytest.skip("the real data set ../shared/data/sensorscope_gsb is not here")
    return folder


def test_every_reading_of_every_column_is_in_the_archive(root: Path, files: Path, tmp_path: Path) -> None:
    deployment = root / "station_data/deployments/gsb.toml"
    report = ingest([files], tmp_path / "gsb", deployment=deployment, engine="inprocess", now_ns=NOW_NS)
    assert report.stations == 14
    assert report.rows == 186_790
    archive = hg.open(tmp_path / "gsb")
    # Each file row by row with numpy, which shares nothing with the parser; columns as the data set's notes list them.
    names = (
        "air_temperature", "surface_temperature", "solar_radiation", "relative_humidity", "soil_moisture", "watermark",
        "rain_meter", "wind_speed", "wind_direction",
    )  # fmt: skip
    tables = [np.loadtxt(path) for path in sorted(files.glob("stbernard-meteo-*.txt"))]
    assert sum(map(len, tables)) == 186_790
    for column, name in enumerate(names, start=8):
        readings = archive.store.read(name)
        superseded = archive.store.read(name, superseded=True)
        for table in tables:
            station = str(int(table[0, 0]))
            found = _sorted_pairs([r for r in (readings, superseded)], station)
            wanted = _pairs(np.round(table[:, 7]).astype(np.int64) * 10**9, table[:, column])
            missing = set(wanted) - set(found)
            assert not missing, f"{name} of station {station}: {sorted(missing)[:3]}"

    document = json.loads((root / "station_data/queries/q1.json").read_text())
    result = archive.query(document).compute()
    values = result["value"].to_numpy()
    assert np.isfinite(values).all()
    assert values.min() > -20
    assert values.max() < 20


def _pairs(times_ns: np.ndarray, values: np.ndarray) -> list[tuple[int, float | None]]:
    return [(int(t), None if np.isnan(v) else float(v)) for t, v in zip(times_ns, values, strict=True)]


def _sorted_pairs(parts: list, station: str) -> list[tuple[int, float | None]]:
    pairs = []
    for part in parts:
        chosen = [i for i, series in enumerate(part.series) if series.station == station]
        mask = np.isin(part.index, chosen)
        pairs += _pairs(part.time_ns[mask], part.value[mask])
    return pairs
