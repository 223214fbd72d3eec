"""The guide is true: the code of each page runs as printed, that of pages with pictures in `test_docs_site.py`."""

import re
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from tests.support.own_functions import forgotten_functions
from tools.docs.blocks import NOT_RUN, PAGES, ROOT, RUNNERS, BlockFailed, list_pages, read_blocks, run_page
from tools.docs.build import list_pictures

GALLERY = "gallery.md"
DEPLOYMENT = ROOT / "ingest" / "deployment"


@pytest.fixture(autouse=True)
def _no_window() -> None:
    mpl.use("Agg")


@pytest.fixture(autouse=True)
def _no_functions_left() -> Iterator[None]:
    """Pages run in this process: functions that they add are not for other tests."""
    with forgotten_functions():
        yield


@pytest.mark.parametrize("page", [page for page in list_pages() if not list_pictures(page)])
def test_the_code_of_a_page_runs_as_printed(page: str, demo: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, demo)
    plt.close("all")


def test_a_block_that_fails_is_named(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    monkeypatch.setattr("tools.docs.blocks.PAGES", sources)
    broken = {
        "python": "raise ValueError('here')",
        "sh": "hypergrid stations nowhere",
        "json": '{"variable": "air_temperature", "stepz": []}',
        "toml": "[network]\nname = 'x'\nslize_s = 3\n",
        "http": "GET /api/v1/nowhere",
        "fortran": "end",
    }
    for number, (language, text) in enumerate(broken.items()):
        (sources / "page.md").write_text(f"# Title\n\n```{language}\n{text}\n```\n")
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(BlockFailed, match=r"page\.md:3"):
            run_page("page.md", folder, demo)


def test_few_blocks_are_not_run() -> None:
    blocks = [block for page in list_pages() for block in read_blocks((PAGES / page).read_text("utf-8"))]
    assert {block.language for block in blocks} <= set(RUNNERS) | set(NOT_RUN)
    assert sum(block.language in RUNNERS for block in blocks) > 0.95 * len(blocks) > 80
    gallery = (PAGES / GALLERY).read_text("utf-8")
    assert len(re.findall(r"^!\[", gallery, re.MULTILINE)) >= 12


def test_every_key_of_a_deployment_file_is_on_its_page() -> None:
    page = (PAGES / "reference" / "deployment.md").read_text("utf-8")
    source = "\n".join(
        path.read_text("utf-8") for path in (DEPLOYMENT / "deployment_file.py", DEPLOYMENT / "topics.py")
    )
    keys = set(
        re.findall(r'(?:\.text|\.texts|\.number|\.optional_text|\.switch|\.integer|\.has|\.tables?)\("(\w+)"', source)
    )
    assert len(keys) > 40
    assert {key for key in keys if not re.search(rf"\b{key}\b", page)} == set()
