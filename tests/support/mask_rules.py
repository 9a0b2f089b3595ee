"""Rules that mask any columns of a table, for tests of both paths."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from connectors.formats.masks.masking import Masks, parse_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

_TYPES: Final[Sequence[dict[str, str]]] = (
    {"type": "default"},
    {"type": "replace", "replacement": "7"},
    {"type": "chars", "length": "5"},
    {"type": "truncate", "length": "3"},
    {"type": "regex", "regex": ".+", "replacement": "gone"},
    {"type": "hash"},
    {"type": "murmur"},
    {"type": "murmur32", "nulls": "mask"},
)


def mask_rules(columns: Sequence[str], *, salt: str = "") -> st.SearchStrategy[Masks]:
    """A rule for some of ``columns`` of ``ks.t``, with any mask; ``salt`` is for those that look at another column."""
    salted = [{"type": "hash", "salt.field": salt}] if salt.isidentifier() else []

    def rule(names: set[str], options: dict[str, Any]) -> Masks:
        # What has a meaning in patterns and lists of them is any character.
        patterns = [re.sub(r"[^A-Za-z0-9_]", ".", name) for name in sorted(names)]
        pattern = rf"ks\.t\.({'|'.join(patterns)})"
        members = {f"mask.m.{name}": value for name, value in options.items()}
        return parse_rules({"mask.rules": "m", "mask.m.columns": pattern, **members})

    return st.builds(rule, st.sets(st.sampled_from(columns), min_size=1), st.sampled_from([*_TYPES, *salted]))
