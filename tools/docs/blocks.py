"""Code blocks of the guide: each page's blocks run in order, in a folder of its own beside the demo's archive."""

import contextlib
import io
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import httpx

import hypergrid as hg
from hypergrid.cli.main import load_command
from hypergrid.continuous.archive_catalogue import list_streams
from hypergrid.continuous.language import parse_script
from hypergrid.core.settings import Settings, read_settings
from hypergrid.core.times import parse_instant
from hypergrid.layers.raster_reader import read_raster
from ingest.deployment.deployment_file import from_mapping
from ingest.job import ingest
from queries.boards.definition import board_from_json
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.definition import definition_from_json
from queries.web.app import create_app
from station_data.generate import generate
from station_data.terrain import write_terrain
from tests.end_to_end.in_process import hypergrid
from tests.serving import serving

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = ROOT / "viz" / "docs"
NOW_NS: Final = parse_instant("2007-10-05")
ARCHIVE: Final = "build/demo/archive"
"""Where pages find the archive of the demo."""
LONG_RUNNING: Final = frozenset({"bench", "demo", "reprocess", "serve", "stream"})
"""Commands that are not run, but whose options have to exist: they serve until they are stopped, or start Spark."""
NOT_RUN: Final[Mapping[str, str]] = {
    "text": "shows what is printed",
    "csv": "is a file, which is written",
    "r": "R is not among the tools of the tests; the addresses that it reads are in a block of the page that runs",
    "nginx": "configures another program",
}
"""Languages of blocks that are not run, with the reason."""
_FENCE: Final = re.compile(r"^(?:`([\w./-]+)`:\n\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class BlockFailed(Exception):
    """A block of a page did not do what the page says."""


@dataclass(frozen=True)
class Block:
    """One code block of a page."""

    language: str
    text: str
    line: int
    """Line of the page at which it begins."""
    file: str | None = None
    """Name of the file that holds it, if the line above gives one."""


def list_pages() -> list[str]:
    """Return the pages that hold code, by their paths below the sources."""
    return sorted(
        path.relative_to(PAGES).as_posix()
        for path in PAGES.rglob("*.md")
        if "html" not in path.relative_to(PAGES).parts and read_blocks(path.read_text(encoding="utf-8"))
    )


def read_blocks(page: str) -> list[Block]:
    return [
        Block(match[2], match[3], page.count("\n", 0, match.start(2)) + 1, match[1]) for match in _FENCE.finditer(page)
    ]


def make_demo(folder: Path) -> Path:
    """Make the archive of nine days of the sample network, with rain, a front and the terrain; return it."""
    generate(folder / "stations", start="2007-09-26", days=9, formats=("sensorscope",))
    archive = folder / ARCHIVE
    ingest([folder / "stations"], archive, engine="inprocess", now_ns=NOW_NS)
    hg.open(archive).store.add_layer(read_raster(write_terrain(folder / "dem.tif"), name="elevation"), now_ns=NOW_NS)
    return archive


def run_page(page: str, folder: Path, archive: Path) -> str:
    """Run the blocks of a page in order, and return what they print.

    Parameters
    ----------
    page
        Path below the sources of the guide.
    folder
        An existing empty folder, the working folder of the blocks; what they write stays in it.
    archive
        The archive that the page finds at `build/demo/archive`.

    Raises
    ------
    BlockFailed
        A block raised an error, a command failed, or a description is invalid; the message names page and line.
    """
    (folder / ARCHIVE).parent.mkdir(parents=True)
    (folder / ARCHIVE).symlink_to(archive)
    (folder / "station_data").symlink_to(ROOT / "station_data")
    (folder / "dem.tif").symlink_to(archive.parents[2] / "dem.tif")
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        for block in read_blocks((PAGES / page).read_text(encoding="utf-8")):
            if block.file is not None:
                Path(block.file).parent.mkdir(parents=True, exist_ok=True)
                Path(block.file).write_text(block.text, encoding="utf-8")
            run = RUNNERS.get(block.language)
            if run is None and block.language not in NOT_RUN:
                raise BlockFailed(f"{page}:{block.line}: nothing runs blocks of {block.language!r}")
            try:
                if run is not None:
                    run(block, names)
            except Exception as error:
                raise BlockFailed(f"{page}:{block.line}: {type(error).__name__}: {error}") from error
    return printed.getvalue()


def _run_python(block: Block, names: dict[str, Any]) -> None:
    exec(compile(block.text, f"block at line {block.line}", "exec"), names)


def _run_commands(block: Block, _names: dict[str, Any]) -> None:
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        match words:
            case []:
                pass
            case ["make", target, *_]:
                if not re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE):
                    raise BlockFailed(f"the Makefile has no target {target!r}")
            case ["pip", "install" | "wheel", *_]:
                pass
            case ["hypergrid", command, *_] if command in LONG_RUNNING:
                _check_options(words[1:])
            case ["hypergrid", *rest]:
                done = hypergrid(*rest)
                print(done.stdout)
                if done.returncode:
                    raise BlockFailed(f"{line}: status {done.returncode}: {done.stderr.strip()}")
            case _:
                raise BlockFailed(f"{line}: only hypergrid is run; make, pip wheel and pip install are known")


def _check_options(words: list[str]) -> None:
    command = load_command(words[0])
    known = {option for param in command.params for option in param.opts} | {"--archive"}
    unknown = {word for word in words if word.startswith("-")} - known
    if unknown:
        raise BlockFailed(f"hypergrid {words[0]} has no option {', '.join(sorted(unknown))}")


def _check_json(block: Block, _names: dict[str, Any]) -> None:
    document = json.loads(block.text)
    if "panels" in document:
        board_from_json(document)
        return
    asked = document
    if "query" in document:
        # Whom a server may write to is its operator's choice.
        definition_from_json(document, settings=None)
        asked = document["query"]
        if "continuous" in asked:
            # It names a query that is kept.
            return
    hg.open(ARCHIVE).query(asked).plan()


_MINIMAL: Final = {"network": {"name": "pass"}, "feed": [{"name": "csv", "files": "*.csv", "format": "csv"}]}


def _check_toml(block: Block, _names: dict[str, Any]) -> None:
    content = tomllib.loads(block.text)
    if content.keys() <= {field.name for field in fields(Settings)}:
        Path("settings.toml").write_text(block.text, encoding="utf-8")
        read_settings(Path("settings.toml"))
    else:
        # A page may show some tables alone.
        from_mapping({**_MINIMAL, **content}, path=Path(block.file or "deployment.toml").resolve())


def _check_statements(block: Block, _names: dict[str, Any]) -> None:
    parse_script(block.text, list_streams(hg.open(ARCHIVE)))


def _get_addresses(block: Block, _names: dict[str, Any]) -> None:
    archive = hg.open(ARCHIVE)
    app = create_app(Runner(archive), Catalogue(archive, saved=ROOT / "station_data" / "queries"))
    with serving(app) as address:
        for line in block.text.splitlines():
            method, path = line.split(" ", 1)
            answer = httpx.request(method, address + path, timeout=60, trust_env=False)
            print(answer.text[:2000])
            if answer.status_code != 200:
                raise BlockFailed(f"{line}: status {answer.status_code}: {answer.text[:500]}")


RUNNERS: Final[Mapping[str, Callable[[Block, dict[str, Any]], None]]] = {
    "python": _run_python,
    "sh": _run_commands,
    "json": _check_json,
    "toml": _check_toml,
    "sql": _check_statements,
    "http": _get_addresses,
}
"""What runs a block, by its language."""
