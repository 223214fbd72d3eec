"""Records of the spool to rows: whatever came is rows or a reject; whole files are read as a batch ingest does."""

import errno
import gzip
import json
import os
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypergrid.archive import Archive
from ingest.deployment.deployment_file import Deployment, load
from ingest.formats import FORMATS, Format, Layout, Parsed
from ingest.formats.base import ReadOptions
from ingest.job import ingest
from ingest.sources.folder_watcher import TailStates, WatchedFolder
from ingest.sources.spool import HEADER, Spool, SpoolRecord, durable
from ingest.streaming import spool_decoder as module
from ingest.streaming.spool_decoder import DecodedPiece, RowBatch, parse_span

DEPLOYMENT = """[network]
name = "n"
slice_s = 60
[[feed]]
name = "net"
topic = "net/{station}/up"
files = "*.json*"
format = "messages"
[feed.columns]
t = "air_temperature"
[[feed]]
name = "table"
topic = "csv/{station}"
files = "*.csv"
format = "csv"
timezone = "UTC"
[feed.columns]
t = "air_temperature"
"""
EVERY_COLUMN = DEPLOYMENT.replace('[feed.columns]\nt = "air_temperature"\n', "", 1)
HEAD = b"station,time,t\n"
SOUND: dict[str, Any] = {"station": "a", "time": "2020-01-01T00:00:00Z", "t": 1.5}


def declared(folder: Path, text: str = DEPLOYMENT) -> Deployment:
    (folder / "deployment.toml").write_text(text)
    return load(folder / "deployment.toml")


def read(folder: Path, *records: SpoolRecord, text: str = DEPLOYMENT) -> DecodedPiece:
    """Write records, and return what is read of them."""
    deployment, after = declared(folder, text), durable(folder / "spool")
    with Spool.open(folder / "spool") as spool:
        spool.append(records)
        upto = spool.flush()
    (piece,) = parse_span(folder / "spool", after, upto, deployment)
    return piece


def message(payload: bytes, topic: str = "net/7/up") -> SpoolRecord:
    return SpoolRecord(10**18, "net", topic, payload, -1)


def values(piece: DecodedPiece) -> list[tuple[str, int, float]]:
    """Return station, time and value of each row with one value."""
    rows = piece.rows
    stations = [rows.origins[code][1] for code in rows.origin.tolist()]
    return sorted(zip(stations, rows.time_ns.tolist(), rows.value.tolist(), strict=True))


def csv() -> Format:
    form = FORMATS["csv"]
    assert isinstance(form, Format)
    return form


def with_csv(monkeypatch: pytest.MonkeyPatch, **changed: Callable[..., object]) -> None:
    """Have tables read otherwise."""
    monkeypatch.setattr(module, "FORMATS", {"csv": replace(csv(), **changed), "messages": FORMATS["messages"]})


odd = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.integers(-(10**400), 10**400),
    st.text(st.characters(categories=None), max_size=12),
    st.sampled_from(["\ud800", "2020\udfff", "9999-12-31T23:59:59Z", "-1", "1e999", "٣", "²", "\0", "../x", "NaN"]),
)  # fmt: skip
nested = st.recursive(odd, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
keys = st.sampled_from(
    ["station", "time", "t", "arrival", "fcnt", "variable", "value", "lon", "lat", "end_device_ids", "uplink_message",
     "deviceInfo", "rxInfo", "object", "objectJSON", "fCnt", "received_at", "devEUI", "result", "data"]
) | st.text(st.characters(categories=None), max_size=5)  # fmt: skip
mangled = st.builds(
    lambda content, cut, noise: json.dumps({**SOUND, **content}).encode()[: cut or None] + noise,
    st.dictionaries(keys, nested, max_size=5),
    st.sampled_from([0, 0, 0, 10, -1]),
    st.sampled_from([b"", b"", b"", b"\xff", b"\xed\xa0\x80", b"\0", b"{}"]),
) | st.binary(max_size=30).map(lambda noise: noise.replace(b"\n", b"") or b"x")


@settings(max_examples=120, deadline=None)
@given(payloads=st.lists(mangled, min_size=1, max_size=8))
def test_mangled_messages_are_rows_or_rejects(tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes]) -> None:
    sound = json.dumps(SOUND).encode()
    sent = [sound, *(one for one in payloads if one.strip()), sound]
    piece = read(tmp_path_factory.mktemp("mangled"), *map(message, sent), text=EVERY_COLUMN)
    with_rows, with_rejects = set(piece.rows.seq.tolist()), {seq for seq, _ in piece.rejects}
    assert {1, len(sent)} <= with_rows
    # An array without messages says nothing.
    silent = {place + 1 for place, one in enumerate(sent) if one.strip() in (b"[]", b"")}
    assert with_rows | with_rejects | silent == set(range(1, len(sent) + 1))
    assert all(reject.reason and reject.text.encode() is not None for _, reject in piece.rejects)
    # None of them failed where only the last resort caught it.
    assert not [reject.reason for _, reject in piece.rejects if reject.reason.startswith("unreadable")]


