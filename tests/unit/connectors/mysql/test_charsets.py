"""Charsets and collations without a server."""

from __future__ import annotations

import pytest

from connectors.mysql.rows.charsets import BY_NAME, charset_of, first_collation, make_decoder


@pytest.mark.parametrize(
    ("collation", "name"),
    [
        (63, "binary"),
        (8, "latin1"),
        (1032, "latin1"),
        (45, "utf8mb4"),
        (1070, "utf8mb4"),
        (255, "utf8mb4"),
        (309, "utf8mb4"),
        (33, "utf8mb3"),
        (2048, "utf8mb3"),
        (2304, "utf8mb4"),
        (2560, "ucs2"),
        (2816, "utf16"),
        (3271, "utf32"),
        (249, "gb18030"),
        (76, "utf8mb3"),
        (640, "ucs2"),
        (1086, "utf16le"),
        (9999, "utf8mb4"),
    ],
)
def test_collations(collation: int, name: str) -> None:
    assert charset_of(collation).name == name


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_charset_reads_ascii_and_has_a_collation(name: str) -> None:
    wide = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}.get(name, "ascii")
    assert make_decoder(name, "strict")("plain text 19".encode(wide)) == "plain text 19"
    assert charset_of(first_collation(name)).name == BY_NAME[name].name


@pytest.mark.parametrize(
    ("name", "stored", "text"),
    [
        ("latin1", b"\x80\x81\xe9", "€\x81é"),  # bytes that cp1252 has no character for are themselves
        ("sjis", b"\x81\x5f\x83\x41", "\\ア"),
        ("ujis", b"\xa1\xc0\xf5\xa1\x8f\xf5\xa2", "\\\ue000\ue3ad"),
        ("eucjpms", b"\xad\xa1\xa1\xc1\x8f\xa2\xb7~\x8f\xf3\xf3", "①～～~ⅰ"),  # noqa: RUF001
        ("big5", b"\xf9\xd6\xa4\xa4", "碁中"),
        ("euckr", b"\x81\x41", "갂"),
        ("cp866", b"\xfc\xfd", "ⁿ²"),
        ("greek", b"\xa1", "ʽ"),  # noqa: RUF001
        ("swe7", b"[\\]", "ÄÖÅ"),
        ("koi8u", b"\x95", "•"),
        ("tis620", b"\xa1\xff", "ก�"),
        ("gb18030", b"\x81\x30\x81\x30", "\x80"),
        ("utf16", b"\xd8\x34\xdd\x1e", "𝄞"),
    ],
)
def test_what_servers_read_otherwise_than_python(name: str, stored: bytes, text: str) -> None:
    assert make_decoder(name, "strict")(stored) == text


@pytest.mark.parametrize(
    ("name", "stored", "replaced", "ignored"),
    [
        ("utf8mb4", b"a\xffb", "a�b", "ab"),
        ("ascii", b"a\xe9", "a�", "a"),
        ("cp1256", b"a\x8ab", "a�b", "ab"),
        ("eucjpms", b"\xb0\xa1\xad\xdeA", "亜��A", "亜A"),
        ("ujis", b"\xb0\xa1\xb0", "亜�", "亜"),
        ("sjis", b"\x81", "�", ""),
        ("ucs2", b"\x00a\xd8\x00", "a�", "a"),
        ("big5", b"\xff\xa4\xa4", "�中", "中"),
    ],
)
def test_bytes_that_mean_nothing_by_policy(name: str, stored: bytes, replaced: str, ignored: str) -> None:
    assert make_decoder(name, "replace")(stored) == replaced
    assert make_decoder(name, "ignore")(stored) == ignored
    with pytest.raises(UnicodeDecodeError):
        make_decoder(name, "strict")(stored)
