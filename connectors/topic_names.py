"""Checks names of topics as Kafka does (its own ``Topic.validate``)."""

from __future__ import annotations

import re
from typing import Any, Final

from connectors.options import invalid

#: Characters.
LONGEST: Final = 249
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")


def find_problem(topic: object) -> str | None:
    """Why Kafka can't have a topic of this name; None if it can."""
    if not isinstance(topic, str) or not topic:
        return "it is empty"
    if topic in {".", ".."}:
        return "'.' and '..' are not allowed"
    if len(topic) > LONGEST:
        return f"it is {len(topic)} characters long, and the longest allowed has {LONGEST}"
    if _TOPIC.fullmatch(topic) is None:
        return f"it contains {_TOPIC.sub('', topic)[0]!r}, and only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


def topic_name(name: str, value: Any) -> str | None:
    """A validator of options: the name of a topic, or null."""
    reason = None if value is None else find_problem(value)
    return None if reason is None else invalid(name, value, f"Invalid topic name: {reason}")


def topic_name_or_empty(name: str, value: Any) -> str | None:
    """The same where an empty text stands for no topic."""
    return topic_name(name, value or None)
