"""Values that their columns can't hold: what is said of them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from connectors.errors import Skippable

#: Characters of a value that are shown.
_SHOWN: Final = 100


class ColumnMisfit(Skippable):
    """A value that its column can't hold.

    Attributes:
        hidden: the error without the value and the cause, which may show it: for jobs that mask columns.
    """

    def __init__(self, table: str, column: str, kind: str, value: Any, cause: BaseException, fix: str) -> None:
        where = f"Table {table}, column {column}"
        super().__init__(f"{where}: the value {_show_value(value)} does not fit the type {kind} ({cause}). {fix}")
        self.hidden = Skippable(
            f"{where}: the value does not fit the type {kind}; it is not shown, because columns are masked. {fix}"
        )


def _show_value(value: Any) -> str:
    json_text = msgspec.json.encode(value).decode()
    return json_text if len(json_text) <= _SHOWN else json_text[: _SHOWN - 1] + "…"
