"""A converter that writes structs as lines of values with bars between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from connectors.errors import Skippable
from connectors.options import ConfigDef, ConfigKey, ConfigType, non_empty
from connectors.schema import OPTIONAL_STRING, Schema, Type
from worker.converters.base import TYPE_OPTION, Converter, Encode, EncoderCache

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = ConfigDef(
    [
        TYPE_OPTION,
        ConfigKey(
            name="separator",
            type=ConfigType.STRING,
            default="|",
            validator=non_empty,
            doc="What stands between values.",
        ),
    ]
)


class BarConverter(Converter):
    """``a|b|c`` for a struct of three fields."""

    version: ClassVar[str] = "1.2.3"
    config_def: ClassVar[ConfigDef] = OPTIONS

    def __init__(self, config: Mapping[str, str], *, is_key: bool) -> None:
        del is_key
        self._separator = OPTIONS.parse(config)["separator"]
        self._encoders = EncoderCache(100)

    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        """One function for each schema."""
        return self._encoders.get(topic, schema) or self._encoders.put(topic, schema, self._compile_encoder(schema))

    def _compile_encoder(self, schema: Schema | None) -> Encode:
        if schema is None or schema.type is not Type.STRUCT:

            def refuse(value: Any) -> bytes | None:
                if value is None:
                    return None
                raise Skippable(
                    f"BarConverter writes structs only, not a {type(value).__name__}. Use another converter."
                )

            return refuse
        names = [field.name for field in schema.fields]
        separator: str = self._separator

        def encode(value: Any) -> bytes | None:
            if value is None:
                return None
            if not isinstance(value, dict):
                raise Skippable(f"BarConverter writes structs only, not a {type(value).__name__}.")
            return separator.join(str(value.get(name)) for name in names).encode()

        return encode

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """Return the line as a string; the line does not say the value's type."""
        del topic
        return OPTIONAL_STRING, None if data is None else data.decode("utf-8", "replace")
