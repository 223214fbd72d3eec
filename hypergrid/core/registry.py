"""Registries of named rows: functions, methods, rules, parsers."""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from hypergrid.core.errors import NotFound

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Table of rows by name; a missing name raises `NotFound` with the existing ones.

    Examples
    --------
    >>> shapes = Registry[int]("shape")
    >>> shapes.add("square", 4)
    4
    >>> shapes["square"]
    4
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._rows: dict[str, T] = {}
        self._fill_more: Callable[[], None] | None = None

    def fill_later(self, more: Callable[[], None]) -> None:
        """Call `more` once before the first failed lookup or listing; it may add rows."""
        self._fill_more = more

    def _fill(self) -> None:
        # Cleared first: `more` itself looks names up in this table.
        more, self._fill_more = self._fill_more, None
        if more is not None:
            more()

    def add(self, name: str, row: T) -> T:
        """Add `row` under a unique name.

        Raises
        ------
        ValueError
            The name is taken.
        """
        if name in self._rows:
            raise ValueError(f"{self.kind} {name!r} exists already; choose another name")
        self._rows[name] = row
        return row

    def remove(self, name: str) -> T:
        """Remove a row and return it; raises `NotFound` if it does not exist."""
        row = self[name]
        del self._rows[name]
        return row

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds its target under `name`."""
        return lambda row: self.add(name, row)

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise NotFound.among(self.kind, name, self._rows)
        return self._rows[name]

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        if name not in self._rows:
            self._fill()
        return name in self._rows

    def get(self, name: str, default: T | None = None) -> T | None:  # type: ignore[override]
        return self._rows[name] if name in self else default

    def holds(self, name: str) -> bool:
        """Return whether a row exists now, without filling the table."""
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return iter(self._rows)

    def __len__(self) -> int:
        self._fill()
        return len(self._rows)
