"""Expressions that were prepared once, over batches that come later."""

from unittest.mock import patch

import numpy as np

from hypergrid.continuous.engine.batch import elements_of
from hypergrid.continuous.engine.evaluation import NUMERIC, ExpressionEvaluator
from hypergrid.continuous.engine.texts import Texts
from hypergrid.continuous.expressions import Attribute, Constant, Expression, Operation, Reference

WORD = Reference(0, Attribute("word", "text"))
NUMBER = Reference(0, Attribute("number", "number"))


def test_texts_that_are_met_later_are_known_to_functions_of_functions() -> None:
    texts = Texts()
    upper = Operation("upper", (WORD,), "text")
    evaluator = ExpressionEvaluator(texts)
    back = evaluator.prepare_value(Operation("lower", (upper,), "text"))
    is_early = evaluator.prepare_truth(Operation("like", (upper, Constant("A%", "text")), "boolean"))
    is_late = evaluator.prepare_truth(Operation("regex", (upper, Constant("^(X|F)", "text")), "boolean"))
    for words in (["a"], ["Abc", "q", "Xy"], ["Foo", "abc", "a"], []):
        elements = elements_of(np.arange(len(words)), None, [texts.encode(words)])
        assert texts.decode(back(elements)).tolist() == [word.lower() for word in words]
        assert is_early(elements).tolist() == [word[0] in "aA" for word in words]
        assert is_late(elements).tolist() == [word[0] in "xXfF" for word in words]


def test_an_argument_is_computed_once_however_deep_it_is() -> None:
    calls = []

    def count(values: np.ndarray) -> np.ndarray:
        calls.append(len(values))
        return np.sqrt(values)

    expression: Expression = Operation("sqrt", (NUMBER,), "number")
    for name in ("power", "greatest", "add", "divide"):
        expression = Operation(name, (expression, Constant(2.0, "number")), "number")
    with patch.dict(NUMERIC, sqrt=count):
        value = ExpressionEvaluator(Texts()).prepare_value(expression)
    elements = elements_of(np.arange(2), None, [np.array([4.0, np.nan])])
    np.testing.assert_array_equal(value(elements), [3.0, np.nan])
    assert calls == [2]