def test_half_a_character_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    half = [
        {**SOUND, "station": "\ud800"},
        {**SOUND, "time": "\ud800"},
        {**SOUND, "\ud800": 1},
        {**SOUND, "t": "\udfff"},
    ]
    texts = [json.dumps(one).encode() for one in (SOUND, *half, {**SOUND, "station": "\U0001f327"})]
    piece = read(tmp_path, *map(message, texts))
    assert piece.rows.seq.tolist() == [1, 6]
    assert [(seq, one.reason.split(": ")[:2]) for seq, one in piece.rejects] == [
        (seq, ["bad JSON", "half a character"]) for seq in (2, 3, 4, 5)
    ]


def test_a_record_that_cannot_be_read_costs_itself_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages, table = module.parse_texts, csv().parse

    def failing(texts: Iterable[tuple[int, bytes, str]], options: ReadOptions, *, lines: int) -> object:
        taken = list(texts)
        if any(b"bad" in text for _, text, _ in taken):
            raise KeyError(taken[0][2] + "\ud800")
        return messages(taken, options, lines=lines)

    def failing_too(data: bytes, layout: Layout, *, last: bool) -> Parsed:
        if b"bad" in data:
            raise IndexError(data)
        return table(data, layout, last=last)

    monkeypatch.setattr(module, "parse_texts", failing)
    with_csv(monkeypatch, parse=failing_too)
    rows = [b"A,2020-01-01T00:0%d:00Z,%d\n" % (n, n) for n in range(5)]
    rows[2] = rows[2].replace(b"A", b"bad")
    lines = [
        one
        for n, row in enumerate(rows)
        for one in (
            SpoolRecord(10**18, "table", "x.csv", HEAD, 0, HEADER),
            SpoolRecord(10**18, "table", "x.csv", row, n + 2),
        )
    ]
    sent = [json.dumps({**SOUND, "note": note}).encode() for note in ("", "bad", "", "")]
    piece = read(tmp_path, *map(message, sent), *lines)
    assert piece.rows.seq.tolist() == [1, 3, 4, 6, 8, 12, 14]
    (first, why), (second, other) = piece.rejects
    assert (first, second, piece.rejected) == (2, 10, 2)
    assert why.reason.startswith("unreadable: KeyError: ")
    assert (other.file, other.line, other.reason) == (
        "x.csv",
        4,
        "unreadable: IndexError: \"b'bad,2020-01-01T00:02:00Z,2\\\\n'\"",
    )
    assert why.reason.isascii()
    assert why.text == sent[1].decode()


def test_what_is_wrong_with_the_machine_is_no_reject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(texts: object, options: ReadOptions, *, lines: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "parse_texts", full)
    with pytest.raises(OSError, match="No space left"):
        read(tmp_path, message(json.dumps(SOUND).encode()))


def table(station: str, count: int = 5) -> bytes:
    return HEAD + b"".join(b"%s,2020-01-01T00:0%d:00Z,%d\n" % (station.encode(), n, n) for n in range(count))


def files() -> Mapping[str, bytes]:
    """Return files that cannot be followed line by line, and some that can."""
    spoilt = table("G") + b"G,2020-01-01T00:09:00Z,warm\n"
    message = lambda station: {**SOUND, "station": station}  # noqa: E731
    return {
        "sub/packed.csv.gz": gzip.compress(spoilt),
        "lines.jsonl.gz": gzip.compress(b"".join(json.dumps(message(s)).encode() + b"\n" for s in "HI") + b"{]\n"),
        "wide.csv": table("W").decode().encode("utf-16"),
        "wide_be.csv": table("V").decode().encode("utf-16-be"),
        "returns.csv": (table("R") + b"R,2020-01-01T00:09:00Z,warm\n").replace(b"\n", b"\r"),
        "array.json": json.dumps([message("J"), {"station": "K"}, 3, message("L")], indent=1).encode(),
        "one.json": json.dumps(message("M"), indent=1).encode(),
        "plain.csv": table("P"),
        "cut.csv.gz": gzip.compress(table("C"))[:-9],
        "bomb.csv.gz": gzip.compress(HEAD + b"\n" * (80 << 20)),
        "no_zip.zip": b"PK\x03\x04 and nothing more",
    }


