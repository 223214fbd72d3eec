"""Commands that run a continuous query over an archive: the changes of its result, on the screen or in a file."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hypergrid.cli.archive_argument import ArchiveArgument
from hypergrid.cli.console import show_json, show_message, show_stages
from hypergrid.cli.options import JsonOption, SnapshotOption
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.files import replace_atomically
from hypergrid.core.times import format_timestamp
from hypergrid.query import open_archive

if TYPE_CHECKING:
    import pandas

    from hypergrid.continuous.archive_query import ArchiveQuery

QueryFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A query in CQL, after statements it needs; - reads standard input.")
]
TablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="NAME=FILE",
        help="CSV or Parquet file as a stream (with tau) or relation; may be given again.",
    ),
]
StartOption = Annotated[str | None, typer.Option("--from", help="First instant, as 2007-10-01.")]
StopOption = Annotated[str | None, typer.Option("--to", help="First instant that is left out.")]
OrderOption = Annotated[
    str, typer.Option("--order", help="time: what was true; arrival: what could be known, and when.")
]
MemoryOption = Annotated[
    int | None,
    typer.Option("--memory", min=1, help="Memory that windows may take [bytes]; half of what is free where absent."),
]
Add = Callable[["pandas.DataFrame"], None]

_ENDINGS: Final = (".csv", ".parquet")


def run_statements(  # noqa: PLR0913 - options of a command
    archive: ArchiveArgument,
    file: QueryFile,
    *,
    start: StartOption = None,
    stop: StopOption = None,
    order: OrderOption = "time",
    table: TablesOption = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="File to write: .csv or .parquet.")] = None,
    snapshot: SnapshotOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a query over an archive: rows that enter (+1) and leave (-1), as CSV where no file is given."""
    query = _open_query(archive, read_statements(file), table, snapshot)
    _run(query, (start, stop, order), out, memory, as_json=as_json)


