"""A transform that needs clash 2: it puts what the library says into a header."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import clash

from connectors.api import Header
from connectors.options import ConfigDef
from connectors.schema import STRING
from worker.transforms.base import RecordFunction, Transform, copy_record

if TYPE_CHECKING:
    from connectors.api import SourceRecord


class ClashB(Transform):
    """Says which library it has."""

    version: ClassVar[str] = "1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef()

    def compile(self) -> RecordFunction:
        """The function that is called for each record."""
        header = Header("library", clash.new(), STRING)

        def apply(record: SourceRecord) -> SourceRecord:
            result = copy_record(record)
            result.headers = (*record.headers, header)
            return result

        return apply
