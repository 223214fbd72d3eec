"""Former names of what public classes have: they give what has the new name, with a warning, for one release."""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar


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
