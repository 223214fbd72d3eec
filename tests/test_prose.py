"""Docstrings, comments and READMEs are in plain English, and functions that need a docstring have one."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.test_names import ROOMS, ROOT, product_files

REJECTED: Final[Mapping[str, str]] = {
    r"\btold\b": "given, reported, known",
    r"\btells? of\b": "reports, holds",
    r"\bcame\b(?! back| ==)": "arrived, was read",
    r"\bso many\b": "name the number",
    r"\banew\b": "again",
    r"\balike\b": "equal, the same",
    r"\bparted\b": "separated",
    r"\bmend(?:s|ed|ing)?\b": "fix, repair",
    r"\breckon\w*": "compute",
    r"\b(?:leave|left) away\b": "omit",
    r"\bof what (?:it|they) (?:is|are)\b|\bwhat (?:it|they) (?:is|are) of\b": "name it",
    r"(?<![Tt]here )\bis no [A-Z]": "is not",
    r"\bwhere there (?:is|are) none\b": "if absent",
    r"\bwho(?:ever)?\b": "the caller, the user",
    r"\b(?:no|some|any|every)body\b": "the caller, another process",
}
"""Phrases that a native engineer would not write of code, and what to write."""
ANY_REJECTED: Final = re.compile("|".join(REJECTED), re.IGNORECASE)
ALLOWED: Final[Mapping[str, tuple[str, str]]] = {
    "queries/web/routes/": (
        r"\bwho|body\b|\banew\b|\btold\b|\bof what\b",
        "docstrings of routes are the API's description",
    ),
    "queries/standing/commands.py": (r"body\b|\bwho", "docstrings of commands are the help of the command line"),
    "queries/web/commands.py": (r"body\b", "docstrings of commands are the help of the command line"),
    "ingest/repair/restore_values.py": (r"\bmend\b", "names a parameter"),
    "ingest/sources/receiver.py": (r"\btold\b", "the module's docstring is the help of its command line"),
    "viz/FIRST_PATH.md": (r"\bwho|body\b", "about people"),
}
"""Phrases that stay, by where, with the reason."""
LONGEST: Final = 9
"""Statements of a public function without a docstring, at most."""


def walk(path: Path) -> Iterator[ast.AST]:
    """Yield modules, classes and functions of a file, and other statements that hold some."""
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        yield node
        nodes += [
            item
            for item in ast.iter_child_nodes(node)
            if isinstance(item, ast.stmt | ast.ExceptHandler | ast.match_case)
        ]


def iterate_prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield texts for people, without what is quoted as code, each with the line at which it starts."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        bare = re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), source, flags=re.DOTALL)
        yield from ((number, re.sub(r"`[^`]*`", "", line)) for number, line in enumerate(bare.split("\n"), 1))
        return
    for node in walk(path):
        for statement in getattr(node, "body", None) or () if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.lineno, re.sub(r"`[^`]*`", "", str(statement.value.value))
    # Cutting all files into tokens takes four seconds; few lines hold anything after a sign of a comment.
    if not any(ANY_REJECTED.search(line.partition("#")[2]) for line in source.split("\n") if "#" in line):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"`[^`]*`", "", token.string)


def find_rejected(path: Path, name: str) -> list[str]:
    allowed = [pattern for place, (pattern, _) in ALLOWED.items() if name.startswith(place)]
    # One search for any of them first: most texts hold none.
    return [
        f"{name}:{line + text[: match.start()].count(chr(10))}: {match[0]!r}; write {better}"
        for line, text in iterate_prose(path)
        if ANY_REJECTED.search(text)
        for pattern, better in REJECTED.items()
        for match in re.finditer(pattern, text, re.IGNORECASE if pattern.islower() else 0)
        if not any(re.search(one, match[0], re.IGNORECASE) for one in allowed)
    ]


def test_no_phrase_of_the_reject_list_is_written() -> None:
    of_rooms = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.md")))
    readmes = [ROOT / "README.md", ROOT / "GLOSSARY.md", *of_rooms]
    found = [
        line for path in (*product_files(), *readmes) for line in find_rejected(path, path.relative_to(ROOT).as_posix())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        '"""What nobody told."""',
        "x = 1  # computed anew",
        'def f() -> None:\n    """Return what it is of."""',
        "A = 1\n'''alike'''",
    ],
)
def test_a_rejected_phrase_is_met(source: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(source + "\n")
    assert find_rejected(tmp_path / "x.py", "x.py")


def test_a_name_or_an_error_is_no_prose(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def f(told: int) -> int:\n    '''Return `told`.'''\n    raise ValueError('anew')\n")
    assert find_rejected(tmp_path / "x.py", "x.py") == []


def test_public_functions_that_do_more_than_their_name_says_have_a_docstring() -> None:
    bare = []
    for path in product_files():
        for node in walk(path):
            if isinstance(node, ast.Module) or (isinstance(node, ast.ClassDef) and not node.name.startswith("_")):
                bare += [
                    f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
                    for function in node.body
                    if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
                    and not function.name.startswith("_")
                    and ast.get_docstring(function) is None
                    and sum(isinstance(one, ast.stmt) for one in ast.walk(function)) - 1 > LONGEST
                ]
    assert bare == []
