"""The meaning of ClickHouse's errors for a request and its rows. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.clickhouse.config import PREFIX

if TYPE_CHECKING:
    from spark_jobs.sinks.shared.http_requests import HttpAnswer

#: Codes of ``src/Common/ErrorCodes.cpp``. Passing: timeouts, limits of load and memory, networks, read-only replicas, Keeper;
#: and a table or column that is gone, which the driver creates again.
_PASSING: Final = frozenset(
    {
        8,
        16,
        60,
        159,
        164,
        201,
        202,
        203,
        209,
        210,
        225,
        236,
        241,
        242,
        243,
        252,
        279,
        285,
        286,
        319,
        341,
        394,
        439,
        473,
        999,
    }
)
#: A value is refused: constraints, ranges, nulls, enums, strings that are no UUID.
DATA: Final = frozenset({6, 26, 27, 36, 38, 41, 49, 69, 70, 72, 117, 131, 321, 349, 376, 407, 441, 469, 675, 676, 691})
_LOGIN: Final = frozenset({192, 193, 194, 516})
_RIGHT: Final = 497
_CODE: Final = re.compile(rb"Code: (\d+)")
_PASSING_STATUS: Final = frozenset({408, 429, 502, 503, 504})
_SHOWN: Final = 500


def code_of(answer: HttpAnswer) -> int:
    """ClickHouse's code of an error; 0 where there is no error, -1 where it has no code (a proxy's answer)."""
    header = answer.headers.get("x-clickhouse-exception-code", "")
    if header.isdecimal():
        return int(header)
    if answer.status == 200:
        return 0
    match = _CODE.search(answer.content)
    return int(match[1]) if match else -1


def words_of(answer: HttpAnswer, where: str) -> str:
    """An answer in words."""
    message = " ".join(answer.content[:_SHOWN].decode(errors="replace").split())
    return f"{where} answers {answer.status}: {message}"


def refuses_login(answer: HttpAnswer) -> bool:
    """Whether the login is not known."""
    return code_of(answer) in _LOGIN or answer.status == 401


def error_of(answer: HttpAnswer, where: str) -> Fatal | Retriable:
    """The error for an answer that reports one."""
    message, code = words_of(answer, where), code_of(answer)
    if code in _PASSING or answer.status in _PASSING_STATUS:
        return Retriable(message)
    if refuses_login(answer):
        return Fatal(f"{message}. Correct {PREFIX}user and {PREFIX}password")
    if code == _RIGHT:
        return Fatal(f"{message}. Give the login ({PREFIX}user) the right to do that")
    return Fatal(message)
