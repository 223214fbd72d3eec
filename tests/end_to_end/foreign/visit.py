"""What a stranger does with a network's folder, by commands, and the server of the archive that comes of it."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final

import xarray as xr

import hypergrid as hg
from hypergrid.core.settings import Settings, import_limits
from ingest.importing.importer import FolderImporter
from queries.web.serving import application
from tests.end_to_end.foreign.clean_archive import ask_intervals
from tests.end_to_end.foreign.judging import Score, judge
from tests.end_to_end.foreign.networks import Network
from tests.end_to_end.in_process import Done, hypergrid
from tests.judges import judge_file
from tests.serving import serving
from viz.site import site

NAMELESS: Final = [
    f'variable "air_temperature_{name}" missing the following attributes:: standard_name'
    for name in ("variance", "count_possible")
]
"""What has no standard name in CF: a variance, and how many readings there could have been."""


def run(*words: str | Path, execute: Callable[..., Done] = hypergrid) -> None:
    """Run a command, which must succeed."""
    done = execute(*words)
    assert done.returncode == 0, f"hypergrid {' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}"


class Visit:
    """What a stranger does with a network's folder; each step is taken once, when something needs it."""

    def __init__(self, network: Network, folder: Path, execute: Callable[..., Done] = hypergrid) -> None:
        self.network, self.folder, self.archive = network, folder, folder / "archive"
        self.commands: list[str] = []
        """Those that lead to the map."""
        self._execute = execute
        network.write(folder)

    def run(self, *words: str | Path) -> None:
        self.commands.append(" ".join(map(str, words)))
        run(*words, execute=self._execute)

    @cached_property
    def deployment(self) -> Path:
        """The proposed deployment file, with the zone, and the units that no file states, written in by hand."""
        path = self.folder / "deployment.toml"
        self.run("ingest", "--dry-run", self.folder / "raw", "--write-deployment", path)
        text = path.read_text("utf-8")
        if self.network.units:
            text = re.sub(r"(?m)^(?:# *)?timezone = \S+", f'timezone = "{self.network.zone}"', text)
        for column, unit in self.network.units.items():
            written = re.compile(rf'(?m)^("?{column}"? = \{{variable = "\w+")(?:, unit = "[^"]*")?')
            text, count = written.subn(rf'\1, unit = "{unit}"', text)
            assert count == 1, f"the proposal has {count} lines of {column}:\n{text[:3000]}"
        path.write_text(text, "utf-8")
        return path

    @cached_property
    def ingested(self) -> hg.OpenArchive:
        """The archive, with the terrain where there is some."""
        self.run("ingest", self.folder / "raw", "--archive", self.archive, "--deployment", self.deployment)
        if self.network.elevation is not None:
            self.run("layers", "add", self.folder / "terrain.tif", "--archive", self.archive)
        return hg.open(self.archive)

    @cached_property
    def query(self) -> Path:
        """The suggested query, with its variance."""
        path = self.folder / "first.json"
        assert self.ingested
        self.run("suggest", self.archive, "-o", path)
        path.write_text(json.dumps(ask_intervals(json.loads(path.read_text("utf-8")))), "utf-8")
        return path

    @cached_property
    def map(self) -> Path:
        path = self.folder / "map.nc"
        self.run("query", self.query, "--archive", self.archive, "-o", path)
        return path

    @cached_property
    def readings(self) -> list[Path]:
        """The files of all readings."""
        assert self.ingested
        run("export", self.archive, "-o", self.folder / "readings.nc")
        return sorted(self.folder.glob("readings*.nc"))

    def ingest_later(self) -> None:
        """Take the readings that come after those of `raw`."""
        run("ingest", self.folder / "later", "--archive", self.archive, "--deployment", self.deployment)

    def judged(self) -> Score:
        with xr.open_dataset(self.map, engine="h5netcdf") as answer:
            return judge(self.network, answer)


def find_lacks(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Return what CF and ACDD require and files lack, by file and convention."""
    found = {
        f"{path.name} by {rules}": [lack for lack in judge_file(path, rules) if lack not in NAMELESS]
        for path in paths
        for rules in ("cf", "acdd")
    }
    return {name: lacks for name, lacks in found.items() if lacks}


@contextmanager
def served(archive: Path, settings: Settings | None = None) -> Iterator[str]:
    """Serve an archive with its pages, standing queries, and imports if settings allow them; give the address."""
    settings = settings or Settings()
    with ExitStack() as stack:
        importer = None
        if settings.imports:
            importer = stack.enter_context(closing(FolderImporter(archive, import_limits(settings))))
        app = stack.enter_context(application(archive, settings, importer=importer))
        app.mount("/", site())
        with serving(app) as address:
            yield address
