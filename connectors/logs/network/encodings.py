"""Bodies of HTTP requests as ``Content-Encoding`` says. No I/O."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from connectors.logs.network.otlp import RequestInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

_GZIP: Final = frozenset({"gzip", "x-gzip"})
_PLAIN: Final = frozenset({"", "identity"})
#: ``wbits`` of zlib.
_GZIP_BITS, _ZLIB_BITS, _RAW_BITS = 31, 15, -15
#: The low bits of the first byte of a zlib stream; some senders leave its head out.
_ZLIB_METHOD: Final = 8
#: The most bytes that are given at one time.
_LARGEST: Final = 64 * 1024


class BodyDecoder:
    """Decompresses one body.

    Args:
        encoding: the header's value.

    Raises:
        RequestInvalid: bodies of this encoding can't be read.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower()
        if self._encoding not in {"deflate", *_GZIP, *_PLAIN}:
            raise RequestInvalid(
                f"bodies with Content-Encoding: {self._encoding} can't be read; send them with gzip or deflate, or as they are"
            )
        self._inflate: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take some more bytes.

        Raises:
            RequestInvalid: they are not of the encoding.
        """
        if self._encoding in _PLAIN:
            yield data
            return
        has_more = bool(data)
        while has_more:
            inflate = self._inflate
            # Members of gzip may follow each other.
            if inflate is None or (inflate.eof and self._encoding in _GZIP):
                inflate = self._inflate = zlib.decompressobj(self._choose_bits(data))
            try:
                part = inflate.decompress(data, _LARGEST)
            except zlib.error as error:
                raise RequestInvalid(f"the body is not what Content-Encoding says: {error}") from error
            data = inflate.unconsumed_tail or inflate.unused_data
            if data and inflate.eof and self._encoding not in _GZIP:
                raise RequestInvalid("the body is not what Content-Encoding says: there is more behind its end")
            has_more = bool(data) or (len(part) == _LARGEST and not inflate.eof)
            if part:
                yield part

    def finish(self) -> None:
        """The body has ended.

        Raises:
            RequestInvalid: its end is missing.
        """
        if self._inflate is not None and not self._inflate.eof:
            raise RequestInvalid("the body is not what Content-Encoding says: its end is missing")

    def _choose_bits(self, data: bytes) -> int:
        if self._encoding in _GZIP:
            return _GZIP_BITS
        return _ZLIB_BITS if data[0] & 15 == _ZLIB_METHOD else _RAW_BITS
