"""Functions that the suite does not reach, each with the reason: groups of `unexercised.toml`."""

import tomllib
from pathlib import Path
from typing import Final

PATH: Final = Path(__file__).with_name("unexercised.toml")


def read_reasons(path: Path = PATH) -> dict[str, str]:
    """Return the reason of each function that is listed, by its key.

    Raises
    ------
    ValueError
        A function is listed twice, or a group has no reason.
    """
    reasons: dict[str, str] = {}
    for group in tomllib.loads(path.read_text(encoding="utf-8")).get("group", []):
        if not group["reason"].strip():
            raise ValueError(f"{path.name}: the group of {group['functions'][0]} has no reason")
        for key in group["functions"]:
            if key in reasons:
                raise ValueError(f"{path.name}: {key} is listed twice")
            reasons[key] = group["reason"]
    return reasons


def read_varying(path: Path = PATH) -> frozenset[str]:
    """Return the keys of groups with `varies = true`, whose functions some runs reach and others do not."""
    groups = tomllib.loads(path.read_text(encoding="utf-8")).get("group", [])
    return frozenset(key for group in groups if group.get("varies", False) for key in group["functions"])
