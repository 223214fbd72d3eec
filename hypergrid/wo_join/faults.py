"""What stops a join; what it had found by then comes with the error."""

from hypergrid.core.errors import HyperGridError, InvalidQuery, TooLarge
from hypergrid.wo_join.results import Matches


class KeysDoNotGrow(InvalidQuery):
    """A stream's keys have stopped growing, so that no bound of memory exists. Nothing is lost: pushing can go on."""

    def __init__(self, message: str, matches: Matches) -> None:
        super().__init__(message)
        self.matches = matches
        """Results of the push in which it was noticed; the push was taken whole."""


class BufferFull(TooLarge):
    """A join needs more memory than it is allowed, and has no strategy that makes do with less.

    With a strategy, what was taken and could not be joined waits: where it is pushed on, it is tried again.
    """

    def __init__(self, label: str, projected: float, allowed: float, matches: Matches, taken: int) -> None:
        remedy = "allow more, or give known parameters or a smaller window"
        super().__init__(label, "bytes to be held", projected, allowed, remedy)
        self.matches = matches
        """Results of what was taken."""
        self.taken = taken
        """Tuples of the push that were taken; those after them were not."""


class SpillFailed(HyperGridError, OSError):
    """A join could not write to its folder. Nothing is lost: what was taken waits in memory, and pushing can go on."""

    def __init__(self, label: str, why: OSError, matches: Matches, taken: int) -> None:
        super().__init__(
            f"{label} needs to write what it may not hold to disk; {why.filename or 'its folder'} could not be "
            f"written: "
            f"{why.strerror or why}; make room there, then push what was not taken"
        )
        self.matches = matches
        """Results of what was taken."""
        self.taken = taken
        """Tuples of the push that were taken; those after them were not."""
