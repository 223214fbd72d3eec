"""The site: its files, BokehJS from the installed package, problems as documents, and no other host in any file."""

import ast
import asyncio
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from hypergrid.interpolation.variograms.models import MODELS
from viz.site import PAGES, site

TEXTS = tuple(sorted(file.name for file in PAGES.glob("text*.js")))


class Client:
    """Asks the site without a server."""

    def get(self, address: str, params: dict[str, Any] | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(site())
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.get(address, params=params)

        return asyncio.run(ask())


@pytest.fixture
def client() -> Client:
    return Client()


def test_the_page_names_files_that_are_served(client: Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    addresses = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert len(addresses) >= 6
    for address in addresses:
        assert client.get(f"/{address}").status_code == 200, address


def test_the_page_names_all_modules_of_each_part_before_it_loads_them(client: Client) -> None:
    (named,) = re.findall(r'data-modules="([^"]+)"', client.get("/").text)
    modules = json.loads(html.unescape(named))
    assert set(modules) == {"overview", "explore", "boards", "stations", "standing", "continuous", "engine", "import"}
    for part, files in modules.items():
        assert {"page.js", f"{part}.js"} <= set(files)
        assert len(files) == len(set(files))
        for file in files:
            lines = (PAGES / file).read_text("utf-8").splitlines()
            imported = {line.rpartition('"./')[2].partition('"')[0] for line in lines if ' from "./' in line}
            assert imported <= set(files), (part, file)


def test_a_figure_is_drawn_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"west": 7, "east": 8, "south": 45, "north": 46, "units": "degC", "title": "drawn once"}
    first = client.get("/figures/map", params=asked)
    monkeypatch.setattr("viz.site._draw_figure", lambda _request: pytest.fail("it was drawn again"))
    again = client.get("/figures/map", params=asked)
    assert (again.json(), again.headers["cache-control"]) == (first.json(), first.headers["cache-control"])


def test_no_file_of_the_page_names_another_host() -> None:
    for file in PAGES.iterdir():
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]+\.[a-z]+/", text), file.name


def test_nothing_in_the_page_is_inline() -> None:
    page = (PAGES / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*src=)|<style|\son[a-z]+=|\sstyle=", page)


@pytest.mark.parametrize("kind", ["lines", "day_by_hour", "map", "region", "overview", "histogram", "variogram"])
def test_figures_are_served(client: Client, kind: str) -> None:
    answer = client.get(f"/figures/{kind}", params={"west": 7, "east": 8, "south": 45, "north": 46, "units": "degC"})
    assert answer.status_code == 200
    assert answer.json()["doc"]["roots"]


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/figures/globe", 404),
        ("/figures/map", 400),
        ("/figures/map?west=a", 400),
        ("/figures/coast", 400),
        ("/figures/coast?west=9&east=8&south=1&north=2", 400),
        ("/figures/coast?west=8&east=9&south=1&north=200", 400),
        ("/figures/lines?width=x", 400),
        ("/x", 404),
        ("/static/x.js", 404),
    ],
)
def test_problems_are_documents(client: Client, address: str, status: int) -> None:
    answer = client.get(address)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


def test_static_files_stay_in_their_folder(client: Client) -> None:
    assert client.get("/static/../site.py").status_code == 404
    assert client.get("/static/%2e%2e/site.py").status_code == 404


def test_english_stands_in_the_files_of_texts() -> None:
    told = re.compile(r"""["`>][A-Z][a-z]+ [a-z]+ [a-z]+""")
    for file in PAGES.glob("*.js"):
        code = "\n".join(
            line for line in file.read_text("utf-8").splitlines() if not line.lstrip().startswith(("//", "*", "/*"))
        )
        assert file.name in TEXTS or not told.search(code), file.name


def test_files_of_the_page_are_short() -> None:
    for file in PAGES.iterdir():
        assert len(file.read_text("utf-8").splitlines()) <= 400, file.name


def test_variogram_models_of_the_forms_are_those_of_the_engine() -> None:
    listed = re.search(r"MODELS = (\[[^\]]*\])", (PAGES / "forms.js").read_text("utf-8"))
    assert listed
    assert set(json.loads(listed[1])) == set(MODELS)


def test_texts_that_the_pages_use_are_there() -> None:
    text = "".join((PAGES / name).read_text("utf-8") for name in TEXTS)
    used = {one for file in PAGES.glob("*.js") for one in re.findall(r"\bT((?:\.[a-zA-Z]+)+)", file.read_text("utf-8"))}
    assert used
    for path in used:
        for name in path[1:].split("."):
            assert re.search(rf"\b{name}\b", text) or name in ("map", "length"), path


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js, which runs the scripts of the pages")
def test_a_query_of_a_link_brings_no_code_into_the_python_that_is_copied(tmp_path: Path) -> None:
    evil = "x=1)\nimport os;os.system('id')#"
    step = {"op": evil, "function": f'"{evil}', "params": {evil: evil, "low": -40, "a b": None}}
    document = {"variable": f"'{evil}", "accept_flags": [evil], "steps": [step], "clip": {evil: [1]}}
    (tmp_path / "code.mjs").write_text((PAGES / "code.js").read_text("utf-8"), "utf-8")
    (tmp_path / "run.mjs").write_text(
        f"import {{ asPython }} from './code.mjs'; process.stdout.write(asPython({json.dumps(document)}));", "utf-8"
    )
    done = subprocess.run(["node", tmp_path / "run.mjs"], capture_output=True, check=True, text=True)  # noqa: S607
    tree = ast.parse(done.stdout)
    assert [type(one) for one in tree.body] == [ast.Import, ast.Assign, ast.Assign, ast.Assign]
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    called = {one.func.attr for one in calls if isinstance(one.func, ast.Attribute)}
    assert called == {"open", "compute", "accept_flags", "clip", "x1importosossystemid"}
    (keywords,) = [one.keywords for one in calls if len(one.keywords) == 3]
    assert [one.arg for one in keywords] == [None, "low", None]
