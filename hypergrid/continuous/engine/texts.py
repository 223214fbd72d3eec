"""Texts of an engine: each distinct text has one code, and what is computed of it is computed once."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.engine.batch import Integers
from hypergrid.continuous.expressions import NULL_CODE


class Texts:
    """Dictionary of the texts that an engine has met; codes count from 0 and stay."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._texts: list[str] = []
        self._ranks: Integers = np.empty(0, np.int64)
        self._derived: dict[object, NDArray[Any]] = {}

    @property
    def all_texts(self) -> list[str]:
        """All texts, by code."""
        return list(self._texts)

    def code(self, text: str | None) -> int:
        """Return the code of a text, a new one if it is met for the first time."""
        if text is None:
            return NULL_CODE
        code = self._codes.setdefault(text, len(self._texts))
        if code == len(self._texts):
            self._texts.append(text)
        return code

    def encode(self, texts: Iterable[str | None]) -> Integers:
        """Return the codes of texts, shape (n,)."""
        return np.fromiter((self.code(text) for text in texts), np.int64)

    def decode(self, codes: Integers) -> NDArray[np.object_]:
        """Return the texts of codes, None for NULL, shape (n,)."""
        known = np.array([*self._texts, None], object)
        return np.asarray(known[codes])

    def ranks(self) -> Integers:
        """Return the rank of each code among all texts by code point, followed by that of NULL, which is -1.

        Ranks change when texts are added, but not their order.
        """
        if len(self._ranks) != len(self._texts) + 1:
            by_text = np.argsort(np.array(self._texts, object), kind="stable")
            self._ranks = np.full(len(self._texts) + 1, -1, np.int64)
            self._ranks[by_text] = np.arange(len(self._texts))
        return self._ranks

    def derive(self, key: object, compute: Callable[[list[str]], NDArray[Any]], null: object) -> NDArray[Any]:
        """Return values computed of each text, followed by that of NULL; those of new texts are added.

        Parameters
        ----------
        key
            Identifies what is computed.
        compute
            Returns the values of texts, shape (n,).
        null
            Value of NULL.
        """
        held = self._derived.get(key)
        known = 0 if held is None else len(held) - 1
        # `compute` may add texts itself, as lower case does.
        count = len(self._texts)
        if held is None or known < count:
            fresh = compute(self._texts[known:count])
            fresh = np.append(fresh, np.array([null], fresh.dtype))
            held = self._derived[key] = fresh if held is None else np.concatenate([held[:-1], fresh])
        return held
