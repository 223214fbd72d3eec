"""Entity tags: equal tags mean equal bytes, not sent again (RFC 9110, section 13)."""

import hashlib
from typing import Final

from fastapi import Request, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hypergrid.core.tokens import token
from hypergrid.core.version import VERSION

_KEPT: Final = ("etag", "cache-control", "vary")
"""Headers of the original answer that 304 repeats (RFC 9110, 15.4.5)."""


class Tags:
    """Tags untagged JSON with a content hash, so that unchanged lists are not resent.

    Parameters
    ----------
    app
        The inner application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        pending_start: Message | None = None

        async def sending(message: Message) -> None:
            nonlocal pending_start
            if message["type"] == "http.response.start" and _is_untagged_json(message):
                pending_start = message
                return
            if pending_start is not None:
                start, pending_start = pending_start, None
                # Streamed answers are passed on without a tag: they are not held back to be hashed.
                if not message.get("more_body", False):
                    tag = f'"{hashlib.sha256(message["body"]).hexdigest()[:32]}"'
                    headers = MutableHeaders(scope=start)
                    # The route decides whether the answer varies with Accept.
                    headers.update({name: text for name, text in etag_headers(tag).items() if name != "Vary"})
                    if not_modified_response(Request(scope), tag) is not None:
                        kept = {name: headers[name] for name in _KEPT if name in headers}
                        await Response(status_code=304, headers=kept)(scope, receive, send)
                        return
                await send(start)
            await send(message)

        await self._app(scope, receive, sending)


def entity_tag(*content: object) -> str:
    return f'"{token(VERSION, *content)[:32]}"'


def not_modified_response(request: Request, tag: str) -> Response | None:
    """Return 304 (Not Modified) if the client has the answer with this tag, else None."""
    # "*" is not supported, because whether there is an answer is known only once it is made.
    known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    return Response(status_code=304, headers=etag_headers(tag)) if tag in known else None


def etag_headers(tag: str) -> dict[str, str]:
    """Make the headers of a tagged answer: cached by the client, but revalidated."""
    # The format may depend on Accept.
    return {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept"}


def _is_untagged_json(start: Message) -> bool:
    headers = MutableHeaders(scope=start)
    is_json = headers.get("content-type", "").partition(";")[0].endswith("json")
    return is_json and start["status"] == 200 and not {"etag", "cache-control", "set-cookie"} & set(headers)
