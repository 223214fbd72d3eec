"""What judges files by the rules of others."""

import json
from pathlib import Path
from typing import Literal


def judge_cf(path: Path) -> list[str]:
    """Return what compliance-checker finds that CF requires and a NetCDF file lacks."""
    return judge_file(path, "cf")


def judge_acdd(path: Path) -> list[str]:
    """Return what compliance-checker finds that ACDD highly recommends and a NetCDF file lacks."""
    return judge_file(path, "acdd")


def judge_file(path: Path, rules: Literal["cf", "acdd"]) -> list[str]:
    """Return what compliance-checker finds that a NetCDF file must have by some rules, and lacks."""
    from compliance_checker.runner import CheckSuite, ComplianceChecker  # noqa: PLC0415 - two seconds to load

    CheckSuite.load_all_available_checkers()
    out = path.with_suffix(f".{rules}.json")
    ComplianceChecker.run_checker(str(path), [rules], 0, "normal", output_filename=str(out), output_format="json")
    told = json.loads(out.read_text("utf-8"))[rules]
    return [f"{one['name']}: {text}" for one in told["high_priorities"] for text in one["msgs"]]
