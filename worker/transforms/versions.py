"""Maven version ranges, as ``plugin.version`` properties use them (KIP-891): ``1.2``, ``[1.2,2.0)``, ``(,3],[4,)``.

A version without brackets must be met exactly, as in Kafka Connect.
"""
from __future__ import annotations

import re
from typing import Final

from connectors.errors import ConfigInvalid

_RANGE: Final = re.compile(r"([\[(])([^\[\]()]*)([\])])\s*(?:,\s*(?=[\[(])|\Z)")
_PART: Final = re.compile(r"\d+|[a-zA-Z]+")
# Maven's order of qualifiers; the release itself is the empty one, and words it doesn't know come after.
_QUALIFIERS: Final = {"alpha": -5, "a": -5, "beta": -4, "b": -4, "milestone": -3, "m": -3, "rc": -2, "cr": -2, "snapshot": -1,
                      "": 0, "ga": 0, "final": 0, "release": 0, "sp": 1}


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """A key by which versions sort as Maven sorts them."""
    parts: list[tuple[int, int, str]] = []
    for part in _PART.findall(version):
        if part.isdigit():
            parts.append((1, int(part), ""))
        else:
            while parts and parts[-1] == (1, 0, ""):
                parts.pop()  # 1.0-rc1 is a candidate of 1 as well
            word = part.lower()
            rank = _QUALIFIERS.get(word, 2)
            parts.append((0, rank, word if rank == 2 else ""))
    while parts and parts[-1] in ((1, 0, ""), (0, 0, "")):
        parts.pop()
    # The end of a version lies between its pre-releases and anything that goes beyond it.
    return (*parts, (0, 0, ""))


def version_matches(wanted: str | None, version: str) -> bool:
    """Whether ``version`` lies in the range ``wanted``; None and ``latest`` take any.

    Raises:
        ConfigInvalid: ``wanted`` is no version range.
    """
    if wanted is None or wanted.strip() == "latest":
        return True
    text = wanted.strip()
    if not text.startswith(("[", "(")):
        text = f"[{text}]"
    key = version_key(version)
    matched = False
    at = 0
    while at < len(text):
        part = _RANGE.match(text, at)
        if part is None:
            raise ConfigInvalid(f"{wanted!r} is no version range: write 1.2, [1.2,2.0) or (,3]")
        at = part.end()
        opening, inside, closing = part[1], part[2], part[3]
        low, comma, high = (item.strip() for item in inside.partition(","))
        if not comma:
            if opening != "[" or closing != "]" or not low:
                raise ConfigInvalid(f"{wanted!r} is no version range: a single version stands in square brackets")
            matched |= key == version_key(low)
            continue
        above = not low or (key >= version_key(low) if opening == "[" else key > version_key(low))
        below = not high or (key <= version_key(high) if closing == "]" else key < version_key(high))
        matched |= above and below
    return matched
