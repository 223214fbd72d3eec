"""What sources give: elements in canonical order, texts as codes of a list of words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CodedTexts:
    """Column of texts."""

    words: tuple[str, ...]
    codes: Integers
    """Index of each text in `words`, -1 for NULL, shape (n,)."""

    def take(self, rows: Any) -> "CodedTexts":  # noqa: ANN401 - any index of numpy
        return CodedTexts(self.words, self.codes[rows])


Column: TypeAlias = NDArray[Any] | CodedTexts


@dataclass(frozen=True, eq=False)
class SourceBatch:
    """Elements of a stream, or changes of a relation, in their final order.

    Arrays have the physical type of their attribute's kind (`hypergrid.continuous.expressions`).
    """

    tau: Integers
    """Instants [ns since 1970 UTC], non-decreasing, shape (n,)."""
    columns: tuple[Column | None, ...]
    """A column for each attribute, shape (n,); None where nothing reads it."""
    sign: NDArray[np.int8] | None = None
    """+1 for rows that are added, -1 for rows that are removed; None if all are added."""

    def __len__(self) -> int:
        return len(self.tau)


class SourceStep(NamedTuple):
    """Next elements of all inputs of a query."""

    batches: Mapping[str, SourceBatch]
    """Elements by input, all before the heartbeat."""
    heartbeat_ns: int
    """No element before this instant is to come."""
    fraction: float
    """Share of the stretch that is read."""
