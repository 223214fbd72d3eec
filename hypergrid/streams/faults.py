"""What stops a join; what it had found by then comes with the error."""

from hypergrid.errors import InvalidQuery, TooLarge
from hypergrid.streams.matches import Matches


class KeysDoNotGrow(InvalidQuery):
    """A stream's keys have stopped growing, so that no bound of memory exists. Nothing is lost: pushing can go on."""

    def __init__(self, message: str, matches: Matches) -> None:
        super().__init__(message)
        self.matches = matches
        """Results of the push in which it was noticed; the push was taken whole."""


class BufferFull(TooLarge):
    """A join needs more memory than it is allowed, and has no strategy that makes do with less."""

    def __init__(self, who: str, projected: float, allowed: float, matches: Matches, taken: int) -> None:
        remedy = "allow more, or give known parameters or a smaller window"
        super().__init__(who, "bytes to be held", projected, allowed, remedy)
        self.matches = matches
        """Results of what was taken."""
        self.taken = taken
        """Tuples of the push that were taken; those after them were not."""
