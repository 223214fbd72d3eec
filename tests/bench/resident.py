"""How much memory a process holds, and held at most, as the system counts it."""

from pathlib import Path


def reset_peak(process: int | str = "self") -> int | None:
    """Return the resident memory now [bytes], and let the system count its peak anew; None where it does not say.

    `ru_maxrss` would not do: a child inherits its parent's.

    Parameters
    ----------
    process
        Which: its number, or "self".
    """
    try:
        Path(f"/proc/{process}/clear_refs").write_text("5")
        return _status("VmRSS", process)
    except OSError:
        return None


def peak_above(before: int | None, process: int | str = "self") -> int | None:
    """Return by how much the peak since `reset_peak` is above what that returned [bytes]."""
    return None if before is None else peak(process) - before


def peak(process: int | str = "self") -> int:
    """Return the most resident memory since a process began, or since `reset_peak` [bytes]."""
    return _status("VmHWM", process)


def _status(field: str, process: int | str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
