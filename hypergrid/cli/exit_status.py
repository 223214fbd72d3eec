"""Exit statuses of the command line; 0 is success."""

from typing import Final

FAILED: Final = 1
USED_WRONGLY: Final = 2
INTERRUPTED: Final = 130
