"""A surface: the last perspective of a query, with an optional clipping window."""

from dataclasses import dataclass
from typing import ClassVar

from hypergrid.core.times import Window
from hypergrid.core.tokens import token
from hypergrid.perspective.tree.perspective import Perspective


@dataclass(frozen=True)
class Clip:
    """Which cells of a surface are wanted: those whose corner lies within the bounds, start included, stop not."""

    token_name: ClassVar[str] = "Clip"

    time: Window | None = None
    space: tuple[tuple[str, tuple[int, int]], ...] = ()
    """Bounds along axes of a grid, by their names [quantum]."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is bounded."""
        return self.time is None and not self.space


@dataclass(frozen=True, eq=False)
class Surface:
    """What an executor computes."""

    perspective: Perspective
    clip: Clip = Clip()

    @property
    def token(self) -> str:
        """Content token."""
        return token(self.perspective.token, self.clip)
