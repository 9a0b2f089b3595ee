"""Expressions in options: compiled, or refused with the option's name."""

from __future__ import annotations

from connectors.linear_regex import Pattern, PatternInvalid, compile_pattern
from connectors.logs.rules.errors import OperatorOptionInvalid


def make_pattern(option: str, source: str) -> Pattern:
    """The compiled expression of an option.

    Raises:
        OperatorOptionInvalid: it can't be used.
    """
    try:
        return compile_pattern(source)
    except PatternInvalid as error:
        raise OperatorOptionInvalid(option, str(error)) from None
