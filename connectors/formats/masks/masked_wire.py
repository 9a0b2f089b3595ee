"""The fast path (``connectors.wire``) of a table whose records are masked: values are masked before they are encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectors.formats import partition_update
from connectors.formats.masks.update_masks import identity_of
from connectors.schema import Schema, Type
from connectors.wire import Encoding, Fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.api import Header
    from connectors.formats.masks.masking import Mask
    from connectors.formats.masks.record_masks import Path, RecordMasker
    from connectors.wire import RowForm, RowWriter, Wire


class MaskedWire:
    """See ``Wire``: makes writers whose forms mask what they are given.

    Args:
        wire: of the task.
        masker: masks records of the table.
    """

    def __init__(self, wire: Wire, masker: RecordMasker) -> None:
        self._wire = wire
        self._masker = masker

    async def writer(
        self,
        topic: str,
        key: Encoding | Schema | None,
        value: Encoding,
        headers: Sequence[Header] = (),
        *,
        shares: bool = False,
    ) -> RowWriter | None:
        """See ``Wire``: None also for masks that look at other columns."""
        key_masks: dict[Path, Mask] = {}
        if isinstance(key, Encoding):
            schema, key_masks = self._masker.members(key.schema, topic, in_key=True)
            key = Encoding(schema, key.shape)
        schema, masks = self._masker.members(value.schema, topic)
        if any(mask.convert_row is not None for mask in (*key_masks.values(), *masks.values())):
            return None
        shape = dict(value.shape)
        if schema.type is Type.STRUCT and schema.parameter("form") == partition_update.FORM:
            source: Any = shape["source"]
            shape["source"] = {**source, "schema": Fixed(identity_of(schema))}
        writer = await self._wire.writer(topic, key, Encoding(schema, shape), headers, shares=shares)
        if writer is not None:
            writer.value = MaskedForm(writer.value, masks, "value")
            if writer.key is not None and key_masks:
                writer.key = MaskedForm(writer.key, key_masks, "key")
        return writer


class MaskedForm:
    """A ``RowForm`` that masks members.

    Args:
        form: of what is masked.
        masks: by path of the member, none of which looks at other members.
        stem: begins all names.
    """

    def __init__(self, form: RowForm, masks: Mapping[Path, Mask], stem: str) -> None:
        self._form = form
        self._functions = {path: _function(mask) for path, mask in masks.items() if mask.convert is not None}
        self._stem = stem
        self.names = form.names
        self.constants: Callable[..., tuple[Any, ...]] = form.constants
        self.events = form.events
        self.unpack = form.unpack

    def unscaled(self, path: Path) -> bool:
        """See ``RowForm``: masks take decimals as records have them."""
        return path not in self._functions and self._form.unscaled(path)

    def leaf(self, path: Path, name: str, *, nullable: bool = True, checked: bool = False) -> str:
        """See ``RowForm``."""
        function = self._functions.get(path)
        if function is None:
            return self._form.leaf(path, name, nullable=nullable, checked=checked)
        bound = f"{self._stem}_mask{len(self.names)}"
        self.names[bound] = function
        return self._form.leaf(path, f"{bound}({name})", checked=True)

    def build(self, path: Path, members: Mapping[str, str]) -> str:
        """See ``RowForm``."""
        return self._form.build(path, members)

    def array(self, path: Path, elements: Sequence[str]) -> str:
        """See ``RowForm``."""
        return self._form.array(path, elements)

    def encode(self, rows: list[Any]) -> list[bytes]:
        """See ``RowForm``."""
        return self._form.encode(rows)


def _function(mask: Mask) -> Callable[[Any], Any]:
    convert = mask.convert
    if convert is None:
        raise AssertionError("only masks of one value are here")
    return convert if mask.nulls else lambda value: None if value is None else convert(value)
