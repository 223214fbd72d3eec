"""Large results wait on the disk, small ones in memory, and few are written at once."""

import asyncio
import threading
import time

import pytest
from fastapi.responses import StreamingResponse

from queries.web.responses import files
from queries.web.responses.files import AT_ONCE, CHUNK_BYTES, SMALL_BYTES, file_response


async def body_of(answer: StreamingResponse) -> list[bytes]:
    return [bytes(chunk) async for chunk in answer.body_iterator]  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 10, SMALL_BYTES, SMALL_BYTES + 1, 3 * CHUNK_BYTES + SMALL_BYTES + 7])
def test_what_arrives_is_what_was_written(size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    answer = file_response(lambda: content, media_type="text/csv", headers={"ETag": '"a"'})
    assert answer.headers["etag"] == '"a"'
    assert answer.headers["content-length"] == str(size)
    assert answer.media_type == "text/csv"
    if size <= SMALL_BYTES:
        assert bytes(answer.body) == content
        return
    assert isinstance(answer, StreamingResponse)
    chunks = asyncio.run(body_of(answer))
    assert b"".join(chunks) == content
    assert max(map(len, chunks)) <= CHUNK_BYTES


def test_few_are_written_at_once_and_one_that_fails_leaves_its_place() -> None:
    lock, now, most = threading.Lock(), 0, 0
    # None goes on before as many as may write do.
    together = threading.Barrier(AT_ONCE)

    def write() -> bytes:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(60)
        time.sleep(0.05)  # for one more, should there be one
        with lock:
            now -= 1
        return b"x"

    def fail() -> bytes:
        raise ValueError("no such form")

    for _ in range(AT_ONCE + 1):
        with pytest.raises(ValueError, match="no such form"):
            file_response(fail, media_type="text/csv", headers={})
    threads = [
        threading.Thread(target=file_response, args=(write,), kwargs={"media_type": "a/b", "headers": {}})
        for _ in range(8)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert most == files.AT_ONCE
