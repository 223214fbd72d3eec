"""In which encoding a text is, told by its first bytes, and whether lines can be found in it."""

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
"""Foreign bytes from which on their frequencies tell the encoding; of fewer, it is the one that most files have."""
_LEAST_LINES: Final = 2
"""One line of foreign bytes may be damage; so many are an encoding."""


def wide_encoding(head: bytes) -> str | None:
    """Return the encoding of text of two or four bytes a character; None of any other."""
    for mark, name in _WIDE_MARKS:
        if head.startswith(mark):
            return name
    sample = head[:4096]
    if len(sample) >= 8 and b"\0" in sample:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        threshold = 0.9 * (len(sample) // 2)
        for name, nul, other in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
            if nul > threshold and not other:
                return name
    return None


def has_lines(head: bytes, encoding: str | None) -> bool:
    """Return whether lines can be found by their newlines; else the text must be rewritten first."""
    if wide_encoding(head) or (encoding is not None and not is_superset_of_ascii(encoding)):
        return False
    return b"\n" in head or b"\r" not in head


def is_superset_of_ascii(encoding: str) -> bool:
    """Return whether ASCII text has the same bytes in the encoding.

    Raises
    ------
    LookupError
        There is no such encoding.
    """
    plain = "0Az,;\t|\n"
    return plain.encode(encoding) == plain.encode("ascii")


def encoding_of(head: bytes) -> tuple[str, str]:
    """Return the encoding of text with lines, and by what it was told.

    Text that is no UTF-8 is taken for another encoding where a line of words has foreign bytes, or several lines have,
    and no line is proper UTF-8; a single row of numbers with them is damage, which costs that row.
    """
    if head.startswith(BYTE_ORDER_MARK):
        return UTF8, "its byte order mark"
    foreign = [line for line in head.splitlines() if not line.isascii()]
    wrong = [line for line in foreign if not _decodes(line)]
    if not wrong or len(wrong) < len(foreign) or (len(wrong) < _LEAST_LINES and _is_row(wrong[0])):
        return UTF8, ""
    text = b"\n".join(wrong)
    # Of a degree sign and an umlaut nobody can tell more.
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
    """Return text in UTF-8; bytes that the encoding does not have stay, and are no UTF-8."""
    return data.decode(encoding, errors="surrogateescape").encode(UTF8, errors="surrogateescape")
