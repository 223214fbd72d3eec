"""What a network states about its data: institution, licence, creator and publisher."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final

from hypergrid.core.errors import InvalidDeployment

LONGEST: Final = 500
"""Maximum length of a text."""
_ADDRESS: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+")
_URL: Final = re.compile(r"https?://[^\s/]+\S*")


@dataclass(frozen=True)
class Publication:
    """Statements about a network's data, by their names in ACDD 1.3; an empty text states nothing.

    Raises
    ------
    InvalidDeployment
        A text is too long or has several lines, or an address is not one.

    Examples
    --------
    >>> Publication(institution="Institute of Snow", license="CC-BY-4.0").attributes()
    {'institution': 'Institute of Snow', 'license': 'CC-BY-4.0'}
    """

    institution: str = ""
    """Where the data were produced."""
    license: str = ""
    """Terms of use: a name such as "CC-BY-4.0", an address, or a sentence."""
    creator_name: str = ""
    """Person or group that produced the data."""
    creator_email: str = ""
    """Contact."""
    creator_url: str = ""
    publisher_name: str = ""
    """Person or institution that distributes the data."""
    publisher_email: str = ""
    publisher_url: str = ""

    def __post_init__(self) -> None:
        for name, text in asdict(self).items():
            if not isinstance(text, str) or len(text) > LONGEST or not text.isprintable():
                raise InvalidDeployment(
                    f"{name} needs one line of at most {LONGEST} characters; got {str(text)[:80]!r}"
                )
            if text and name.endswith("_email") and not _ADDRESS.fullmatch(text):
                raise InvalidDeployment(f"{name} needs a mail address, such as data@example.org; got {text!r}")
            if text and name.endswith("_url") and not _URL.fullmatch(text):
                raise InvalidDeployment(f"{name} needs an address, such as https://example.org; got {text!r}")

    @classmethod
    def of(cls, attributes: Mapping[str, str]) -> Publication:
        """Read what `attributes` returned; names of later versions are left out."""
        return cls(**{field.name: attributes[field.name] for field in fields(cls) if field.name in attributes})

    def attributes(self) -> dict[str, str]:
        """Return the statements as global attributes of a file."""
        return {name: text for name, text in asdict(self).items() if text}

    def to_openapi(self) -> dict[str, dict[str, str]]:
        """Return licence and contact as in the `info` of an OpenAPI document, as far as they are known."""
        contact = {
            "name": self.creator_name or self.institution,
            "email": self.creator_email,
            "url": self.creator_url,
        }
        terms = {"name": self.license, "url": self.license_url}
        made = {"contact": contact, "license": terms}
        known = {name: {key: text for key, text in terms.items() if text} for name, terms in made.items()}
        return {name: terms for name, terms in known.items() if terms}

    @property
    def license_url(self) -> str:
        """Address of the licence; empty if it is given in words."""
        return self.license if _URL.fullmatch(self.license) else ""

    @property
    def attribution(self) -> str:
        """Whose data they are and under which terms, in one line; empty if not stated."""
        source = self.institution or self.creator_name or self.publisher_name
        return "; ".join(filter(None, (source, self.license)))


NAMES: Final = tuple(field.name for field in fields(Publication))
"""Names of the statements."""


def join_attributes(publications: Sequence[Publication]) -> dict[str, str]:
    """Return the global attributes of a file from several archives: differing statements of one name in sequence.

    Parameters
    ----------
    publications
        The statements of each archive; their names may be equal.
    """
    made: dict[str, str] = {}
    for name in NAMES:
        texts = dict.fromkeys(getattr(each, name) for each in publications)
        if joined := "; ".join(filter(None, texts)):
            made[name] = joined
    return made
