"""The command `hypergrid stream`; what it needs of Spark and of ingest is loaded when it is called."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.live import Live
from rich.text import Text

from hypergrid.cli.console import PEOPLE, say, show_json, show_line
from hypergrid.cli.options import ArchivePlace, ArchivePlaceOption, JsonOption, placed
from hypergrid.core.times import SECOND_NS, parse_duration

if TYPE_CHECKING:
    from ingest.streaming.status import Status


def stream(
    place: ArchivePlace = None,
    *,
    archive: ArchivePlaceOption = None,
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
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Tell Prometheus figures of the stream at this port of 127.0.0.1."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Follow files and messages into an archive as they come; Ctrl-C or SIGTERM ends it, and the next start goes on.

    SIGHUP, of a terminal that is closed, ends it as well, unless it is ignored (nohup).
    """
    from ingest.streaming_service import Following  # noqa: PLC0415 - Spark is heavy
    from ingest.streaming_service import stream as run  # noqa: PLC0415

    folder = placed(place, archive)
    trigger_s = parse_duration(trigger) / SECOND_NS
    how = Following(deployment, watch=watch, mqtt=mqtt, trigger_s=trigger_s, until_idle=until_idle)
    stopping = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stopping.set())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        with ExitStack() as stack:
            tell = [stack.enter_context(_shown(quiet=as_json))]
            if metrics_port is not None:
                tell.append(stack.enter_context(_measured(folder, metrics_port)))

            def note(status: "Status") -> None:
                for one in tell:
                    one(status)

            report = run(
                folder,
                how,
                now_ns=time.time_ns,
                on_status=note,
                on_warning=lambda text: say(f"warning: {text}"),
                stopping=stopping,
            )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if as_json:
        show_json(report.to_dict())
    else:
        show_line(f"{folder}: {report.batches:,} batches in {report.seconds:.0f} s; {report.ledger.describe()}")
        if report.ledger.held:
            show_line("what is held waits for its slice, and goes on at the next start; --until-idle closes all")


@contextmanager
def _shown(*, quiet: bool) -> "Iterator[Callable[[Status], None]]":
    """Show how a stream stands: a line that is written over on a terminal, elsewhere one a minute."""
    if quiet or not PEOPLE.is_terminal:
        said = [0.0]

        def note(status: "Status") -> None:
            if not quiet and time.monotonic() - said[0] >= _SAID_S:
                said[0] = time.monotonic()
                say(status.describe())

        yield note
        return
    with Live(console=PEOPLE, refresh_per_second=4, transient=True) as live:
        yield lambda status: live.update(Text(status.describe(), overflow="ellipsis", no_wrap=True))


@contextmanager
def _measured(folder: Path, port: int) -> "Iterator[Callable[[Status], None]]":
    """Tell Prometheus how a stream stands."""
    from ingest.streaming.metrics import StreamMetrics, exposed  # noqa: PLC0415 - of those who ask for it

    metrics = StreamMetrics(folder)
    with exposed(metrics, port) as listened:
        say(f"figures for Prometheus: http://127.0.0.1:{listened}/metrics")
        yield metrics.take


_SAID_S: Final = 60.0

COMMANDS: Final = (stream,)
"""What the command line registers."""
