"""What Spark does with a spool, in a loop of this process: for tests of what each batch brings."""

import pickle
from collections.abc import Callable
from pathlib import Path

from hypergrid.archive import Archive
from ingest.batch.archive_session import locked_archive
from ingest.deployment.deployment_file import Deployment, load
from ingest.job import ingest
from ingest.sources.spool import END, TICK, Spool, SpoolRecord, durable, reach, segments
from ingest.spark.streaming_query import held_folder
from ingest.streaming import saved_state
from ingest.streaming.assembler import Assembler, StreamBatch, assemble_batch
from ingest.streaming.spool_decoder import expected_origins as expected_in
from ingest.streaming.spool_decoder import groups_of, merge_pieces, parse_span
from ingest.streaming.stream_commit import STREAM, CommitResult, Ledger, commit
from tests.ingest.streamed import SAMPLE, Message, everything, write_deployment


class Loop:
    """What Spark does, in a loop: batches in order, states kept as bytes, each batch committed."""

    def __init__(
        self,
        archive: Path,
        deployment: Deployment,
        *,
        batch_bytes: int = 50_000,
        stream: str = "id",
        replayed: int = 0,
        memory: int | None = None,
    ) -> None:
        self.archive, self.deployment, self.batch_bytes, self.memory = archive, deployment, batch_bytes, memory
        self.stream, self.replayed = stream, replayed
        self.states: dict[str, bytes] = {}
        listed = segments(archive / "spool")
        self.after = listed[0][0] - 1 if listed else 0
        self.number = 0

    def step(self, *, upto: int, is_lost: Callable[[int], bool] = lambda _: False) -> CommitResult:
        """Take a batch; where it is lost, it is taken again from the states before."""
        spool = self.archive / "spool"
        end = min(upto, reach(spool, self.after, most_bytes=self.batch_bytes))
        states = dict(self.states)
        for attempt in range(3):
            self.states = dict(states)
            middle = (self.after + end) // 2
            spans = (
                [(a, b) for a, b in ((self.after, middle), (middle, end)) if a < b] if attempt else [(self.after, end)]
            )
            pieces = [piece for span in reversed(spans) for piece in parse_span(spool, *span, self.deployment)]
            found = []
            for group in groups_of(self.deployment):
                state = self.states.get(group)
                idle_s, held = self.deployment.stream.idle_s, held_folder(self.archive / STREAM, group)
                assembler = (
                    Assembler(self.deployment.slice_s, idle_s, expected=expected_in(self.deployment), folder=held)
                    if state is None
                    else Assembler.from_bytes(saved_state.load(held, state), held)
                )
                assembler.memory = self.memory
                made = assemble_batch(
                    assembler,
                    merge_pieces([one for one in pieces if one.group == group]),
                    [n for n, _ in segments(spool)],
                )
                self.states[group] = saved_state.save(held, assembler.version, assembler.to_chunks())
                found.append(pickle.loads(pickle.dumps(made, protocol=5)))
            if is_lost(2 * attempt):
                continue
            batch = StreamBatch(self.stream, self.number, found)
            done = commit(Archive.open(self.archive), batch, self.deployment, now_ns=1, replayed=self.replayed)
            if not is_lost(2 * attempt + 1):
                break
        self.after, self.number = end, self.number + 1
        return done

    def run(self, *, is_lost: Callable[[int], bool] = lambda _: False) -> Ledger:
        """Take all that is in the spool."""
        end = durable(self.archive / "spool")
        while self.after < end:
            done = self.step(upto=end, is_lost=is_lost)
            assert done.ledger.balance == 0
        return done.ledger

    def drain(self) -> Ledger:
        """Take empty batches until nothing waits."""
        ledger = self.run() if self.after < durable(self.archive / "spool") else None
        while ledger is None or ledger.held:
            with Spool.open(self.archive / "spool") as spool:
                spool.append([SpoolRecord(3 * 10**18, kind=TICK)])
            ledger = self.run()
        return ledger


def made(folder: Path, *, more: str = "") -> tuple[Path, Deployment]:
    deployment = load(write_deployment(folder, arrivals=False, more=more))
    with locked_archive(folder / "archive", deployment, now_ns=1, on_wait=lambda: None):
        pass
    return folder / "archive", deployment


def expected(folder: Path, sent: list[Message]) -> dict[tuple[object, ...], tuple[object, ...]]:
    files = folder / "files"
    files.mkdir()
    (files / "all.jsonl").write_bytes(b"".join(one.payload + b"\n" for one in sent))
    (files / "arrivals.csv").write_bytes((SAMPLE / "arrivals.csv").read_bytes())
    write_deployment(files, arrivals=True)
    ingest([files], folder / "expected", now_ns=1, engine="inprocess")
    return everything(folder / "expected")


def end(archive: Path) -> None:
    with Spool.open(archive / "spool") as spool:
        spool.append([SpoolRecord(2 * 10**18, kind=END)])
