"""Ranges of tokens of Murmur3Partitioner, and what is left of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Tokens are the numbers after the least one, up to and with the largest.
MIN_TOKEN: Final = -(1 << 63)
MAX_TOKEN: Final = (1 << 63) - 1


class TokenRange(NamedTuple):
    """Tokens after ``after`` up to and with ``upto``; not empty, never around the ring's end.

    ``resume`` says which rows of the first tokens of the range were read before: a paging state in hex, or the digest of the
    last row; "": none.
    """

    after: int
    upto: int
    resume: str = ""


def subtract_ranges(ranges: Iterable[TokenRange], others: Iterable[TokenRange]) -> list[TokenRange]:
    """``ranges`` without the tokens of ``others``, in their order."""
    result = list(ranges)
    for removed in others:
        kept: list[TokenRange] = []
        for part in result:
            if removed.upto <= part.after or part.upto <= removed.after:
                kept.append(part)
                continue
            if part.after < removed.after:
                kept.append(TokenRange(part.after, removed.after, part.resume))
            if removed.upto < part.upto:
                kept.append(TokenRange(removed.upto, part.upto))
        result = kept
    return result


def count_tokens(ranges: Iterable[TokenRange]) -> int:
    """How many tokens they are."""
    return sum(part.upto - part.after for part in ranges)
