"""Reference pages of the guide, from docstrings, help texts, and the description of the web API."""

import ast
import inspect
import json
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import hypergrid as hg
from hypergrid.cli.main import PANELS, load_command
from hypergrid.core.settings import Settings
from hypergrid.perspective.functions.catalogue import format_tables, list_catalogue
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from tests.bench.task_judging import TASKS

ROOT: Final = Path(__file__).resolve().parents[2]
READMES: Final[Mapping[str, str]] = {
    "hypergrid": "hypergrid/README.md",
    "perspective": "hypergrid/perspective/README.md",
    "interpolation": "hypergrid/interpolation/README.md",
    "wo_join": "hypergrid/wo_join/README.md",
    "archive": "hypergrid/archive/README.md",
    "ingest": "ingest/README.md",
    "quality": "ingest/quality/README.md",
    "sources": "ingest/sources/README.md",
    "queries": "queries/README.md",
    "viz": "viz/README.md",
    "station_data": "station_data/README.md",
    "reference_queries": "station_data/queries/README.md",
}
"""READMEs that become developers' pages, by the names of these."""
MEASURED: Final = ROOT / "tests" / "bench" / "tasks" / "measured.json"
"""What `hypergrid bench tasks --json` printed."""
TASKS_MARK: Final = "<!-- tasks -->"
PEERS: Final[Mapping[str, str]] = {"by_hand": "pandas, xarray, PyKrige", "gridpp": "gridpp", "hypergrid": "HyperGrid"}
_SECTION: Final = re.compile(r"^([A-Z][a-z]+(?: [a-z]+)?)\n-{3,}$", re.MULTILINE)
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)#\s]+)(#[^)]*)?\)")


def write_reference(source: Path, archive: Path) -> None:
    """Write all generated pages below the sources of a build.

    Parameters
    ----------
    source
        Folder of the sources, where pages are expected in `reference/` and `developers/`.
    archive
        An archive, of which the description of the web API is made.
    """
    reference, developers = source / "reference", source / "developers"
    for folder in (reference, developers):
        folder.mkdir(exist_ok=True)
    opened = hg.open(archive)
    document = create_app(Runner(opened), Catalogue(opened)).openapi()
    pages = {
        reference / "python.md": describe_python(),
        reference / "command_line.md": describe_commands(),
        reference / "functions.md": describe_functions(),
        reference / "settings.md": describe_settings(),
        reference / "http.md": describe_routes(document),
        source / "comparison.md": fill_comparison((source / "comparison.md").read_text(encoding="utf-8")),
        source / "glossary.md": (ROOT / "GLOSSARY.md").read_text(encoding="utf-8"),
    }
    pages |= {developers / f"{name}.md": _readme(path) for name, path in READMES.items()}
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    for readme in (ROOT / path for path in READMES.values()):
        for bang, _, target, _ in _LINK.findall(readme.read_text(encoding="utf-8")):
            if bang:
                shutil.copy(readme.parent / target, source / "pictures")


def describe_python() -> str:
    """Describe the public names of the package, from their signatures and docstrings."""
    parts = [
        "# Python",
        "`import hypergrid as hg` gives these names. A query is built by the methods of `Query`; on another machine "
        "`hypergrid.viz.client.Client` (in a checkout `viz.client.Client`) has the same methods.",
    ]
    for name in sorted(set(hg.__all__) - {"__version__"}, key=str.lower):
        value = getattr(hg, name)
        parts += [f"## hg.{name}", _describe(value, f"hg.{name}")]
        if inspect.isclass(value):
            for method in _list_methods(value):
                parts += [f"### {name}.{method}", _describe(getattr(value, method), method)]
    return "\n\n".join(parts) + "\n"


