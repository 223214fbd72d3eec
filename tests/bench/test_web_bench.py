"""The benchmark of the web API in small: that it counts what it says. No time is tested."""

import asyncio

from tests.bench import bench_web
from tests.bench.web_load import open_loop


def test_it_measures_what_it_says() -> None:
    cases = ("latest", "queries", "positions", "box")
    parts = {case: bench_web.measure(case, quick=True, slices=90)["parts"][case] for case in cases}
    measured = {"parts": parts}
    latest = measured["parts"]["latest"]["rows"]
    assert [row["rate /s"] for row in latest][0] == 200.0
    assert latest[0]["requests"] == 800
    assert latest[0]["errors"] == 0
    assert latest[0]["standing evaluations"] > 0
    (queries,) = measured["parts"]["queries"]["rows"]
    assert queries["answered"] + queries["refused with 429"] == queries["queries"] == 50
    assert queries["errors"] == 0
    (positions,) = measured["parts"]["positions"]["rows"]
    assert (positions["positions"], positions["pairs"]) == (100, 5)
    assert 0 < positions["least"] <= positions["all / one, median"] <= positions["most"]
    assert positions["kept"] == (positions["all / one, median"] <= 3)
    rows = measured["parts"]["box"]["rows"]
    assert len(rows) == 8
    for row in rows:
        # The box ends at the station that brings the values to so many: those of one more at most.
        assert row["values"] in (300, 1277, 1278, 1279)
        assert (row["requests"], row["not 200"]) == (20, 0)
        assert 0 < row["median ms"] <= row["p99 ms"] <= row["worst ms"]
        assert row["kept"] == (row["p99 ms"] <= 20)
    assert {row["values"] for row in rows if "calm" in row["which"] and row["snapshots"] == 1} >= {300}
    titles = [title for title, _, _ in bench_web.tables(measured)]
    assert titles == [bench_web.TITLES[case] for case in cases]


def test_a_loop_is_open_and_counts_from_when_a_request_was_due() -> None:
    """A server that answers nothing for half a second: those that came meanwhile waited, and none was held back."""
    seen: list[float] = []

    async def run() -> tuple[list[float], list[float]]:
        loop = asyncio.get_running_loop()
        begun = loop.time()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.readline():
                seen.append(loop.time() - begun)
                while (await reader.readline()).strip():
                    pass
                await asyncio.sleep(max(0.5 - (loop.time() - begun), 0.0))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        requests = [b"GET / HTTP/1.1\r\n\r\n"] * 20
        answers = await open_loop("127.0.0.1", port, requests, per_s=50.0)
        server.close()
        assert answers.statuses == {200: 20}
        return seen, answers.seconds

    came, waited = asyncio.run(run())
    assert max(came) < 0.48
    assert max(waited) > 0.45
    assert min(waited) < 0.2