def test_whole_files_are_read_as_a_batch_ingest_does(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, content in files().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    with zipfile.ZipFile(folder / "several.zip", "w") as packed:
        for name, content in (
            ("a/x.csv", table("X")), ("y.jsonl", json.dumps({**SOUND, "station": "Y"}).encode() + b"\n"),
            ("readme", b"nothing"), ("broken.csv", b"no table"),
        ):  # fmt: skip
            packed.writestr(name, content)
    deployment = declared(tmp_path)
    with Spool.open(tmp_path / "spool") as spool:
        watched = WatchedFolder(folder, deployment, TailStates(), notify=lambda _: None)
        watched.poll(spool, 0.0)
        watched.poll(spool, 10.0)
        upto = spool.flush()
    (piece,) = parse_span(tmp_path / "spool", 0, upto, deployment)
    ingest([folder], tmp_path / "archive", deployment=tmp_path / "deployment.toml", now_ns=2 * 10**18)
    archive = Archive.open(tmp_path / "archive")
    stored = archive.read("air_temperature")
    stations = [archive.series("air_temperature")[index].station for index in stored.index.tolist()]
    there = sorted(zip(stations, stored.time_ns.tolist(), stored.value.tolist(), strict=True))
    assert values(piece) == there
    assert set(stations) == set("GHIWVRJLMPXY")
    told = lambda one: (one.file, one.line, one.column, one.text, one.reason)  # noqa: E731
    assert Counter(told(one) for _, one in piece.rejects) == Counter(map(told, archive.rejects()))
    assert len(piece.rejects) == 9


def test_a_bad_cell_costs_no_other_cell_of_its_row(tmp_path: Path) -> None:
    text = DEPLOYMENT + 'h = "relative_humidity"\n'
    lines = b"station,time,t,h\nA,2020-01-01T00:00Z,1,50\nA,2020-01-01T00:01Z,x,51\nA,2020-01-01T00:02Z,y,z\n"
    piece = read(tmp_path, SpoolRecord(10**18, "table", "a.csv", lines, 0), text=text)
    assert piece.rows.sizes.tolist() == [2, 1]
    assert piece.rows.value.tolist() == [1.0, 50.0, 51.0]
    names = [piece.rows.columns[code][1].name for code in piece.rows.column.tolist()]
    assert names == ["t", "h", "h"]
    # Of the last row no cell is left: it is rejected as a whole.
    assert [(reject.line, reject.column) for _, reject in piece.rejects] == [(3, "t"), (4, "t")]
    assert piece.rejected == 1 + 2


def test_lines_that_came_one_by_one_are_laid_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, asked = csv().layout, list[bytes]()

    def counted(head: bytes, file: str, options: ReadOptions) -> Layout:
        asked.append(head)
        return layout(head, file, options)

    with_csv(monkeypatch, layout=counted)
    sent = []
    for n in range(9):
        for name in ("x", "y"):
            # A replaced file begins again.
            place = n + 2 if n < 6 or name == "y" else n - 4
            row = b"%s,2020-01-01T00:0%d:00Z,%d\n" % (name.encode(), n, n)
            row = row if n else row.replace(b",0\n", b",NaN\n")
            sent.append(SpoolRecord(10**18, "table", f"{name}.csv", HEAD, 0, HEADER))
            sent.append(SpoolRecord(10**18 + n, "table", f"{name}.csv", row, place))
    sent[-1] = sent[-1]._replace(payload=b"spoilt\n")
    piece = read(tmp_path, *sent)
    assert len(asked) == 3
    assert sum(len(head) - len(HEAD) for head in asked) == sum(len(one.payload) for one in sent if one.position)
    assert piece.rows.seq.tolist() == list(range(2, 36, 2))
    assert (piece.rows.arrival_ns - 10**18).tolist() == [n for n in range(9) for _ in "xy"][:-1]
    ((seq, reject),) = piece.rejects
    assert (seq, reject.file, reject.line, reject.text) == (36, "y.csv", 10, "spoilt")


@pytest.mark.parametrize("topic", ["csv/..", "csv/.", "csv/" + "x" * 300, "csv/\0", "net/../up"])
def test_topics_are_no_names_of_files(tmp_path: Path, topic: str) -> None:
    payload = table("A", 2) if topic.startswith("csv") else json.dumps(SOUND).encode()
    feed = "table" if topic.startswith("csv") else "net"
    for place in (-1, 0):
        piece = read(tmp_path, SpoolRecord(10**18, feed, topic, payload, place))
        assert (len(piece.rows), piece.rejects) == (1 + (feed == "table"), [])


def test_a_last_line_without_end_that_comes_again_is_read_for_itself(tmp_path: Path) -> None:
    half, whole = b"A,2020-01-01T00:00:00Z,1", b"A,2020-01-01T00:00:00Z,12\n"
    head = SpoolRecord(10**18, "table", "x.csv", HEAD, 0, HEADER)
    sent = [
        SpoolRecord(10**18, "table", "x.csv", payload, place) for payload, place in ((half, 2), (whole, 2), (whole, 3))
    ]
    piece = read(tmp_path, *(one for record in sent for one in (head, record)))
    assert (piece.rows.seq.tolist(), piece.rows.value.tolist()) == ([2, 4, 6], [1.0, 12.0, 12.0])
    assert piece.rejects == []


def test_messages_parsed_in_parts_are_those_parsed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Broken ones, arrays of several, unknown columns and new stations lie on both sides of the cuts.
    records = []
    for at in range(40):
        sound = json.dumps([{**SOUND, "station": f"s{at % 7}", "t": at / 3}, {**SOUND, f"c{at % 5}": at}]).encode()
        records.append(message(b'{"broken"' if at % 6 == 0 else sound, topic=f"net/{at % 3}/up"))
    whole = read(tmp_path, *records, text=EVERY_COLUMN)
    monkeypatch.setattr(module, "PARSED_TOGETHER", 3)
    (parts,) = parse_span(tmp_path / "spool", 0, len(records), declared(tmp_path, EVERY_COLUMN))
    assert (whole.rows.origins, whole.rows.columns) == (parts.rows.origins, parts.rows.columns)
    assert whole.rows.to_bytes() == parts.rows.to_bytes()
    assert len(whole.rejects) == 7
    assert (whole.rejects, whole.rejected) == (parts.rejects, parts.rejected)


def test_memory_of_parsing_grows_by_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARSED_TOGETHER", 32)
    deployment, peaks = declared(tmp_path, EVERY_COLUMN), []
    payload = json.dumps({**SOUND, **{f"c{at}": at / 7 for at in range(20)}}).encode()
    for count in (64, 1600):
        with Spool.open(tmp_path / str(count)) as spool:
            spool.append([message(payload)] * count)
        tracemalloc.start()
        try:
            (piece,) = parse_span(tmp_path / str(count), 0, count, deployment)
            assert piece.rows.readings == 21 * count
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # 13 bytes and a part of the row, in three copies, and the messages; parsed at once, a reading takes 300.
    assert peaks[1] - peaks[0] < 100 * 21 * (1600 - 64)


@pytest.mark.parametrize("together", [1, 2, 1000])
def test_rows_are_taken_in_any_order(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAKEN_TOGETHER", together)
    draw = np.random.default_rng(together)
    sizes = np.array([2, 0, 3, 1, 0, 4])
    count, total = len(sizes), int(sizes.sum())
    whole, narrow = np.arange(count), np.arange(count, dtype=np.int32)
    rows = RowBatch(
        (), (), whole, whole, whole, whole, narrow, whole, np.cumsum(sizes),
        np.arange(total, dtype=np.int32), draw.normal(size=total), draw.integers(1, 9, total).astype(np.uint8),
    )  # fmt: skip
    for chosen in ([], [5], [1, 4], [0, 1, 2, 3, 4, 5], [5, 0, 2, 2, 1]):
        taken = rows.take(np.array(chosen, np.intp))
        values = [rows.value[start:stop].tolist() for start, stop in zip(rows.starts, rows.stops, strict=True)]
        inner = [taken.value[start:stop].tolist() for start, stop in zip(taken.starts, taken.stops, strict=True)]
        assert inner == [values[row] for row in chosen]
        assert taken.seq.tolist() == chosen
        assert (taken.column.dtype, taken.flag.dtype) == (np.int32, np.uint8)
