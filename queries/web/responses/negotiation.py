"""Which of its forms an answer has: what `f` names, else what `Accept` prefers (RFC 9110, 12.5.1), else the first.

A client that accepts none of the forms gets the first one all the same, as RFC 9110 allows, and as routes with a single
form do: many clients send an `Accept` that they do not mean.
"""

from collections.abc import Mapping
from typing import Final

from fastapi import Request

_JSON: Final = "application/json"
_COVERAGES: Final = ("application/vnd.cov+json", "application/prs.coverage+json")
"""Names of CoverageJSON: as it is registered, and as it was before."""


def form_of(request: Request, forms: Mapping[str, str], f: str | None = None) -> str:
    """Return the name of the form that a request is answered in.

    Parameters
    ----------
    request
        The request.
    forms
        Media types by the names of the forms, that of the default first.
    f
        What the request names; None: nothing. It wins, whether there is such a form or not.
    """
    if f is not None:
        return f
    ranges = _ranges(",".join(request.headers.getlist("accept")))
    quality = {name: _quality(media_type, ranges) for name, media_type in forms.items()}
    return max(quality, key=lambda name: quality[name])


def _ranges(accept: str) -> dict[str, float]:
    """Return the quality of each range of media types that can be read; parameters besides it are passed over."""
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
    """Return the quality of a media type: that of the most specific range which it lies in, 0 where there is none."""
    whole = media_type.partition(";")[0].strip().lower()
    names = [*_COVERAGES] if whole in _COVERAGES else [whole]
    general = [_JSON] if whole.endswith("json") else []
    wider = [f"{whole.partition('/')[0]}/*", "*/*"]
    return next((ranges[name] for name in [*names, *general, *wider] if name in ranges), 0.0)
