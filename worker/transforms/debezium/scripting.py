"""Filter and ContentBasedRouter of Debezium: an expression decides which records stay, or which topic they go to.

Source: io.debezium.transforms.Filter and ContentBasedRouter of Debezium 3.5. Expressions are written in CEL
(``language=cel``); of Groovy (``jsr223.groovy``) that part is taken which means the same here. Everything else is refused at
validation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from connectors.errors import ConfigInvalid, Skippable
from connectors.options import Config, ConfigDef, ConfigKey, ConfigType, Importance, Width
from worker.transforms.base import RecordFunction, Side, Transform, copy_record
from worker.transforms.debezium.events import DEBEZIUM_VERSION, validate_enumerated
from worker.transforms.expressions.cel import compile_cel
from worker.transforms.expressions.groovy import compile_groovy
from worker.transforms.expressions.kinds import kind_of
from worker.transforms.expressions.parser import parse_expression
from worker.transforms.expressions.syntax import ExpressionInvalid
from worker.transforms.java.regex import compile_java, java_expression
from worker.transforms.predicates import TOPIC_CACHE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.api import SourceRecord

    _Evaluate = Callable[[SourceRecord], Any]
    _Outcome = Callable[[SourceRecord], SourceRecord | None]

_CEL: Final = "cel"
_GROOVY: Final = "jsr223.groovy"


def _option_keys(expression: ConfigKey) -> ConfigDef:
    return ConfigDef(
        [
            ConfigKey(
                name="topic.regex",
                type=ConfigType.STRING,
                default=None,
                importance=Importance.LOW,
                width=Width.LONG,
                display_name="Topic regex",
                validator=java_expression,
                doc="A regular expression in Java's syntax. Records whose topic it doesn't match as a whole pass unchanged.",
                example=r"inventory\..*",
            ),
            ConfigKey(
                name="language",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                width=Width.MEDIUM,
                display_name="Expression language",
                example=_CEL,
                doc=f"{_CEL}, or {_GROOVY} for expressions that mean the same here as in Groovy; see "
                "docs/expressions.md.",
            ),
            expression,
            ConfigKey(
                name="null.handling.mode",
                type=ConfigType.STRING,
                default="keep",
                importance=Importance.LOW,
                width=Width.SHORT,
                display_name="Handle null records",
                validator=validate_enumerated("keep", "drop", "evaluate"),
                doc="What becomes of records whose value is null: they are kept, dropped, or evaluated like the others.",
            ),
        ]
    )


def _compile_expression(
    option: str, language: str, expression: str, allowed: tuple[str, ...], expected: str
) -> _Evaluate:
    """The function for an expression.

    Raises:
        ConfigInvalid: it, its language or what it gives is wrong.
    """
    name = language.strip()
    if name not in (_CEL, _GROOVY):
        raise ConfigInvalid(f"language: {language!r} can't be run here; write {_language_hint(expression)}")
    try:
        tree = parse_expression(expression, groovy=name == _GROOVY)
        evaluate = compile_cel(expression, tree) if name == _CEL else compile_groovy(expression, tree)
    except ExpressionInvalid as error:
        raise ConfigInvalid(f"{option}: {error}") from None
    kind = kind_of(tree)
    if kind is not None and kind not in allowed:
        raise ConfigInvalid(
            f"{option}: {ExpressionInvalid(expression, tree.start, f'the expression must give {expected}')}"
        )
    return evaluate


def _language_hint(expression: str) -> str:
    """Return a hint for users of another language."""
    try:
        compile_cel(expression)
    except ExpressionInvalid as error:
        return f"language={_CEL}, and the expression in CEL; as it is, it is not valid CEL: {error}"
    return f"language={_CEL}: the expression is valid CEL as it is (null and missing fields are errors there)"


def _guard_decision(config: Config, decide: _Outcome) -> RecordFunction:
    """Return ``decide`` behind the checks that precede it: the topic's expression, and the mode for null values."""
    pattern = compile_java(config["topic.regex"]) if config["topic.regex"] else None
    mode = config["null.handling.mode"].strip().lower()
    cache: dict[str, bool] = {}

    def concerns(topic: str) -> bool:
        if len(cache) >= TOPIC_CACHE_SIZE:
            cache.clear()
        is_match = cache[topic] = pattern is None or pattern.fullmatch(topic) is not None
        return is_match

    def apply(record: SourceRecord) -> SourceRecord | None:
        if pattern is not None:
            cached = cache.get(record.topic)
            if not (concerns(record.topic) if cached is None else cached):
                return record
        if record.value is None and mode != "evaluate":
            return record if mode == "keep" else None
        return decide(record)

    return apply


def _wrong_kind(expression: str, value: Any, noun: str) -> Skippable:
    return Skippable(
        f"Error while evaluating expression '{expression}': the value returned by the expression is not a {noun} but "
        f"{'null' if value is None else f'a {type(value).__name__}'}"
    )


class ExpressionFilter(Transform):
    """Keeps the records for which a condition is true."""

    version: ClassVar[str] = DEBEZIUM_VERSION
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.transforms.Filter",)
    config_def: ClassVar[ConfigDef] = _option_keys(
        ConfigKey(
            name="condition",
            type=ConfigType.STRING,
            importance=Importance.HIGH,
            width=Width.MEDIUM,
            display_name="Filtering condition",
            doc="Records for which it is true are kept, the others dropped.",
            example="value.op == 'u' && value.before.id == 2",
        )
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._condition: str = config["condition"]
        self._evaluate = _compile_expression(
            "condition", config["language"], self._condition, ("condition",), "true or false"
        )

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        evaluate, condition = self._evaluate, self._condition

        def decide(record: SourceRecord) -> SourceRecord | None:
            result = evaluate(record)
            if result is True:
                return record
            if result is False:
                return None
            raise _wrong_kind(condition, result, "Boolean")

        return _guard_decision(self.config, decide)


class ContentBasedRouter(Transform):
    """Sends records to the topic that an expression gives."""

    version: ClassVar[str] = DEBEZIUM_VERSION
    aliases: ClassVar[tuple[str, ...]] = ("io.debezium.transforms.ContentBasedRouter",)
    config_def: ClassVar[ConfigDef] = _option_keys(
        ConfigKey(
            name="topic.expression",
            type=ConfigType.STRING,
            importance=Importance.HIGH,
            width=Width.MEDIUM,
            display_name="Topic name expression",
            doc="The new topic; with null the record keeps the topic that it has.",
            example="value.op == 'u' ? 'updates' : null",
        )
    )

    def __init__(self, config: Config, side: Side = Side.VALUE) -> None:
        super().__init__(config, side)
        self._expression: str = config["topic.expression"]
        self._evaluate = _compile_expression(
            "topic.expression", config["language"], self._expression, ("text", "null"), "a string, or null"
        )

    def compile(self) -> RecordFunction:
        """See ``Transform.compile``."""
        evaluate, expression = self._evaluate, self._expression

        def decide(record: SourceRecord) -> SourceRecord:
            topic = evaluate(record)
            if topic is None:
                return record
            if not isinstance(topic, str):
                raise _wrong_kind(expression, topic, "String")
            result = copy_record(record)
            result.topic = topic
            return result

        return _guard_decision(self.config, decide)
