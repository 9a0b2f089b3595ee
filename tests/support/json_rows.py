"""Values of rows as the sinks' JSON has them, for the conformance kit: read it with `parse_float=Decimal`."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_jobs.contract import Column


def stored_in_json(column: Column, value: Any) -> Any:
    """The value as it is read back."""
    match column.type.typeName():
        case "binary":
            return base64.b64encode(value).decode()
        case "float" | "double":
            return Decimal(json.dumps(value))
        case "date" | "timestamp_ntz":
            return value.isoformat()
        case "timestamp":
            return value.isoformat().replace("+00:00", "Z")
    return value
