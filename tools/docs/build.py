"""Builds the guide: runs the pages that show pictures, generates the reference, and has Sphinx write the site."""

import argparse
import base64
import hashlib
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from sphinx.cmd.build import build_main

from tools.docs.blocks import PAGES, ROOT, list_pages, make_demo, run_page
from tools.docs.reference import write_reference
from viz.site import DOCS

SETTINGS: Final = Path(__file__).parent
POLICY: Final = (
    "default-src 'self'; script-src 'self'{hashes}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content security policy of the guide; its search is a form."""
_PICTURE: Final = re.compile(r"!\[[^\]]*\]\(([\w-]+\.png)\)")
_INLINE: Final = re.compile(r"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)


class BuildFailed(Exception):
    """The site has a warning, a broken link, or a page without its pictures."""


def build(out: Path = DOCS, *, archive: Path | None = None) -> None:
    """Build the site; a site of before is replaced once the new one is whole.

    Parameters
    ----------
    out
        Folder of the site.
    archive
        Archive of the demo, as `make_demo` makes it; one of its own if absent.

    Raises
    ------
    BlockFailed, BuildFailed
        A block of a page with pictures fails, or Sphinx has a warning; the site of before stays.
    """
    mpl.use("Agg")
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        source, site = work / "source", work / "site"
        shutil.copytree(PAGES, source, ignore=shutil.ignore_patterns("html"))
        chosen = make_demo(work / "demo") if archive is None else archive
        draw_pictures(source, work / "pages", chosen)
        shutil.copytree(ROOT / "station_data" / "pictures", source / "pictures")
        write_reference(source, chosen)
        shutil.copytree(ROOT / "station_data" / "notebooks", source / "notebooks")
        (source / "static").mkdir()
        shutil.copy(SETTINGS / "guide.css", source / "static")
        shutil.copy(ROOT / "viz" / "pages" / "icon.svg", source)
        shutil.copy(SETTINGS / "conf.py", source)
        options = ["-W", "--keep-going", "-n", "-q", "-b", "html", "-d", str(work / "trees")]
        if build_main([*options, str(source), str(site)]):
            raise BuildFailed("the guide has warnings, which are above")
        (site / "policy.txt").write_text(make_policy(site), encoding="utf-8")
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(site, out)


def list_pictures(page: str) -> list[str]:
    """Return the pictures that the code of a page writes."""
    return _PICTURE.findall((PAGES / page).read_text(encoding="utf-8"))


def draw_pictures(source: Path, work: Path, archive: Path) -> None:
    """Run the pages that show pictures of their own, and put these beside them."""
    for page in list_pages():
        pictures = list_pictures(page)
        if not pictures:
            continue
        folder = work / page.removesuffix(".md").replace("/", "-")
        folder.mkdir(parents=True)
        run_page(page, folder, archive)
        for picture in pictures:
            if not (folder / picture).is_file():
                raise BuildFailed(f"{page} shows {picture}, which its code does not write")
            shutil.copy(folder / picture, (source / page).parent)


def make_policy(site: Path) -> str:
    """Return the content security policy of a site, with the hashes of its inline scripts."""
    scripts = {
        script.encode() for page in site.rglob("*.html") for script in _INLINE.findall(page.read_text(encoding="utf-8"))
    }
    hashes = sorted(base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts)
    return POLICY.format(hashes="".join(f" 'sha256-{digest}'" for digest in hashes))


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site where `hypergrid serve` finds it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the site")
    given = parser.parse_args(arguments)
    build(given.out)
    print(f"written: {given.out / 'index.html'}; `hypergrid serve` shows it under /docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
