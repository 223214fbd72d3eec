"""Texts near valid ones: each is read, or refused by one message with a position inside the text."""

import random
import re

import pytest

from hypergrid.continuous.language import InvalidCql, explain_query, parse_script
from hypergrid.continuous.records import StreamCatalogue
from tests.support.continuous_golden import FOLDER, NAMES

WORD = re.compile(r"'[^']*'|\w+|\S")
OTHERS = (
    *"()[],.;*=<>+-/%'\"|:?@{}",
    *"Select From Where Group By Having Union All Except Intersect Istream Rstream Now Rows Range Slide".split(),
    *"Partition As In Not And Or Null Like Between Case When Then End Sample Emit Final With Join On".split(),
    *"Distinct count avg".split(),
    *"Minutes is exists interval date cast any values lateral unnest table order limit pivot".split(),
    *("window", "over", "0", "-1", "1e400", "'6 m/s'", "10,000"),
)


def mutate(words: list[str], rng: random.Random) -> list[str]:
    words = list(words)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(words))
        match rng.randrange(4):
            case 0:
                del words[at]
            case 1:
                words.insert(at, rng.choice(OTHERS))
            case 2:
                words[at] = rng.choice(OTHERS)
            case _:
                other = rng.randrange(len(words))
                words[at], words[other] = words[other], words[at]
        if not words:
            break
    return words


@pytest.mark.parametrize("name", NAMES)
def test_near_valid_texts_are_read_or_refused(name: str) -> None:
    words = WORD.findall(re.sub("--.*", "", (FOLDER / f"{name}.sql").read_text()))
    rng = random.Random(name)
    faults: list[tuple[str, InvalidCql]] = []
    for _ in range(20 if name.startswith("road") else 60):
        text = "\n".join(mutate(words, rng))
        try:
            script = parse_script(text, StreamCatalogue())
        except InvalidCql as error:
            faults.append((text, error))
            continue
        assert all(explain_query(query) for query in script.queries)
    assert len(faults) > 5
    for text, error in faults:
        assert error.problem, text
        assert error.line <= text.count("\n") + 1, text
        excerpt, carets = str(error).splitlines()[-2:] if error.line else ("", "")
        assert len(carets.rstrip()) <= len(excerpt) + 1, text
