"""One ingest, for the benchmark: `python -m tests.bench.ingest_run FILES ARCHIVE tests|plain spark|inprocess`."""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from hypergrid.core.flags import MEANINGS
from ingest.job import Engine, ingest
from tests.bench.ingest_files import deployment_of

NOW_NS: Final = 1_300_000_000 * 10**9


def main() -> None:
    """Ingest, and print what the report says."""
    files, archive, tests = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "tests"
    engine: Engine = "inprocess" if sys.argv[4] == "inprocess" else "spark"
    shutil.rmtree(archive, ignore_errors=True)
    chosen = deployment_of(files, quality=tests)
    report = ingest([files], archive, deployment=chosen, engine=engine, now_ns=NOW_NS)
    flags = Counter[str]()
    for counts in report.quality.values():
        flags.update({word: counts[word] for word in MEANINGS.values() if word in counts})
    print(json.dumps({"seconds": dict(report.seconds), "readings": report.readings, "flags": flags}))


if __name__ == "__main__":
    main()
