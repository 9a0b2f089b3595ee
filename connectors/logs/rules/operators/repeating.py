"""Operators that make several records of one, or fewer of several: flattenUms, flattenJsonArray, deduplicate."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from connectors.logs.rules.operators.paths import parse_path, read_document
from connectors.logs.rules.options import Operator
from connectors.logs.rules.plans import Plan, SplitRecord, UniqueRecords
from connectors.logs.rules.records import LINE, FieldName, LineOrigin, Record, StepFailed, name_of, read_field

_NAMESPACE: Final = "ums_namespace_"


class FlattenJsonArray(Operator, frozen=True):
    """Each element of a JSON array becomes a record: members of objects are fields, other values go to the field."""

    path: Annotated[str, Meta(description="Where the array is.")] = "$"
    field: Annotated[FieldName, Meta(description="The field that holds the document.")] = LINE

    def make_plan(self) -> Plan:
        """As in the base class."""
        path = parse_path("path", self.path)

        def split(record: Record, origin: LineOrigin) -> list[Record]:
            elements = path.read(read_document(read_field(record, self.field, origin)))
            if not isinstance(elements, list):
                raise StepFailed(f"there is no array at {self.path}")
            source = name_of(record, self.field)
            others = {name: value for name, value in record.items() if name != source}
            return [
                {**others, **element} if isinstance(element, dict) else {**others, source: element}
                for element in elements
            ]

        return SplitRecord(self.field, split)


class FlattenUms(Operator, frozen=True):
    """A UMS document becomes a record for each row, with the namespace in `ums_namespace_`."""

    namespace: Annotated[
        str | None,
        Meta(description="Only rows of this namespace, with `*` for any part: `mysql.shop.shop.orders.*.*.*`."),
    ] = None
    field: Annotated[FieldName, Meta(description="The field that holds the document.")] = LINE

    def make_plan(self) -> Plan:
        """As in the base class."""

        def split(record: Record, origin: LineOrigin) -> list[Record]:
            document = read_document(read_field(record, self.field, origin))
            source = name_of(record, self.field)
            others = {name: value for name, value in record.items() if name != source}
            namespace, rows = _read_ums(document)
            if self.namespace is not None and not _matches(namespace, self.namespace):
                return []
            return [{**others, _NAMESPACE: namespace, **row} for row in rows]

        return SplitRecord(self.field, split)


def _read_ums(document: Any) -> tuple[str, list[Record]]:
    try:
        schema = document["schema"]
        names = [field["name"] for field in schema["fields"]]
        namespace = schema["namespace"]
        rows = [row["tuple"] for row in document.get("payload") or []]
    except (KeyError, TypeError, AttributeError):
        raise StepFailed("this is no UMS document: it needs schema.namespace, schema.fields and payload") from None
    if not all(isinstance(name, str) for name in names):
        raise StepFailed("a field of the UMS document has a name that is no string")
    if not isinstance(namespace, str) or not all(isinstance(row, list) and len(row) == len(names) for row in rows):
        raise StepFailed(f"a row of the UMS document does not have {len(names)} values")
    return namespace, [dict(zip(names, row, strict=True)) for row in rows]


def _matches(namespace: str, pattern: str) -> bool:
    parts, expected = namespace.split("."), pattern.split(".")
    return len(parts) == len(expected) and all(w in ("*", part) for part, w in zip(parts, expected, strict=True))


class Deduplicate(Operator, frozen=True):
    """Of equal records that one line makes, only the first stays. Lines are never compared with other lines."""

    fields: Annotated[list[FieldName], Meta(description="The fields to compare; none for all of them.")] = []  # noqa: RUF012 - msgspec copies it

    def make_plan(self) -> Plan:
        """As in the base class."""
        return UniqueRecords(tuple(self.fields))
