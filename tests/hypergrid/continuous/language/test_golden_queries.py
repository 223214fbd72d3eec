"""Queries of both papers, of Linear Road, auctions, habitats and stations: explanation and result of each."""

import numpy as np
import pytest

from hypergrid.continuous.language import explain_query
from hypergrid.continuous.rewrite import rewrite
from tests.support.continuous_engine import engine_result
from tests.support.continuous_golden import FOLDER, IS_WRITTEN, NAMES, read_inputs, read_script, result_text
from tests.support.continuous_oracle import find_end, oracle_result


def compare(name: str, text: str) -> None:
    path = FOLDER / name
    if IS_WRITTEN:
        path.write_text(text)
    assert path.read_text() == text


def test_there_is_no_file_without_its_query() -> None:
    stems = {path.name.partition(".")[0] for path in FOLDER.iterdir() if path.is_file()}
    assert stems == set(NAMES)
    assert len(NAMES) >= 55


@pytest.mark.parametrize("name", NAMES)
def test_explanations_stay_as_they_are(name: str) -> None:
    script = read_script(name)
    (query,) = script.queries
    rewritten = rewrite(query.tree, script.catalogue.static)
    compare(f"{name}.explain", explain_query(query, rewritten=rewritten, rates=script.catalogue.rates))


@pytest.mark.parametrize("name", NAMES)
def test_results_stay_as_they_are_by_oracle_rewriting_and_engine(name: str) -> None:
    script = read_script(name)
    (query,) = script.queries
    streams, relations = read_inputs(name, script.catalogue)
    rewritten = rewrite(query.tree, script.catalogue.static).tree
    text = result_text(query.tree, oracle_result(query.tree, streams, relations))
    compare(f"{name}.result.csv", text)
    assert result_text(query.tree, oracle_result(rewritten, streams, relations)) == text
    until = find_end(query.tree, streams, relations)
    changes = engine_result(rewritten, streams, relations, np.random.default_rng(7), until=until)
    assert result_text(query.tree, changes) == text
