"""Entity tags: what has the same tag is the same, byte for byte, and need not be sent again (RFC 9110, section 13)."""

from fastapi import Request, Response

from hypergrid.tokens import token
from hypergrid.version import VERSION


def entity_tag(*content: object) -> str:
    """Return the tag of what is made from some content tokens by this version."""
    return f'"{token(VERSION, *content)[:32]}"'


def unchanged(request: Request, tag: str) -> Response | None:
    """Return 304 (Not Modified) where the client says that it has what bears this tag; None: it is to be sent.

    "*", any at all, is not taken: whether there is something to be sent is known only once it is made.
    """
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    return Response(status_code=304, headers=tagged(tag)) if tag in known else None


def tagged(tag: str) -> dict[str, str]:
    """Return the headers of what bears a tag: to be kept by the client, and asked for again with the tag.

    Its form may hang on what the client accepts.
    """
    return {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept"}