def backtest_statements(  # noqa: PLR0913 - options of a command
    archive: ArchiveArgument,
    file: QueryFile,
    *,
    start: StartOption = None,
    stop: StopOption = None,
    order: OrderOption = "time",
    table: TablesOption = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write: .csv or .parquet.")],
    spark: Annotated[
        bool, typer.Option("--spark", help="Run in tasks on Spark, split as `cql explain` says; the rows are the same.")
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(help="With --spark: a cluster, spark://HOST:PORT, that sees the archive and OUT's folder, too."),
    ] = None,
    cores: Annotated[int | None, typer.Option(min=1, help="With --spark: cores to use; all where absent.")] = None,
    snapshot: SnapshotOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write what a query would have given over a stretch of an archive, by time or in order of arrival."""
    if not spark and (master is not None or cores is not None):
        raise InvalidQuery("--master and --cores say where Spark runs: give --spark as well, or leave them out")
    text = read_statements(file)
    query = _open_query(archive, text, table, snapshot)
    if spark:
        query.check_memory(start, stop, order=order, allowed_bytes=memory)
        _run_on_spark(query, text, (start, stop, order), out, cluster=(master, cores), as_json=as_json)
    else:
        _run(query, (start, stop, order), out, memory, as_json=as_json, by_value=True)


def _open_query(archive: Path, text: str, tables: list[str] | None, snapshot: str | None) -> ArchiveQuery:
    from hypergrid.continuous.archive_query import open_inputs  # noqa: PLC0415 - numba and SQL
    from hypergrid.continuous.query import LiveArchive  # noqa: PLC0415 - as above

    opened = open_archive(archive, snapshot=snapshot)
    return LiveArchive(open_inputs(opened, parse_tables(tables))).query(text)


def parse_tables(tables: list[str] | None) -> dict[str, str]:
    """Return the path of each table that is given as NAME=FILE.

    Raises
    ------
    InvalidQuery
        One has another form.
    """
    given: dict[str, str] = {}
    for item in tables or ():
        name, equals, path = item.partition("=")
        if not (name and equals and path):
            raise InvalidQuery(f"--table needs NAME=FILE; got {item!r}")
        given[name] = path
    return given


def read_statements(file: Path) -> str:
    """Return the text of a file of statements, or of standard input.

    Raises
    ------
    NotFound
        The file cannot be read.
    InvalidQuery
        It is no text in UTF-8.
    """
    label = "standard input" if str(file) == "-" else f"the query file {file}"
    try:
        content = typer.get_binary_stream("stdin").read() if str(file) == "-" else file.read_bytes()
        return content.decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise NotFound(f"{label} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidQuery(
            f"{label} needs text in UTF-8; got the byte 0x{error.object[error.start]:02x} after {error.start:,} bytes: "
            "save it as UTF-8"
        ) from error


def _run(
    query: ArchiveQuery,
    stretch: tuple[str | None, str | None, str],
    out: Path | None,
    memory: int | None,
    *,
    as_json: bool,
    by_value: bool = False,
) -> None:
    start, stop, order = stretch
    started_s, count = time.monotonic(), 0
    with open_sink(out) as add, show_stages(quiet=as_json or out is None) as on_progress:
        parts = query.iterate(start, stop, order=order, by_value=by_value, allowed_bytes=memory)
        for part, fraction in parts:
            add(part)
            count += len(part)
            on_progress("query", fraction)
    seconds = round(time.monotonic() - started_s, 3)
    kind = "elements of the stream" if query.bound.tree.is_stream else "changes of the relation"
    if as_json and out is not None:
        show_json({"file": str(out), "rows": count, "order": order, "seconds": seconds})
    else:
        show_message(f"{out or 'the query'}: {count:,} {kind} in order of {order}, {seconds} s")


def _run_on_spark(  # noqa: PLR0913 - what the command was given
    query: ArchiveQuery,
    text: str,
    stretch: tuple[str | None, str | None, str],
    out: Path,
    *,
    cluster: tuple[str | None, int | None],
    as_json: bool,
) -> None:
    # Imported here, because queries need neither ingest nor Spark.
    from ingest.spark.backtest import backtest_on_spark  # noqa: PLC0415
    from ingest.spark.batch import executors  # noqa: PLC0415

    started_s, count, order = time.monotonic(), 0, stretch[2]
    # Refuses names and stretches before Spark is started.
    query.find_window(*stretch)
    master, cores = cluster
    with open_sink(out) as add, _make_folder(out) as folder, show_stages(quiet=as_json) as on_progress:
        on_progress("start Spark", 0.0)
        with executors(master=master, cores=cores) as workers:
            on_progress("start Spark", 1.0)
            plan, parts = backtest_on_spark(query, text, stretch, workers=workers, folder=folder, progress=on_progress)
        for part in parts:
            add(part)
            count += len(part)
    seconds = round(time.monotonic() - started_s, 3)
    if as_json:
        described = {"tasks": len(plan.parts), "split": plan.reason}
        show_json({"file": str(out), "rows": count, "order": order, "seconds": seconds, **described})
        return
    kind = "elements of the stream" if query.bound.tree.is_stream else "changes of the relation"
    tasks = f"{len(plan.parts)} task{'s' if len(plan.parts) > 1 else ''}"
    show_message(f"{tasks}: {plan.reason}")
    show_message(f"{out}: {count:,} {kind} in order of {order}, {seconds} s")


@contextmanager
def _make_folder(out: Path) -> Iterator[Path]:
    """Yield a folder beside a file, which is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_sink(out: Path | None) -> Iterator[Add]:
    """Yield what takes parts of a result; a file appears once it is whole."""
    if out is None:
        yield _CsvSink(sys.stdout).add
        return
    if out.suffix not in _ENDINGS:
        raise InvalidQuery(f"a result is written to a file that ends in {' or '.join(_ENDINGS)}; got {out}")
    with replace_atomically(out) as path:
        if out.suffix == ".csv":
            with path.open("w", encoding="utf-8", newline="") as sink:
                yield _CsvSink(sink).add
            return
        parquet = _ParquetSink(path)
        yield parquet.add
        parquet.close()


class _CsvSink:
    def __init__(self, sink: Any) -> None:  # noqa: ANN401 - a text file
        self._sink, self._is_begun = sink, False

    def add(self, part: pandas.DataFrame) -> None:
        shown = part.copy()
        for position, kind in enumerate(part.dtypes):
            if kind.kind == "M":
                shown.isetitem(position, _format_instants(part.iloc[:, position]))
        shown.to_csv(self._sink, index=False, header=not self._is_begun)
        self._is_begun = True


def _format_instants(column: pandas.Series[Any]) -> list[str | None]:
    missing = column.isna().to_numpy()
    instants = column.astype("int64").to_list()
    return [None if absent else format_timestamp(tau) for tau, absent in zip(instants, missing, strict=True)]


class _ParquetSink:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def add(self, part: pandas.DataFrame) -> None:
        import pyarrow as pa  # noqa: PLC0415 - only these files need it
        import pyarrow.parquet as pq  # noqa: PLC0415

        if self._writer is None:
            schema = pa.Table.from_pandas(part, preserve_index=False).schema
            # Of a column without values pandas does not know that it holds texts.
            fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in schema]
            self._writer = pq.ParquetWriter(self._path, pa.schema(fields), compression="zstd")
        self._writer.write_table(pa.Table.from_pandas(part, schema=self._writer.schema, preserve_index=False))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
