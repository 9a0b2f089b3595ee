"""The parser of ``re``: no public module parses expressions. Some versions of mypy know these two modules."""

from __future__ import annotations

from re import _constants as ops  # type: ignore[attr-defined, unused-ignore]
from re import _parser  # type: ignore[attr-defined, unused-ignore]
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ops", "parse_regex"]

#: The tree of an expression with its flags; raises ``re.error``.
parse_regex: Final[Callable[..., Any]] = _parser.parse
