"""What judges files by the rules of others."""

import json
from pathlib import Path


def judge_cf(path: Path) -> list[str]:
    """Return what compliance-checker finds that CF requires and a NetCDF file lacks."""
    from compliance_checker.runner import CheckSuite, ComplianceChecker  # noqa: PLC0415 - two seconds to load

    CheckSuite.load_all_available_checkers()
    out = path.with_suffix(".json")
    ComplianceChecker.run_checker(str(path), ["cf"], 0, "normal", output_filename=str(out), output_format="json")
    told = json.loads(out.read_text("utf-8"))["cf"]
    return [f"{one['name']}: {text}" for one in told["high_priorities"] for text in one["msgs"]]
