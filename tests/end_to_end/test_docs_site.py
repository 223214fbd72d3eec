"""The guide's site builds without a warning, asks no other host, is served, and its search finds."""

import asyncio
import base64
import hashlib
import json
import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import matplotlib.pyplot as plt
import pytest
import snowballstemmer
from playwright.sync_api import sync_playwright
from starlette.applications import Starlette

import hypergrid as hg
from hypergrid.core.settings import Settings
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from tests.chromium import OPTIONS, SHELL, chromium_path
from tests.serving import serving
from tools.docs.blocks import BlockFailed
from tools.docs.build import build
from tools.docs.reference import format_docstring
from tools.wheel_rooms import iterate_files
from viz.site import site


@pytest.fixture(scope="module")
def guide(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    out = tmp_path_factory.mktemp("site") / "html"
    build(out, archive=demo)
    plt.close("all")
    return out


def get(app: Starlette, address: str) -> httpx.Response:
    """Ask the pages without a server."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(address)

    return asyncio.run(ask())


def test_the_site_is_whole_and_asks_no_other_host(guide: Path) -> None:
    pages = {path.relative_to(guide).as_posix(): path.read_text("utf-8") for path in guide.rglob("*.html")}
    assert len(pages) > 55
    for name, text in pages.items():
        for address in re.findall(
            r'(?:<img|<script)[^>]*\ssrc="([^"]+)"|<link[^>]*rel="stylesheet"[^>]*href="([^"]+)"', text
        ):
            target = next(filter(None, address))
            assert not re.match(r"(?:https?:)?//", target), f"{name}: {target}"
            if not target.startswith("data:"):
                assert (guide / name).parent.joinpath(target.split("?")[0]).resolve().is_file(), f"{name}: {target}"
        for target in re.findall(r'<a[^>]*\shref="([^"#]+)', text):
            if not re.match(r"[a-z]+:", target):
                assert (guide / name).parent.joinpath(target.split("?")[0]).resolve().exists(), f"{name}: {target}"
        assert not re.search(r"<[^>]+\son[a-z]+=", text), f"{name} has code in an attribute"
    assert pages["methods/kriging.html"].count("<math") > 5
    assert "hg.compare_methods" in pages["reference/python.html"]
    assert "--write-deployment" in pages["reference/command_line.html"]
    assert "/api/v1/queries/{job_id}/result" in pages["reference/http.html"]
    settings = re.sub("<[^>]+>", "", pages["reference/settings.html"])
    for field in fields(Settings):
        assert re.search(rf"^{field.name}$", settings, re.MULTILINE), field.name


def test_search_finds(guide: Path) -> None:
    index: dict[str, Any] = json.loads(
        re.match(r"Search\.setIndex\((.*)\)", (guide / "searchindex.js").read_text("utf-8"))[1]
    )  # type: ignore[index]
    stem = snowballstemmer.stemmer("english").stemWord

    def find(words: str) -> set[str]:
        found: list[set[int]] = []
        for word in map(stem, words.split()):
            numbers = [index[part].get(word, []) for part in ("terms", "titleterms")]
            found.append({number for part in numbers for number in (part if isinstance(part, list) else [part])})
        return {index["docnames"][number] for number in set.intersection(*found)}

    assert {"methods/uncertainty", "tutorials/uncertainty"} <= find("uncertainty")
    assert {"how_to/counters", "methods/rain"} <= find("rain")
    assert "how_to/late_data" in find("late data")


def test_the_server_shows_it_under_a_policy_that_names_its_scripts(guide: Path) -> None:
    pages = site(guide)
    assert '<div id="tools" data-guide="docs/">' in get(pages, "/").text
    page = get(pages, "/docs/")
    policy = page.headers["content-security-policy"]
    assert "'unsafe-eval'" not in policy
    assert "script-src 'self' 'sha256-" in policy
    scripts = re.findall(r"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", page.text, re.DOTALL)
    assert scripts
    for script in scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    assert get(pages, "/docs/how_to/gaps.html").status_code == 200
    assert get(pages, "/docs/nowhere.html").status_code == 404


@pytest.fixture
def chromium() -> str:
    path = chromium_path()
    if path is None:
        pytest.skip(f"no Chromium on the PATH: install the package {SHELL}, or chromium")
    return path


def test_search_works_in_a_browser_under_the_policy(guide: Path, demo: Path, chromium: str) -> None:
    archive = hg.open(demo)
    app = create_app(Runner(archive), Catalogue(archive))
    app.mount("/", site(guide))
    complaints: list[str] = []
    with serving(app) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS))
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{address}/")
        with page.expect_popup() as popup:
            page.get_by_role("link", name="Guide").click()
        popup.value.wait_for_url("**/docs/")
        popup.value.close()
        page.goto(f"{address}/docs/search.html?q=late+data")
        page.wait_for_selector("#search-results a[href*='late_data']")
        page.goto(f"{address}/docs/gallery.html")
        drawn = page.locator("article img").evaluate_all("images => images.map(image => image.naturalWidth)")
        # A wide table or line of code scrolls by itself.
        width = page.evaluate("document.documentElement.scrollWidth")
        browser.close()
    assert complaints == []
    assert len(drawn) >= 12
    assert min(drawn) > 200
    assert width <= 390


def test_a_wheel_takes_the_guide_along(tmp_path: Path) -> None:
    for name in ("viz/docs/html/index.html", "viz/docs/why.md", "viz/__pycache__/site.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    packed = {path.relative_to(tmp_path).as_posix() for path in iterate_files(tmp_path)}
    assert packed == {"viz/docs/html/index.html", "viz/docs/why.md"}


def test_without_a_guide_there_is_no_link(tmp_path: Path) -> None:
    pages = site(tmp_path)
    assert "docs/" not in get(pages, "/").text
    assert get(pages, "/docs/").status_code == 404


def test_a_docstring_becomes_markdown() -> None:
    text = format_docstring(
        "Do it.\n\nParameters\n----------\na, b\n    Numbers\n    [m].\n\nExamples\n--------\n>>> 1\n1\n"
    )
    assert "* `a, b`: Numbers [m]." in text
    assert "```pycon\n>>> 1\n1\n```" in text


def test_a_build_that_fails_leaves_the_site_of_before(
    guide: Path, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "html"
    shutil.copytree(guide, out)

    def fail(*_: object) -> None:
        raise BlockFailed("page.md:1: it does not run")

    monkeypatch.setattr("tools.docs.build.draw_pictures", fail)
    with pytest.raises(BlockFailed):
        build(out, archive=demo)
    assert (out / "index.html").is_file()
