"""Validated access to the tables of a settings file: errors name the path of the key."""

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeVar

from hypergrid.core.errors import HyperGridError, InvalidDeployment

T = TypeVar("T")


class TomlTable:
    """Table whose keys are read one at a time; `finish` refuses keys that were not read.

    Examples
    --------
    >>> table = TomlTable({"name": "pass"}, "network", file="deployment.toml")
    >>> table.text("name")
    'pass'
    """

    def __init__(self, content: object, path: str, *, file: str) -> None:
        self.path, self.file = path, file
        if not isinstance(content, Mapping):
            self.refuse("", f"needs a table; got {content!r}")
        self._content: Mapping[str, Any] = content
        self._base = f"{path}." if path else ""
        self._known: set[str] = set()

    def refuse(self, key: str, what: str, *, cause: Exception | None = None) -> NoReturn:
        """Raise `InvalidDeployment` with the path of the key."""
        path = ".".join(part for part in (self.path, key) if part)
        error = InvalidDeployment(f"{self.file}: {path} {what}")
        error.key = path
        raise error from cause

    def has(self, key: str) -> bool:
        """Return whether the key is given, and mark it as read."""
        self._known.add(key)
        return key in self._content

    def given_keys(self) -> tuple[str, ...]:
        """Return the given keys, sorted, without marking them as read."""
        return tuple(sorted(self._content))

    def value(self, key: str, *, default: object = None) -> Any:  # noqa: ANN401 - any TOML value
        """Return the unchecked value, or the default."""
        return self._content[key] if self.has(key) else default

    def text(self, key: str, *, default: str | None = None, among: Collection[str] | None = None) -> str:
        """Return a non-empty text; one of `among` if given."""
        value = self._require(key, default)
        if not isinstance(value, str) or not value.strip():
            self.refuse(key, f"needs text; got {value!r}")
        if among is not None and value not in among:
            self.refuse(key, f"is {value!r}{_hint(value, among)}; it is one of: {', '.join(among)}")
        return value

    def number(
        self, key: str, *, default: float | None = None, minimum: float = -1e300, maximum: float = 1e300
    ) -> float:
        """Return a number between two bounds, both inclusive."""
        value = self._require(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            # NaN passes, because it is the default of coordinates.
            or not (value != value or minimum <= value <= maximum)
        ):
            bounds = f" between {minimum:g} and {maximum:g}" if abs(minimum) < 1e300 and maximum < 1e300 else ""
            bounds = bounds or (f" not below {minimum:g}" if abs(minimum) < 1e300 else "")
            self.refuse(key, f"needs a number{bounds}; got {value!r}")
        return float(value)

    def optional_text(self, key: str, *, among: Collection[str] | None = None) -> str | None:
        return self.text(key, among=among) if self.has(key) else None

    def switch(self, key: str, *, default: bool) -> bool:
        value = self.value(key, default=default)
        return value if isinstance(value, bool) else self.refuse(key, f"needs true or false; got {value!r}")

    def integer(self, key: str, *, default: int, minimum: float, maximum: float = 1e300) -> int:
        """Return a whole number between two bounds, both inclusive."""
        number = self.number(key, default=default, minimum=minimum, maximum=maximum)
        return int(number) if number == int(number) else self.refuse(key, f"needs a whole number; got {number!r}")

    def texts(self, key: str, *, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return a list of texts; a single text becomes a list of one."""
        value = self.value(key, default=list(default))
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.refuse(key, f"needs a list of texts; got {value!r}")
        return tuple(value)

    def table(self, key: str) -> "TomlTable":
        return TomlTable(self.value(key, default={}), f"{self._base}{key}", file=self.file)

    def tables(self, key: str) -> list["TomlTable"]:
        """Return an array of tables; empty if the key is missing."""
        value = self.value(key, default=[])
        if not isinstance(value, list):
            self.refuse(key, f"needs [[{key}]], an array of tables; got {value!r}")
        return [TomlTable(item, f"{self._base}{key}[{index}]", file=self.file) for index, item in enumerate(value)]

    def run_check(self, key: str, check: Callable[[], T]) -> T:
        """Return the result of `check`; an error is raised with the path of the key."""
        try:
            return check()
        except HyperGridError as error:
            self.refuse(key, f"cannot be used: {error}", cause=error)

    def names(self) -> list[str]:
        """Return all keys, and mark them as read."""
        self._known.update(self._content)
        return list(self._content)

    def finish(self, made: T) -> T:
        """Return what was made of the table; refuse keys that were not read."""
        for key in self._content:
            if key not in self._known:
                listed = ", ".join(sorted(self._known))
                self.refuse(key, f"is an unknown key{_hint(key, self._known)}. There are: {listed}")
        return made

    def _require(self, key: str, default: object) -> object:
        value = self.value(key, default=default)
        if value is None:
            self.refuse(key, "is missing")
        return value


def _hint(given: str, existing: Collection[str]) -> str:
    close = difflib.get_close_matches(given, sorted(existing), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
