"""A line as a protocol gives it, before rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from connectors.logs.rules.records import LineOrigin  # noqa: TC001 - msgspec reads the annotation at run time

if TYPE_CHECKING:
    from collections.abc import Callable

#: The most lines of one request. A line takes some hundred bytes of memory and some microseconds, even an empty one: a
#: request of tiny ones, which compress well, would take a hundred times its size.
MOST_LINES: Final = 262_144


class TooManyLines(Exception):
    """A request has more lines than one may have; the message says what to do."""

    def __init__(self) -> None:
        super().__init__(f"the request has more than {MOST_LINES} lines or values; send smaller ones")


class NetworkLine(msgspec.Struct, gc=False):
    """A line with what its sender says about it.

    Attributes:
        line: the text.
        origin: where it comes from; ``position`` is filled in where it is 0.
        identity: what names this line whenever it is sent; "" if the sender does not say.
        error: why it is a bad record; "" if it is not.
        raw: with an error, the bytes.
        size: bytes that it holds in memory, about.
        cut: whether its end was left out, because it was too long.
        header: the text of the message before the line, for ``unknown_table``.
    """

    line: str
    origin: LineOrigin
    identity: str = ""
    error: str = ""
    raw: bytes = b""
    size: int = 0
    cut: bool = False
    header: str = ""


class LineLimits(msgspec.Struct, frozen=True):
    """The treatment of bytes that are not a proper line.

    Attributes:
        most: the longest line, bytes.
        report_long: whether a longer one is a bad record; else it is cut.
        report_malformed: whether bytes that are not UTF-8 make a bad record; else U+FFFD stands for them.
    """

    most: int
    report_long: bool = False
    report_malformed: bool = False


#: How much of a line that is too long a bad record shows.
_SHOWN: Final = 1024


def make_line(
    data: bytes,
    limits: LineLimits,
    origin: LineOrigin,
    parse: Callable[[str, LineOrigin], NetworkLine],
    *,
    cut: bool = False,
) -> NetworkLine:
    """The line in some bytes.

    Args:
        data: the bytes.
        limits: what becomes of them where they are too long or no UTF-8.
        origin: where they come from.
        parse: makes the line of the text.
        cut: whether ``data`` is the start of something longer.
    """
    if cut or len(data) > limits.most:
        if limits.report_long:
            return _make_bad(
                data, origin, f"the line is longer than line.max.bytes={limits.most}; raise it, or have it cut"
            )
        data, cut = data[: limits.most], True
    try:
        message = data.decode()
    except UnicodeDecodeError as error:
        # A cut may have gone through a character.
        if limits.report_malformed and not (cut and error.start >= len(data) - 4):
            return _make_bad(data, origin, f"the line is not UTF-8: {error}")
        message = data.decode(errors="replace")
    line = parse(message, origin)
    line.size, line.cut = len(data) + 200, cut
    return line


def _make_bad(data: bytes, origin: LineOrigin, error: str) -> NetworkLine:
    return NetworkLine("", origin, error=error, raw=data[:_SHOWN], size=_SHOWN + 200)


def clean_text(sent: str) -> str:
    """The text with ? for what UTF-8 can't hold: halves of surrogate pairs, as JSON's escapes and HTTP's headers may give."""
    return sent if sent.isascii() else sent.encode("utf-8", "replace").decode()


def plain_line(message: str, origin: LineOrigin) -> NetworkLine:
    """The text as it is."""
    return NetworkLine(message, origin)
