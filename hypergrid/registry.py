"""Named things in one table each: functions, methods, rules, parsers."""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from hypergrid.errors import NotFound

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A table of rows by name; a name that is missing raises `NotFound` with what exists.

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

    def add(self, name: str, row: T) -> T:
        """Add `row` under `name`; a name is given once.

        Raises
        ------
        ValueError
            The name is taken.
        """
        if name in self._rows:
            message = f"{self.kind} {name!r} exists already; choose another name"
            raise ValueError(message)
        self._rows[name] = row
        return row

    def register(self, name: str) -> Callable[[T], T]:
        """Add what is decorated under `name`."""
        return lambda row: self.add(name, row)

    def __getitem__(self, name: str) -> T:
        if not isinstance(name, str) or name not in self._rows:
            raise NotFound.among(self.kind, name, self._rows)
        return self._rows[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._rows

    def get(self, name: str, default: T | None = None) -> T | None:  # type: ignore[override]
        """Return the row, or `default` where the name is missing."""
        return self._rows[name] if name in self else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
