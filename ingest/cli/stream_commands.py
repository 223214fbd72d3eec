"""The command `hypergrid stream`; Spark and ingest are imported only when it is called."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.live import Live
from rich.text import Text

from hypergrid.cli.archive_argument import ArchiveArgument
from hypergrid.cli.console import STDERR, show_json, show_line, show_message
from hypergrid.cli.options import JsonOption
from hypergrid.core.stop_signals import stop_at_signals
from hypergrid.core.times import SECOND_NS, parse_duration

if TYPE_CHECKING:
    from ingest.streaming.stream_commit import StreamStatus


def stream(
    archive: ArchiveArgument,
    *,
    deployment: Annotated[
        Path | None, typer.Option(help="Deployment file (TOML), read again when it changes; the last one if absent.")
    ] = None,
    watch: Annotated[Path | None, typer.Option(help="Folder whose new and growing files are followed.")] = None,
    mqtt: Annotated[
        str | None, typer.Option(metavar="URL", help="Broker whose messages are received: mqtt://HOST, mqtts://HOST.")
    ] = None,
    trigger: Annotated[str, typer.Option(help="How often what came is committed.")] = "10s",
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing more comes, and close all slices.")
    ] = False,
    by_arrival: Annotated[
        bool,
        typer.Option(
            "--by-arrival", help="Replay the files of --watch in the order of arrival of their lines, and end."
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Tell Prometheus figures of the stream at this port of 127.0.0.1."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Follow files and messages into an archive as they come; Ctrl-C or SIGTERM ends it, and the next start goes on.

    SIGHUP, of a terminal that is closed, ends it as well, unless it is ignored (nohup).
    """
    if not as_json:
        followed = (
            " and ".join(str(source) for source in (watch, mqtt) if source is not None) or "what was received before"
        )
        show_message(f"{archive}: following {followed}; Spark starts first, which takes some ten seconds")
    from ingest.streaming_service import StreamOptions  # noqa: PLC0415 - Spark is heavy
    from ingest.streaming_service import stream as run  # noqa: PLC0415

    trigger_s = parse_duration(trigger) / SECOND_NS
    how = StreamOptions(
        deployment,
        watch=watch,
        mqtt=mqtt,
        trigger_s=trigger_s,
        until_idle=until_idle or by_arrival,
        by_arrival=by_arrival,
    )
    with ExitStack() as stack:
        stopping = stack.enter_context(stop_at_signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        listeners = [stack.enter_context(_show_progress(quiet=as_json))]
        if metrics_port is not None:
            listeners.append(stack.enter_context(_serve_metrics(archive, metrics_port)))

        def note(status: "StreamStatus") -> None:
            for listener in listeners:
                listener(status)

        report = run(
            archive,
            how,
            now_ns=time.time_ns,
            on_status=note,
            on_warning=lambda text: show_message(f"warning: {text}"),
            stopping=stopping,
        )
    if as_json:
        show_json(report.to_dict())
    else:
        show_line(f"{archive}: {report.batches:,} batches in {report.seconds:.0f} s; {report.ledger.describe()}")
        if report.ledger.held:
            show_line("what is held waits for its slice, and goes on at the next start; --until-idle closes all")


@contextmanager
def _show_progress(*, quiet: bool) -> "Iterator[Callable[[StreamStatus], None]]":
    """Show a stream's status: a live line on a terminal, else one line a minute."""
    if quiet or not STDERR.is_terminal:
        shown_s = [0.0]

        def note(status: "StreamStatus") -> None:
            if not quiet and time.monotonic() - shown_s[0] >= 60.0:
                shown_s[0] = time.monotonic()
                show_message(status.describe())

        yield note
        return
    with Live(console=STDERR, refresh_per_second=4, transient=True) as live:
        yield lambda status: live.update(Text(status.describe(), overflow="ellipsis", no_wrap=True))


@contextmanager
def _serve_metrics(folder: Path, port: int) -> "Iterator[Callable[[StreamStatus], None]]":
    """Serve the status of a stream to Prometheus."""
    from ingest.streaming.metrics import StreamMetrics, serve_metrics  # noqa: PLC0415 - only with --metrics-port

    metrics = StreamMetrics(folder)
    with serve_metrics(metrics, port) as listened:
        show_message(f"figures for Prometheus: http://127.0.0.1:{listened}/metrics")
        yield metrics.update


COMMANDS: Final = (stream,)
