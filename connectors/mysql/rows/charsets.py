"""From MySQL's and MariaDB's collation numbers to text: bytes first, decoded by a policy. Pure.

Every charset of MariaDB and MySQL is here. Where Python has no codec, or one that reads some bytes otherwise than the server,
``charset_tables`` has the server's mapping. Text is the same in the stream and in snapshots, because both decode the stored
bytes here.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.mysql.rows.charset_tables import BIG5_EXTRA, EUCJPMS_ROWS, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable


class Charset(NamedTuple):
    """A charset of the server.

    Attributes:
        name: as the server calls it.
        codec: Python's codec; "": ``charset_tables`` has its table.
        longest: bytes of its longest character.
    """

    name: str
    codec: str
    longest: int = 1


_CHARSETS: Final[tuple[Charset, ...]] = (
    Charset("armscii8", ""),
    Charset("ascii", "ascii"),
    Charset("big5", "big5", 2),
    Charset("binary", "latin-1"),
    Charset("cp1250", "cp1250"),
    Charset("cp1251", "cp1251"),
    Charset("cp1256", ""),
    Charset("cp1257", "cp1257"),
    Charset("cp850", "cp850"),
    Charset("cp852", "cp852"),
    Charset("cp866", ""),
    Charset("cp932", "cp932", 2),
    Charset("dec8", ""),
    Charset("eucjpms", "euc_jp", 3),
    Charset("euckr", "cp949", 2),
    Charset("gb18030", "gb18030", 4),
    Charset("gb2312", "gb2312", 2),
    Charset("gbk", "gbk", 2),
    Charset("geostd8", ""),
    Charset("greek", ""),
    Charset("hebrew", ""),
    Charset("hp8", "hp-roman8"),
    Charset("keybcs2", ""),
    Charset("koi8r", "koi8-r"),
    Charset("koi8u", ""),
    Charset("latin1", ""),
    Charset("latin2", "iso8859-2"),
    Charset("latin5", "iso8859-9"),
    Charset("latin7", "iso8859-13"),
    Charset("macce", "mac-latin2"),
    Charset("macroman", "mac-roman"),
    Charset("sjis", "shift_jis", 2),
    Charset("swe7", ""),
    Charset("tis620", ""),
    Charset("ucs2", "utf-16-be", 2),
    Charset("ujis", "euc_jp", 3),
    Charset("utf16", "utf-16-be", 4),
    Charset("utf16le", "utf-16-le", 4),
    Charset("utf32", "utf-32-be", 4),
    Charset("utf8mb3", "utf-8", 3),
    Charset("utf8mb4", "utf-8", 4),
)
BY_NAME: Final[dict[str, Charset]] = {charset.name: charset for charset in _CHARSETS} | {
    "utf8": Charset("utf8mb3", "utf-8", 3)
}

#: Collation numbers below 1024 by charset, those of both servers; MariaDB's NOPAD ones are 1024 higher, see ``charset_of``.
_COLLATIONS: Final[dict[str, tuple[int | range, ...]]] = {
    "big5": (1, 84),
    "latin2": (2, 9, 21, 27, 77),
    "dec8": (3, 69),
    "cp850": (4, 80),
    "latin1": (5, 8, 15, 31, 47, 48, 49, 94),
    "hp8": (6, 72),
    "koi8r": (7, 74),
    "swe7": (10, 82),
    "ascii": (11, 65),
    "ujis": (12, 91),
    "sjis": (13, 88),
    "cp1251": (14, 23, 50, 51, 52),
    "hebrew": (16, 71),
    "tis620": (18, 89),
    "euckr": (19, 85),
    "latin7": (20, 41, 42, 79),
    "koi8u": (22, 75),
    "gb2312": (24, 86),
    "greek": (25, 70),
    "cp1250": (26, 34, 44, 66, 99),
    "gbk": (28, 87),
    "cp1257": (29, 58, 59),
    "latin5": (30, 78),
    "armscii8": (32, 64),
    "utf8mb3": (33, 76, 83, range(192, 224), range(576, 608)),
    "ucs2": (35, 90, range(128, 160), range(640, 672)),
    "cp866": (36, 68),
    "keybcs2": (37, 73),
    "macce": (38, 43),
    "macroman": (39, 53),
    "cp852": (40, 81),
    "utf8mb4": (45, 46, range(224, 248), range(255, 512), range(608, 640)),
    "utf16": (54, 55, range(101, 128), range(672, 704)),
    "utf16le": (56, 62),
    "cp1256": (57, 67),
    "utf32": (60, 61, range(160, 192), range(736, 768)),
    "binary": (63,),
    "geostd8": (92, 93),
    "cp932": (95, 96),
    "eucjpms": (97, 98),
    "gb18030": (248, 249, 250),
}
#: MariaDB's UCA 14 collations, from 2048 on.
_UCA1400: Final = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")
_NOPAD: Final = 1024
_UCA_FIRST: Final = 2048
_UCA_SIZE: Final = 256


def _expand_collations() -> dict[int, Charset]:
    charsets: dict[int, Charset] = {}
    for name, numbers in _COLLATIONS.items():
        for entry in numbers:
            for number in entry if isinstance(entry, range) else (entry,):
                charsets[number] = BY_NAME[name]
    return charsets


_BY_NUMBER: Final[dict[int, Charset]] = _expand_collations()


def charset_of(collation: int) -> Charset:
    """The charset that a collation belongs to; an unknown one is taken as utf8mb4, which new servers make it."""
    if collation >= _UCA_FIRST:
        uca_index = (collation - _UCA_FIRST) // _UCA_SIZE
        return BY_NAME[_UCA1400[uca_index]] if uca_index < len(_UCA1400) else BY_NAME["utf8mb4"]
    known_charset = _BY_NUMBER.get(collation)
    if known_charset is None and collation > _NOPAD:
        known_charset = _BY_NUMBER.get(collation - _NOPAD)
    return known_charset or BY_NAME["utf8mb4"]


_EUC_PRIVATE: Final = range(0xF5, 0xFF)
_EUC_CELLS: Final = range(0xA1, 0xFF)
_THREE_BYTES: Final = 0x8F


def _euc_extra(data: bytes, start: int, *, ms: bool) -> tuple[str, int] | None:
    """A character at ``start`` that the servers' EUC-JP has beyond Python's, and its length."""
    lead = 2 if data[start] == _THREE_BYTES else 1
    sequence = data[start : start + lead + 1]
    if len(sequence) != lead + 1 or sequence[-1] not in _EUC_CELLS:
        return None
    row, cell = sequence[-2], sequence[-1] - 0xA1
    if row in _EUC_PRIVATE:
        return chr((0xE000 if lead == 1 else 0xE3AC) + (row - 0xF5) * 94 + cell), lead + 1
    extra = EUCJPMS_ROWS.get(sequence[:-1]) if ms else None
    if extra is None or extra[cell] == "\ufffe":
        return None
    return extra[cell], lead + 1


def _ujis_extra(data: bytes, start: int) -> tuple[str, int] | None:
    return _euc_extra(data, start, ms=False)


def _eucjpms_extra(data: bytes, start: int) -> tuple[str, int] | None:
    return _euc_extra(data, start, ms=True)


def _big5_extra(data: bytes, start: int) -> tuple[str, int] | None:
    """See ``_euc_extra``, of Big5."""
    extra_index = int.from_bytes(data[start : start + 2]) - 0xF9D6
    return (BIG5_EXTRA[extra_index], 2) if 0 <= extra_index < len(BIG5_EXTRA) else None


def _none_extra(data: bytes, start: int) -> tuple[str, int] | None:
    del data, start
    return None


def _extended_decoder(
    codec: str, errors: str, extra: Callable[[bytes, int], tuple[str, int] | None], changed: dict[int, str]
) -> Callable[[bytes], str]:
    """A decoder by a codec that lacks some characters, or names some otherwise."""

    def decode(data: bytes) -> str:
        try:
            decoded = data.decode(codec)
        except UnicodeDecodeError:
            decoded = slowly(data)
        return decoded.translate(changed) if changed else decoded

    def slowly(data: bytes) -> str:
        parts: list[str] = []
        start = 0
        while start < len(data):
            try:
                parts.append(data[start:].decode(codec))
                break
            except UnicodeDecodeError as error:
                bad = start + error.start
                parts.append(data[start:bad].decode(codec))
                replacement = extra(data, bad)
                if replacement is None:
                    end = bad + max(1, error.end - error.start)
                    parts.append(data[bad:end].decode(codec, errors))
                    start = end
                else:
                    parts.append(replacement[0])
                    start = bad + replacement[1]
        return "".join(parts)

    return decode


_BACKSLASH: Final = {0xFF3C: "\\"}
_MS: Final = {ord(a): b for a, b in zip("〜‖−¢£¬¦", "～∥－￠￡￢￤", strict=True)}  # noqa: RUF001
_TILDE: Final = b"\x8f\xa2\xb7"


def _eucjpms_decoder(errors: str) -> Callable[[bytes], str]:
    plain = _extended_decoder("euc_jp", errors, _eucjpms_extra, _MS)

    def decode(data: bytes) -> str:
        # Python reads the full-width tilde as the ASCII one, so it has to be found before.
        if _TILDE in data:
            return "～".join(map(plain, data.split(_TILDE)))  # noqa: RUF001
        return plain(data)

    return decode


def _table_decoder(table: str, errors: str) -> Callable[[bytes], str]:
    charmap = codecs.charmap_decode

    def decode(data: bytes) -> str:
        return charmap(data, errors, table)[0]

    return decode


def _codec_decoder(codec: str, errors: str) -> Callable[[bytes], str]:
    def decode(data: bytes) -> str:
        return data.decode(codec, errors)

    return decode


def make_decoder(charset: str, errors: str = "replace") -> Callable[[bytes], str]:
    """A function from stored bytes to text.

    It raises UnicodeDecodeError for bytes that mean nothing where ``errors`` is ``strict``.

    Args:
        charset: the server's name of it.
        errors: Python's name of what to do with bytes that mean nothing.
    """
    charset_entry = BY_NAME[charset]
    if charset_entry.name == "eucjpms":
        return _eucjpms_decoder(errors)
    if charset_entry.name == "ujis":
        return _extended_decoder("euc_jp", errors, _ujis_extra, _BACKSLASH)
    if charset_entry.name == "sjis":
        return _extended_decoder("shift_jis", errors, _none_extra, _BACKSLASH)
    if charset_entry.name == "big5":
        return _extended_decoder("big5", errors, _big5_extra, {})
    if not charset_entry.codec:
        return _table_decoder(TABLES[charset_entry.name], errors)
    return _codec_decoder(charset_entry.codec, errors)


def first_collation(charset: str) -> int:
    """A collation of the charset: its oldest, which tells the charset and nothing of the order.

    An unknown charset is taken as utf8mb4.
    """
    collations = _COLLATIONS.get({"utf8": "utf8mb3"}.get(charset, charset))
    entry = collations[0] if collations else 45
    return entry if isinstance(entry, int) else entry.start
