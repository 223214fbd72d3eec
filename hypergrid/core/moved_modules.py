"""Former import paths of public modules: they load the new ones, with a warning, for one release."""

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
"""Public modules by their former names."""


class _Loader(importlib.abc.Loader):
    """Loads the module that a former name stands for."""

    def __init__(self, target: str) -> None:
        self._target = target

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the module at its new path, under its own name."""
        warnings.warn(
            f"{spec.name} moved to {self._target}; the former path ends with the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        module = importlib.import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is: it was executed at its new path, which its spec keeps naming."""
        module.__spec__ = self._spec


class MovedModules(importlib.abc.MetaPathFinder):
    """Finds public modules at their former paths."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module that moved; None for all others."""
        moved = MOVED.get(fullname)
        return None if moved is None else importlib.machinery.ModuleSpec(fullname, _Loader(moved))


def install() -> None:
    """Let former paths be imported; once a process."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        # First, as folders that an older checkout left behind would be found as packages.
        sys.meta_path.insert(0, MovedModules())


class FormerNames:
    """Gives attributes also by the names that they had before."""

    former_names: ClassVar[Mapping[str, str]] = {}
    """The names that attributes have now, by those that they had."""

    # Seen by type checkers, it would hide every misspelt attribute from them.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as of the attribute
            """Return what a former name stands for; called where there is no attribute of that name."""
            kind = type(self)
            if name not in kind.former_names:
                # Raises what was raised, also within a property.
                return object.__getattribute__(self, name)
            present = kind.former_names[name]
            warnings.warn(
                f"{kind.__name__}.{name} is {present} now; the former name ends with the next release",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(self, present)
