"""Make the golden questions: `python -m tests.archives.make_questions`, once; later programs must give the same tokens.

Two hundred questions of every kind, about the fixture archive and about arrays made from seeds, each with its content
token and a summary of what it answers; and results as files, which `hypergrid query --again` computes once more.
"""

import json
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.core.errors import HyperGridError
from hypergrid.perspective import question_from_json
from hypergrid.perspective.build.data_sources import pin_snapshot
from hypergrid.query import OpenArchive, Query
from tests.support.networks import PACES, knows_ground, random_array, random_layers
from tests.support.strategies import documents

FOLDER: Final = Path(__file__).resolve().parent
LAYOUT: Final = 3
"""Layout of the fixture archive that is asked."""
QUESTIONS: Final = FOLDER / "questions.json"
RESULTS: Final = FOLDER / "results.tar.xz"
OF_ARCHIVE: Final = 100
OF_ARRAYS: Final = 100
RESULT_FILES: Final = 12
ARRAY_VARIABLES: Final = ("air_temperature", "rain_meter", "wind_direction")


def unpack_archive(folder: Path) -> Path:
    """Unpack the fixture archive below a folder."""
    with tarfile.open(FOLDER / f"layout_{LAYOUT}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder / "archive"


def build_query(archive: OpenArchive, entry: dict[str, Any]) -> Query:
    """Build the query of an entry, about the archive or about the array of its seed."""
    if "seed" not in entry:
        return archive.query(entry["document"])
    document, number = entry["document"], entry["seed"]
    array, _ = random_array(number, variable=document["variable"], pace=entry["pace"])
    query = hg.base(array, layers=random_layers(number))
    return replace(query, question=pin_snapshot(question_from_json(document), str(query.question.snapshot)))


def summarise(result: xr.Dataset) -> dict[str, Any]:
    """Return shape, number and sum of the values, and sum of the counts."""
    values = result["value"].to_numpy()
    present = np.isfinite(values)
    return {
        "sizes": {str(name): int(size) for name, size in result["value"].sizes.items()},
        "present": int(present.sum()),
        "sum": float(values[present].sum()).hex(),
        "count": int(result["count"].sum()),
    }


def draw_entries(count: int, entries: st.SearchStrategy[dict[str, Any]], archive: OpenArchive) -> list[dict[str, Any]]:
    """Draw entries whose questions have an answer, no two alike, with their tokens and summaries."""
    answered: dict[str, dict[str, Any]] = {}

    @seed(20_071_001)
    @settings(max_examples=20 * count, database=None, deadline=None, phases=(Phase.generate,),
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(entries)
    def collect(entry: dict[str, Any]) -> None:
        if len(answered) >= count:
            return
        try:
            query = build_query(archive, entry)
            summary = summarise(query.compute())
        except HyperGridError:
            return
        if summary["present"]:
            answered[json.dumps(entry, sort_keys=True)] = {**entry, "token": query.token, "answer": summary}

    collect()
    return list(answered.values())


def main() -> None:
    """Make questions and results of today's program."""
    of_archive = st.builds(dict, document=documents(is_lonlat=True, has_ground=True))
    of_arrays = st.one_of(
        st.builds(
            dict,
            seed=st.just(number),
            pace=st.just(pace),
            document=documents(is_lonlat=False, pace=pace, variables=ARRAY_VARIABLES, has_ground=knows_ground(number)),
        )
        for number, pace in zip(range(12), [*PACES] * 4, strict=True)
    )
    with tempfile.TemporaryDirectory() as scratch:
        archive = hg.open(unpack_archive(Path(scratch)))
        entries = draw_entries(OF_ARCHIVE, of_archive, archive) + draw_entries(OF_ARRAYS, of_arrays, archive)
        results = Path(scratch) / "results"
        results.mkdir()
        for number, entry in enumerate(entries[: OF_ARCHIVE : OF_ARCHIVE // RESULT_FILES]):
            build_query(archive, entry).compute().to_netcdf(results / f"{number:02}.nc")
        with tarfile.open(RESULTS, "w:xz") as packed:
            packed.add(results, "results")
    QUESTIONS.write_text(json.dumps(entries, indent=1) + "\n")
    print(f"{len(entries)} questions, {RESULTS.stat().st_size:,} bytes of results")


if __name__ == "__main__":
    main()
