"""Deprecated import paths of public modules, which work with a warning for one release."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final

MOVED: Final[Mapping[str, str]] = {
    "hypergrid.errors": "hypergrid.core.errors",
    "hypergrid.flags": "hypergrid.core.flags",
    "hypergrid.kriging": "hypergrid.interpolation",
    "hypergrid.store": "hypergrid.archive",
    "hypergrid.streams": "hypergrid.wo_join",
    "hypergrid.units": "hypergrid.core.units",
}
"""New path by former path."""


class _Loader(importlib.abc.Loader):
    """Loader that redirects a former path to the new module."""

    def __init__(self, target: str) -> None:
        self._target = target

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Warn, and return the module imported under its new path."""
        warnings.warn(
            f"{spec.name} moved to {self._target}; the former path ends with the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        module = importlib.import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the spec of the new path; the module was executed there already."""
        module.__spec__ = self._spec


class MovedModules(importlib.abc.MetaPathFinder):
    """Import hook for former paths of public modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        moved = MOVED.get(fullname)
        return None if moved is None else importlib.machinery.ModuleSpec(fullname, _Loader(moved))


def install() -> None:
    """Install the import hook; idempotent."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        # At the front, because folders left over from an older checkout would be found as packages.
        sys.meta_path.insert(0, MovedModules())


class FormerNames:
    """Mixin that resolves former attribute names, with a deprecation warning."""

    former_names: ClassVar[Mapping[str, str]] = {}
    """Current attribute name by former name."""

    # Type checkers that saw `__getattr__` would no longer report misspelt attributes.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the type of the attribute
            """Return the attribute by its former name; called only if normal lookup failed."""
            kind = type(self)
            if name not in kind.former_names:
                # Raises the original AttributeError, including one from inside a property.
                return object.__getattribute__(self, name)
            present = kind.former_names[name]
            warnings.warn(
                f"{kind.__name__}.{name} is {present} now; the former name ends with the next release",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(self, present)
