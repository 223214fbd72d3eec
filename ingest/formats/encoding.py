"""Detection of a text's encoding and line structure from its first bytes."""

import codecs
from typing import Final

from charset_normalizer import from_bytes

UTF8: Final = "utf-8"
BYTE_ORDER_MARK: Final = codecs.BOM_UTF8

_WIDE_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SINGLE_BYTE: Final = ["cp1252", "latin_1", "iso8859_15", "cp1250", "cp1251", "mac_roman", "cp850"]
_MUCH: Final = 64
"""Minimum number of non-ASCII bytes for a detection by their frequencies."""
# A single line may be damaged.
_LEAST_LINES: Final = 2
"""Number of lines with invalid bytes that indicate another encoding."""


def wide_encoding(head: bytes) -> str | None:
    """Return the encoding of text with two or four bytes per character; None for other text."""
    for mark, name in _WIDE_MARKS:
        if head.startswith(mark):
            return name
    sample = head[:4096]
    if len(sample) >= 8 and b"\0" in sample:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        # ASCII text in UTF-16 has a NUL in every second byte.
        threshold = 0.9 * (len(sample) // 2)
        for name, nul, other in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
            if nul > threshold and not other:
                return name
    return None


def has_lines(head: bytes, encoding: str | None) -> bool:
    """Return whether the text can be split at newlines; otherwise it must be rewritten first."""
    if wide_encoding(head) or (encoding is not None and not is_superset_of_ascii(encoding)):
        return False
    return b"\n" in head or b"\r" not in head


def is_superset_of_ascii(encoding: str) -> bool:
    """Return whether ASCII text has the same bytes in the encoding.

    Raises
    ------
    LookupError
        The encoding is unknown.
    """
    plain = "0Az,;\t|\n"
    return plain.encode(encoding) == plain.encode("ascii")


def encoding_of(head: bytes) -> tuple[str, str]:
    """Return the encoding of text with lines, and the reason.

    Text that is not UTF-8 has another encoding if a line of words, or several lines, have invalid bytes and no line
    with non-ASCII bytes is valid UTF-8. A single row of numbers with invalid bytes is damage, which costs that row.
    """
    if head.startswith(BYTE_ORDER_MARK):
        return UTF8, "its byte order mark"
    foreign = [line for line in head.splitlines() if not line.isascii()]
    wrong = [line for line in foreign if not _decodes(line)]
    if not wrong or len(wrong) < len(foreign) or (len(wrong) < _LEAST_LINES and _is_row(wrong[0])):
        return UTF8, ""
    text = b"\n".join(wrong)
    # A few bytes, such as a degree sign and an umlaut, do not identify the encoding: the most common one is assumed.
    much = sum(byte >= 0x80 for byte in text) >= _MUCH
    best_match = from_bytes(text, cp_isolation=_SINGLE_BYTE, threshold=0.5).best() if much else None
    name = best_match.encoding if best_match is not None else "cp1252"
    return name, f"{len(wrong)} of its first lines are no UTF-8, and are text in {name}"


def _decodes(line: bytes) -> bool:
    try:
        line.decode(UTF8)
    except UnicodeDecodeError:
        return False
    return True


def _is_row(line: bytes) -> bool:
    return sum(chr(byte).isdigit() for byte in line) > sum(chr(byte).isalpha() for byte in line if byte < 0x80)


def to_utf8(data: bytes, encoding: str) -> bytes:
    """Convert text to UTF-8; bytes that are invalid in the encoding are kept, and are invalid UTF-8."""
    return data.decode(encoding, errors="surrogateescape").encode(UTF8, errors="surrogateescape")
