"""Lists of regular expressions that name the columns of a mask. Pure."""

from __future__ import annotations

import re

from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java
from connectors.options import invalid


def split_patterns(source: str) -> list[str]:
    r"""A list of regular expressions as Debezium writes it: separated by commas, ``\,`` is a comma."""
    parts = re.findall(r"(?:[^,\\]|\\.)+", source, re.DOTALL)
    return [part.strip().replace("\\,", ",") for part in parts if part.strip()]


def column_patterns(option: str, source: str) -> tuple[re.Pattern[str], ...]:
    """The expressions of a list, which match whole names in any case.

    Raises:
        ConfigInvalid: one is wrong, or the list is empty.
    """
    try:
        patterns = tuple(
            re.compile(pattern.pattern, pattern.flags | re.IGNORECASE)
            for pattern in (compile_java(part) for part in split_patterns(source))
        )
    except ConfigInvalid as error:
        raise ConfigInvalid(invalid(option, source, str(error))) from None
    if not patterns:
        raise ConfigInvalid(invalid(option, source, "name the columns: regular expressions on database.table.column"))
    return patterns