def _list_methods(kind: type) -> list[str]:
    """Return the documented public methods and properties of a class and of its bases in the package."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("hypergrid")]
    names = dict.fromkeys(name for base in own for name in vars(base) if not name.startswith("_"))
    return [name for name in names if inspect.getdoc(getattr(kind, name, None)) and _is_documented(kind, name)]


def _is_documented(kind: type, name: str) -> bool:
    value = inspect.getattr_static(kind, name)
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


def _describe(value: object, name: str) -> str:
    docstring = format_docstring(inspect.getdoc(value) or "")
    if not callable(value):
        return docstring
    try:
        # Annotations of classes are resolved to long names; those of the source are what a reader knows.
        signature = str(inspect.signature(value)).replace("self, ", "").replace("(self)", "()")
    except ValueError:
        return docstring
    return f"```text\n{name}{_shorten(signature)}\n```\n\n{docstring}"


def _shorten(signature: str) -> str:
    bare = re.sub(r"(?:[a-z_]+\.)+(?=[A-Za-z_])", "", signature).replace("'", "")
    return bare if len(bare) < 90 else bare.replace("(", "(\n    ", 1).replace(", ", ",\n    ")


def format_docstring(docstring: str) -> str:
    """Return a docstring in the numpy convention as Markdown."""
    first, *rest = _SECTION.split(docstring)
    parts = [first.strip()]
    for title, text in zip(rest[::2], rest[1::2], strict=True):
        if title == "Examples":
            parts.append(f"**Example**\n\n```pycon\n{text.strip()}\n```")
        else:
            parts += [f"**{title}**", "\n".join(_list_items(text)) or text.strip()]
    return "\n\n".join(part for part in parts if part)


def _list_items(text: str) -> Iterator[str]:
    """Yield each parameter, or error, with its description as an item of a list."""
    for match in re.finditer(r"^(\S.*)\n((?:[ \t]+.*\n?|\n)*)", text.strip("\n") + "\n", re.MULTILINE):
        described = " ".join(match[2].split())
        yield f"* `{match[1].strip()}`: {described}" if described else match[1].strip()


def describe_commands() -> str:
    """Describe every command and its options, from the help texts of the command line."""
    parts = [
        "# Command line",
        "`hypergrid COMMAND --help` prints the same. The archive is the first argument; `--archive DIR`, or "
        "`HYPERGRID_ARCHIVE` in the environment, does as well. Exit status: 0 success, 1 failure, 2 wrong use, 130 "
        "interrupted.",
    ]
    for panel, lines in PANELS.items():
        parts.append(f"## {panel}")
        for name in lines:
            parts += list(_describe_command(name, load_command(name)))
    return "\n\n".join(parts) + "\n"


def _describe_command(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - commands and groups of two libraries
    if hasattr(command, "commands"):
        yield f"### hypergrid {name}"
        yield _plain(command.help)
        for inner, command_of in command.commands.items():
            yield from _describe_command(f"{name} {inner}", command_of)
        return
    context = command.context_class(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"### hypergrid {name}"
    yield f"```text\nhypergrid {name} {usage}\n```"
    yield _plain(command.help)
    rows = [row for param in command.params if (row := _describe_option(param, context)) is not None]
    if rows:
        yield "\n".join(["| argument or option | meaning |", "|---|---|", *rows])


def _describe_option(param: Any, context: Any) -> str | None:  # noqa: ANN401 - those of the library within Typer
    record = param.get_help_record(context)
    if record is None or "--help" in param.opts:
        return None
    names, meaning = (_plain(text).replace("\n", " ") for text in record)
    return f"| `{names.replace('|', ', ')}` | {meaning} |"


def _plain(text: str | None) -> str:
    """Return a help text without what would be markup."""
    return re.sub(r"[\x00\b\f]", "", text or "").replace("|", "/").replace("[", "\\[").strip()


def describe_functions() -> str:
    """Describe every function and method that a query can name."""
    own = format_tables(entry for entry in list_catalogue() if not entry.is_added)
    titles = {
        "convert": "Convert: value by value",
        "aggregate": "Aggregate: over larger cells",
        "merge": "Merge: several variables",
        "interpolate": "Interpolate: between stations or readings",
    }
    for step, title in titles.items():
        own = own.replace(f"| {step} | what it is |", f"## {title}\n\n| {step} | what it is |")
    begin = (
        "# Functions and methods\n\n`hypergrid functions NAME` describes one in detail. An aggregate has a "
        "`min_coverage`, the share of the possible readings below which a cell is missing. Parameters in brackets are "
        "optional.\n\n"
    )
    return begin + own


def describe_settings() -> str:
    """Describe every setting of the server, from its record and the texts below its fields."""
    begin = (
        "# Settings of the server\n\n`hypergrid serve ARCHIVE --settings FILE` reads them from a TOML file. "
        "`HYPERGRID_NAME` in the environment, the name in capitals, lists separated by commas, takes precedence over "
        "the file, and options of the command over both. `--check` says what would be served, and whether it can be. "
        "[The how-to](../how_to/server.md) has an example.\n\n"
    )
    return begin + "\n".join(["| setting | if absent | meaning |", "|---|---|---|", *_list_settings()]) + "\n"


def _list_settings() -> Iterator[str]:
    (record,) = ast.parse(textwrap.dedent(inspect.getsource(Settings))).body
    assert isinstance(record, ast.ClassDef)
    defaults = Settings()
    for field, text in pairwise(record.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                shown = _format_default(name, getattr(defaults, name))
                yield f"| `{name}` | {shown} | {_plain(' '.join(meaning.split()))} |"


def _format_default(name: str, value: object) -> str:
    if value in ("", None, ()):
        return ""
    size = f" ({value // 2**20:,} MiB)" if name.endswith("bytes") and isinstance(value, int) else ""
    return f"`{json.dumps(value)}`{size}"


def fill_comparison(page: str) -> str:
    """Return the page of the head-to-head with the table of the committed measurements."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    rows = [_format_task(row) for row in (*measured["prepare"], *measured["tasks"])]
    table = "\n".join(["| task | by | lines | seconds | error | |", "|---|---|---|---|---|---|", *rows])
    machine = ", ".join(f"{name} {value}" for name, value in measured["machine"].items())
    return page.replace(TASKS_MARK, f"{table}\n\n`{measured['command']}`: {machine}.")


