"""The source of a stream, in the process in which Spark plans its batches."""

import subprocess
import sys

import pytest

PLANNER = """
import io
import sys
from pyspark.serializers import CloudPickleSerializer, write_int
from pyspark.sql.streaming.python_streaming_source_runner import main
from pyspark.sql.types import StructType
from ingest.spark.source import SpoolReader, SpoolSource

class Answers:
    def write(self, answer):
        pass

    def flush(self):
        if given.tell() == len(given.getvalue()) and has_begun:
            raise BrokenPipeError("Spark has closed the connection")
        has_begun.append(True)

has_begun, given, pickler = [], io.BytesIO(), CloudPickleSerializer()

def write_text(words):
    write_int(len(words), given)
    given.write(words.encode())

write_text("%d.%d" % sys.version_info[:2])
write_text("no/files")
write_int(0, given)
source = SpoolSource({{"spool": "spool", "deployed": "deployed", "bytes": "1", "tasks": "1"}})
pickled = pickler.dumps(source)
write_int(len(pickled), given)
given.write(pickled)
write_text(StructType().add("grp", "string").add("content", "binary").json())
write_int(1000, given)
given.seek(0)
{before}
main(given, Answers())
"""


@pytest.mark.parametrize(("before", "status"), [("", 0), ("del SpoolReader.stop", 1)], ids=["as it is", "without stop"])
def test_spark_that_closes_its_connection_ends_the_planner_without_a_word(before: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLANNER.format(before=before)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (status, "")
    # Without it, pyspark fails as it reports that nothing more comes.
    assert ("BrokenPipeError" in done.stderr) == (done.stderr != "") == (status == 1), done.stderr
