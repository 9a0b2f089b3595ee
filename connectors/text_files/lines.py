r"""Bytes to lines, with the position after each line: pure, no I/O.

A line ends with ``\n``, ``\r`` or ``\r\n``, as for Kafka Connect's reader; a ``\r`` that is the last byte so far waits for the
next byte. Whole blocks are decoded and split at once; a block is looked at line by line only where something in it is
unusual (malformed bytes, a line over the limit).
"""

from __future__ import annotations

import codecs
import re
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Bytes in one code unit of the encodings in which a line feed is not the single byte 0x0A.
_WIDE: Final = {"utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}
_BYTE_ORDER_MARKS: Final = {
    "utf-16": (codecs.BOM_UTF16_LE, "utf-16-le", codecs.BOM_UTF16_BE, "utf-16-be"),
    "utf-32": (codecs.BOM_UTF32_LE, "utf-32-le", codecs.BOM_UTF32_BE, "utf-32-be"),
}


class BadLine(NamedTuple):
    """A line that could not be made text.

    Attributes:
        end: position just after the line's terminator.
        raw: its bytes without the terminator, at most as many as a line may have.
        error: what is wrong with it.
    """

    end: int
    raw: bytes
    error: str


class TextLines(NamedTuple):
    """Lines in order.

    Attributes:
        strings: the lines without their terminators.
        ends: for each, the position just after its terminator.
        bad: lines that are not among ``strings``.
    """

    strings: list[str]
    ends: Sequence[int]
    bad: Sequence[BadLine] = ()


_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)")
NOTHING: Final = TextLines([], ())


def encoding_problem(name: str) -> str | None:
    """Why lines can't be read in this encoding, or None if they can."""
    try:
        canonical = codecs.lookup(name).name
        if canonical in _WIDE or canonical in _BYTE_ORDER_MARKS:
            return None
        # An escape can decode to a line end that is not in the bytes.
        probe = b"\n".join(bytes([value]) for value in range(0x21, 0x7F)) + b"a" * 100 + b"\\u0041\r\n"
        decoded = probe.decode(canonical)
        b"\xff".decode(canonical, "replace")
        return (
            None
            if decoded == probe.decode("ascii") and "\n\r".encode(canonical).endswith(b"\n\r")
            else "Lines are looked for at the bytes of ASCII line ends, which this encoding does not use"
        )
    except (LookupError, ValueError, AttributeError):
        return "Unknown text encoding, or one in which ASCII characters are not single bytes; name a Python codec like utf-8"


def byte_order(name: str, head: bytes) -> str:
    """The encoding with its byte order, from the first bytes of the file; little endian where there is no mark."""
    canonical = codecs.lookup(name).name
    variants = _BYTE_ORDER_MARKS.get(canonical)
    if variants is None:
        return canonical
    _, little, big_mark, big = variants
    return big if head.startswith(big_mark) else little


def unit_size(name: str) -> int:
    """Bytes of one code unit of an encoding."""
    canonical = codecs.lookup(name).name
    variants = _BYTE_ORDER_MARKS.get(canonical)
    return _WIDE.get(canonical if variants is None else variants[1], 1)


def mark_length(name: str, head: bytes) -> int:
    """How many bytes of ``head`` are a byte order mark that ``name`` leaves out of the text."""
    return next((len(prefix) for prefix in _skipped_marks(name) if head.startswith(prefix)), 0)


def is_part_of_mark(name: str, head: bytes) -> bool:
    """Whether ``head``, all that there is of a file so far, may become a byte order mark that ``name`` leaves out."""
    return any(len(head) < len(prefix) and prefix.startswith(head) for prefix in _skipped_marks(name))


def _skipped_marks(name: str) -> tuple[bytes, ...]:
    canonical = codecs.lookup(name).name
    if canonical == "utf-8-sig":
        return (codecs.BOM_UTF8,)
    variants = _BYTE_ORDER_MARKS.get(canonical)
    return () if variants is None else (variants[0], variants[2])


