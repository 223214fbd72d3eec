"""Content negotiation: by `f`, else by `Accept` (RFC 9110, 12.5.1), else the default format.

A client that accepts none of the formats gets the default, as RFC 9110 allows and as routes with a single format do:
many clients send an `Accept` header that does not reflect their needs.
"""

from collections.abc import Mapping
from typing import Final

from fastapi import Request

_JSON: Final = "application/json"
_COVERAGES: Final = ("application/vnd.cov+json", "application/prs.coverage+json")
"""Media types of CoverageJSON: registered, and before registration."""


def form_of(request: Request, forms: Mapping[str, str], f: str | None = None) -> str:
    """Choose the format of an answer.

    Parameters
    ----------
    request
        The request.
    forms
        Media types by format name, the default first.
    f
        Format named in the request, which wins even if it is unknown; None: not given.
    """
    if f is not None:
        return f
    ranges = _ranges(",".join(request.headers.getlist("accept")))
    quality = {name: _quality(media_type, ranges) for name, media_type in forms.items()}
    return max(quality, key=lambda name: quality[name])


def _ranges(accept: str) -> dict[str, float]:
    """Parse the quality of each valid media range; other parameters are ignored."""
    qualities = {}
    for entry in accept.lower().split(","):
        media_range, *parameters = (part.strip() for part in entry.split(";"))
        weights = [part[2:].strip() for part in parameters if part.startswith("q=")]
        try:
            quality = float(weights[0]) if weights else 1.0
        except ValueError:
            continue
        if media_range and 0 <= quality <= 1:
            qualities[media_range] = quality
    return qualities


def _quality(media_type: str, ranges: Mapping[str, float]) -> float:
    """Return a media type's quality: that of the most specific matching range, else 0."""
    whole = media_type.partition(";")[0].strip().lower()
    names = [*_COVERAGES] if whole in _COVERAGES else [whole]
    general = [_JSON] if whole.endswith("json") else []
    wider = [f"{whole.partition('/')[0]}/*", "*/*"]
    return next((ranges[name] for name in [*names, *general, *wider] if name in ranges), 0.0)