def _format_task(row: Mapping[str, Any]) -> str:
    title = "prepare the files, once" if row["task"] == "prepare" else TASKS[row["task"]].title
    begin = f"| {title} | {PEERS[row['peer']]} | {row['lines']} |"
    if "absent" in row:
        return f"{begin} not installed | | |"
    errors = [(name.replace("_", " "), f"{value:.2g}") for name, value in row.get("errors", {}).items()]
    first = f"{errors[0][1]} {row['unit']}" if errors else ""
    return f"{begin} {row['seconds']:.2g} | {first} | {', '.join(' '.join(pair) for pair in errors[1:])} |"


def describe_routes(document: Mapping[str, Any]) -> str:
    """Describe the routes of the web API, from its OpenAPI document."""
    parts = [
        "# HTTP",
        "The server describes itself at `/openapi.json`; this page is made of that description. Bodies of queries are "
        "[query JSON](query.md). Errors are problem documents (RFC 9457): status, title, and a detail that says what "
        "to do. [The how-to on other programs](../how_to/edr.md) has examples.",
    ]
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            if method not in ("get", "post", "delete", "put"):
                continue
            parts += [f"## {method.upper()} {path}", _plain(operation.get("description") or operation.get("summary"))]
            rows = [
                f"| `{given['name']}` | {given['in']} | {_plain(given.get('description', '')) or ' '} |".replace(
                    "\n", " "
                )
                for given in operation.get("parameters", [])
                if "name" in given
            ]
            if rows:
                parts.append("\n".join(["| parameter | in | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _readme(path: str) -> str:
    """Return a README whose links lead to pages of the guide, and are plain text where there is none."""
    text = (ROOT / path).read_text(encoding="utf-8")
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(lambda m: _link(m, path), part) for part in parts)


def _link(match: re.Match[str], readme: str) -> str:
    bang, text, target = match[1], match[2], match[3]
    file = (ROOT / readme).parent.joinpath(target).resolve()
    if bang:
        return f"![{text}](../pictures/{file.name})"
    page = _find_page(file)
    return text if page is None else f"[{text}]({page})"


def _find_page(file: Path) -> str | None:
    readme = file / "README.md" if file.is_dir() else file
    names: Iterable[str] = (name for name, path in READMES.items() if ROOT / path == readme)
    return next((f"{name}.md" for name in names), None)