class LineSplitter:
    """Cuts a growing stream of bytes into lines; holds at most one unfinished line of at most ``limit`` bytes and a block.

    Args:
        encoding: a codec name that ``encoding_problem`` accepts, its byte order resolved by ``byte_order``.
        position: of the first byte that will be fed.
        limit: the longest line, in bytes without its terminator.
        replace: make malformed bytes U+FFFD (as Kafka Connect does) instead of reporting the line.
        cut: cut a line over the limit into several lines instead of reporting it.
    """

    __slots__ = (
        "_codec",
        "_cut",
        "_decode_incrementally",
        "_discarded",
        "_discarding",
        "_limit",
        "_parts",
        "_pending_bytes",
        "_replace",
        "_start",
        "_unit",
    )

    def __init__(self, encoding: str, *, position: int = 0, limit: int, replace: bool, cut: bool) -> None:
        canonical = codecs.lookup(encoding).name
        self._codec = "utf-8" if canonical == "utf-8-sig" else canonical
        self._decode_incrementally: Callable[[str], codecs.IncrementalDecoder] = codecs.getincrementaldecoder(
            self._codec
        )
        self._unit = _WIDE.get(self._codec, 1)
        self._limit = max(limit, self._unit)
        self._replace = replace
        self._cut = cut
        self._parts: list[bytes] = []
        self._pending_bytes = 0
        self._start = position
        #: The beginning of an unfinished line that is too long, and how many of its bytes were left out since.
        self._discarding: bytes | None = None
        self._discarded = 0

    @property
    def position(self) -> int:
        """Just after the last complete line."""
        return self._start - self._discarded

    def feed(self, block: bytes) -> TextLines:
        """The lines that ``block`` completes."""
        parts = self._parts
        if self._unit == 1:
            if parts and parts[-1].endswith(b"\r"):
                block = b"".join([*parts, block])
                parts.clear()
                self._pending_bytes = 0
            stop = block.rfind(b"\n") + 1
            returns = b"\r" in block
            if returns:
                stop = max(stop, block.rfind(b"\r", 0, len(block) - 1) + 1)
        else:
            # The last whole units may begin a terminator; no terminator is before them: a long line is joined once.
            keep = min(self._pending_bytes, self._pending_bytes % self._unit + 2 * self._unit)
            if parts and (keep > len(parts[-1]) or self._wide_stop(parts[-1][len(parts[-1]) - keep :] + block)):
                block = b"".join([*parts, block])
                parts.clear()
                self._pending_bytes = 0
            returns = True
            stop = 0 if parts else self._wide_stop(block)
        if not stop:
            parts.append(block)
            self._pending_bytes += len(block)
            return self._take_overflow() if self._pending_bytes > self._limit + 2 * self._unit else NOTHING
        body = block[:stop]
        if parts:
            body = b"".join([*parts, body])
            parts.clear()
        if self._discarding is not None or (len(body) > self._limit and self._has_long_line(body)):
            result = self._one_by_one(body)
        else:
            result = self._all_at_once(body, returns=returns)
        self._start += len(body)
        remainder = block[stop:]
        self._pending_bytes = len(remainder)
        if remainder:
            parts.append(remainder)
            if self._pending_bytes > self._limit + 2 * self._unit:
                return join_lines(result, self._take_overflow())
        return result

    def finish(self) -> TextLines:
        """The unfinished line as one that ended, because nothing will follow it."""
        data = b"".join(self._parts)
        self._parts.clear()
        self._pending_bytes = 0
        if not data and self._discarding is None:
            return NOTHING
        result = self._one_by_one(data)
        self._start += len(data)
        return result

    def _all_at_once(self, body: bytes, *, returns: bool) -> TextLines:
        try:
            decoded = body.decode(self._codec)
        except UnicodeDecodeError:
            return self._one_by_one(body)
        if self._unit > 1:
            lines = _LINE.findall(decoded)
            sizes = (len(line.encode(self._codec)) for line in lines)
            return TextLines([line.rstrip("\r\n") for line in lines], list(accumulate(sizes, initial=self._start))[1:])
        if returns:
            strings = decoded.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            del strings[-1]
            return TextLines(
                strings, list(accumulate(map(len, body.splitlines(keepends=True)), initial=self._start))[1:]
            )
        strings = decoded.split("\n")
        del strings[-1]
        # As many characters as bytes: every character is one byte, so the text's lengths are the bytes' lengths.
        raw: Sequence[str | bytes] = strings if len(decoded) == len(body) else body[:-1].split(b"\n")
        end = self._start
        return TextLines(strings, [end := end + len(line) + 1 for line in raw])

    def _one_by_one(self, body: bytes) -> TextLines:
        strings: list[str] = []
        ends: list[int] = []
        bad: list[BadLine] = []
        start = self._start
        for line, size in self._raw_lines(body):
            end = start + size
            if self._discarding is not None:
                bad.append(BadLine(end, self._discarding, f"a line is longer than {self._limit} bytes"))
                self._discarding, self._discarded = None, 0
            elif len(line) > self._limit and not self._cut:
                bad.append(BadLine(end, line[: self._limit], f"a line is longer than {self._limit} bytes"))
            else:
                while len(line) > self._limit:
                    length = self._whole_characters(line)
                    start += length
                    strings.append(line[:length].decode(self._codec, "replace"))
                    ends.append(start)
                    line = line[length:]  # noqa: PLW2901 - the rest of the same line
                self._decode_one(line, end, strings, ends, bad)
            start = end
        return TextLines(strings, ends, bad)

    def _decode_one(self, line: bytes, end: int, strings: list[str], ends: list[int], bad: list[BadLine]) -> None:
        try:
            strings.append(line.decode(self._codec))
        except UnicodeDecodeError as error:
            if not self._replace:
                bad.append(
                    BadLine(end, line, f"a line is not {self._codec}: {error.reason} at byte {error.start} of the line")
                )
                return
            strings.append(line.decode(self._codec, "replace"))
        ends.append(end)

    def _has_long_line(self, body: bytes) -> bool:
        return self._unit > 1 or max(map(len, body.split(b"\n"))) > self._limit

    def _raw_lines(self, body: bytes) -> list[tuple[bytes, int]]:
        """Each line without its terminator, and its size with it."""
        if self._unit == 1:
            return [
                (line.rstrip(b"\r\n") if line.endswith((b"\n", b"\r")) else line, len(line))
                for line in body.splitlines(keepends=True)
            ]
        feed, carriage = "\n".encode(self._codec), "\r".encode(self._codec)
        unit = self._unit
        raw_lines: list[tuple[bytes, int]] = []
        start = at = 0
        size = len(body)
        while at + unit <= size:
            here = body[at : at + unit]
            at += unit
            if here in (feed, carriage):
                content = body[start : at - unit]
                if here == carriage and body[at : at + unit] == feed:
                    at += unit
                raw_lines.append((content, at - start))
                start = at
        if start < size:
            raw_lines.append((body[start:], size - start))
        return raw_lines

    def _wide_stop(self, data: bytes) -> int:
        """Just after the last complete line of ``data`` in code units of several bytes; 0 if no line is complete."""
        unit = self._unit
        stop = 0
        for terminator, room in (("\n".encode(self._codec), 0), ("\r".encode(self._codec), unit)):
            limit = len(data) - room
            at = data.rfind(terminator, 0, limit)
            while at >= 0 and at % unit:
                at = data.rfind(terminator, 0, at + unit - 1)
            # A carriage return counts only if the whole unit after it is there.
            if at >= 0 and (not room or at + 2 * unit <= len(data)):
                stop = max(stop, at + unit)
        return stop

    def _take_overflow(self) -> TextLines:
        """Take in an unfinished line that is over the limit already."""
        data = b"".join(self._parts)
        self._parts.clear()
        # The last code units stay: they may be the first half of a terminator.
        keep = 2 * self._unit
        if not self._cut:
            if self._discarding is None:
                self._discarding = data[: self._limit]
            # Whole code units: what follows is looked at from there on.
            skipped = (len(data) - keep) // self._unit * self._unit
            self._start += skipped
            self._discarded += skipped
            data = data[skipped:]
            self._parts.append(data)
            self._pending_bytes = len(data)
            return NOTHING
        strings: list[str] = []
        ends: list[int] = []
        while len(data) > self._limit + keep:
            length = self._whole_characters(data)
            self._start += length
            strings.append(data[:length].decode(self._codec, "replace"))
            ends.append(self._start)
            data = data[length:]
        self._parts.append(data)
        self._pending_bytes = len(data)
        return TextLines(strings, ends)

    def _whole_characters(self, data: bytes) -> int:
        """How many of the first ``limit`` bytes are whole characters; at least one byte."""
        decoder = self._decode_incrementally("replace")
        decoder.decode(data[: self._limit])
        return self._limit - len(decoder.getstate()[0]) or self._limit


def join_lines(first: TextLines, second: TextLines) -> TextLines:
    """The lines of both, in order."""
    return TextLines(first.strings + second.strings, [*first.ends, *second.ends], [*first.bad, *second.bad])
