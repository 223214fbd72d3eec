"""Which files of the program a call enters, in the order of their first use."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType


def list_entered_files(work: Callable[[], object], root: Path) -> list[str]:
    """Return the files below a folder that a call enters in this thread, relative to it, in order."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and frame.f_code.co_name != "<module>" and path.is_relative_to(root):
            found.setdefault(path.relative_to(root).as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return list(found)
