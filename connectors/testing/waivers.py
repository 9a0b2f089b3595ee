"""Checks that connectors of this project can't pass, with the reason. The table may only shrink; unused waivers fail."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Connector (its entry-point name) -> check -> reason.
WAIVERS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "file": {"survives_a_schema_change": "lines of text have one schema, whatever is in them"},
        "logs": {"survives_a_schema_change": "the schema is that of the rules and does not change while a task runs"},
        "datagen": {
            "survives_a_schema_change": "the schema is the configuration's and does not change while a task runs",
            "survives_an_outage_of_its_source": "there is no source that could be away",
        },
    }
)
