"""MaskColumns: hides what columns hold, in change events, plain rows, keys, UMS messages and partition updates.

The rules are those of connectors' own ``mask.rules`` (``connectors.formats.masks.masking``), one per transform.
``connectors.formats.masks.record_masks`` applies them to each form.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from connectors.errors import ConfigInvalid, Fatal
from connectors.formats.masks.masking import Masks, make_rule
from connectors.formats.masks.options import RULE_KEYS
from connectors.formats.masks.record_masks import RecordMasker
from connectors.options import Config, ConfigDef
from worker import __version__
from worker.transforms.base import RecordFunction, Side, Transform

if TYPE_CHECKING:
    from connectors.api import SourceRecord


class MaskColumns(Transform):
    """Masks columns by one rule."""

    version: ClassVar[str] = __version__
    aliases: ClassVar[tuple[str, ...]] = ("io.millrace.transforms.MaskColumns",)
    sided: ClassVar[bool] = True
    # "type" is taken: it names the transform's class.
    config_def: ClassVar[ConfigDef] = ConfigDef(
        [
            replace(key, name="mask" if key.name == "type" else key.name, doc=key.doc.replace("type=", "mask="))
            for key in RULE_KEYS
        ]
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        options: dict[str, Any] = {**config.raw, **dict(config)}
        options["type"] = options.pop("mask")
        self._masks = Masks((make_rule(f"{options['type']}", options),))

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``; a column that the rule names and can't mask stops the task."""
        masker = RecordMasker(self._masks)
        mask = masker.mask_key if self.side is Side.KEY else masker.mask_value

        def change(record: SourceRecord) -> SourceRecord:
            try:
                return mask(record)
            except ConfigInvalid as error:
                raise Fatal(str(error)) from error

        return change
