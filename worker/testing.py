"""Checks of transforms, predicates and converters, for the tests of plugin packages (docs/plugins.md).

Each check runs the plugin as a task does, without Kafka and without a worker, raises ``AssertionError`` where it breaks the
contract, and returns what came out, so that a test can say what it should have been.
"""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

from connectors.errors import MillraceError, Skippable
from connectors.testing.values import find_mismatch
from worker.transforms.base import Side

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.api import SourceRecord
    from connectors.options import ConfigDef
    from connectors.schema import Schema
    from worker.converters.base import Converter
    from worker.transforms.base import Predicate, Transform


def check_transform(
    kind: type[Transform], config: Mapping[str, str], records: Sequence[SourceRecord], side: Side = Side.VALUE
) -> list[SourceRecord | None]:
    """Apply a transform to records, check its contract, and return the results.

    It must not change its input, must return the same result twice, reuse schemas, return values that fit their
    schemas, and refuse what it can't handle with ``Skippable``.

    Args:
        kind: the transform.
        config: its options, without prefix.
        records: what comes in; each must be one that it takes.
        side: the part it works on, for one that has ``$Key`` and ``$Value``.

    Raises:
        AssertionError: it does not keep to the contract.
        ConfigInvalid: an option is wrong.
    """
    _check_options(kind.config_def, kind)
    _require_that(isinstance(kind.version, str), f"{kind.__name__}.version must be a string")
    before = copy.deepcopy(list(records))
    apply = kind(kind.config_def.parse(config), side).compile()
    results = [apply(record) for record in records]
    _require_that(
        list(records) == before, f"{kind.__name__} changed a record that came in; copy it first (copy_record)"
    )
    _require_that(
        [apply(record) for record in records] == results, f"{kind.__name__} gives something else the second time"
    )
    recompiled = kind(kind.config_def.parse(config), side).compile()
    _require_that(
        [recompiled(record) for record in before] == results,
        f"{kind.__name__} gives something else when it is compiled again",
    )
    schemas: dict[tuple[int, int], SourceRecord] = {}
    for record, result in zip(records, results, strict=True):
        if result is None:
            continue
        for case, schema, value in (
            ("key", result.key_schema, result.key),
            ("value", result.value_schema, result.value),
        ):
            # A tombstone has its table's schema.
            problem = None if value is None else find_mismatch(schema, value, case)
            _require_that(problem is None, f"{kind.__name__}: {problem}")
        first = schemas.setdefault((id(record.key_schema), id(record.value_schema)), result)
        if first.value_schema == result.value_schema and first.key_schema == result.key_schema:
            _require_that(
                first.value_schema is result.value_schema,
                f"{kind.__name__} makes a new value schema for each record: keep one for each that comes in (SchemaCache)",
            )
            _require_that(
                first.key_schema is result.key_schema,
                f"{kind.__name__} makes a new key schema for each record: keep one for each that comes in (SchemaCache)",
            )
    for record in records:
        tombstone = copy.copy(record)
        tombstone.value = None
        try:
            apply(tombstone)
        except MillraceError:
            pass  # it says that it can't
        except Exception as error:
            raise AssertionError(
                f"{kind.__name__} fails at a tombstone with {error!r}; pass it on, or raise Skippable"
            ) from error
    return results


def check_predicate(kind: type[Predicate], config: Mapping[str, str], records: Sequence[SourceRecord]) -> list[bool]:
    """Apply a predicate to records: it must change none of them, and return the same result twice.

    Raises:
        AssertionError: it does not keep to the contract.
        ConfigInvalid: an option is wrong.
    """
    _check_options(kind.config_def, kind)
    _require_that(isinstance(kind.version, str), f"{kind.__name__}.version must be a string")
    before = copy.deepcopy(list(records))
    test = kind(kind.config_def.parse(config)).compile()
    answers = [test(record) for record in records]
    _require_that(list(records) == before, f"{kind.__name__} changed a record")
    _require_that(
        all(isinstance(answer, bool) for answer in answers), f"{kind.__name__} answers with something else than a bool"
    )
    _require_that(
        [test(record) for record in records] == answers, f"{kind.__name__} says something else the second time"
    )
    return answers


def check_converter(
    kind: type[Converter],
    config: Mapping[str, str],
    values: Iterable[tuple[Schema | None, Any]],
    *,
    is_key: bool = False,
    reads_back: bool = True,
) -> list[bytes | None]:
    """The bytes that a converter makes of values.

    It must write the same bytes twice, keep one encoder per schema, leave values as they are, refuse a value that is not of its
    schema (and null, if it does not take it) with ``Skippable``, and read its own bytes back.

    Args:
        kind: the converter.
        config: its options, without prefix.
        values: values with their schemas.
        is_key: whether it is for keys.
        reads_back: whether what it writes can be read as the same value; without, it must only be readable.

    Raises:
        AssertionError: it does not keep to the contract.
        ConfigInvalid: an option is wrong.
    """
    _check_options(kind.config_def, kind)
    return asyncio.run(_check_converter(kind, config, list(values), is_key=is_key, reads_back=reads_back))


async def _check_converter(
    kind: type[Converter],
    config: Mapping[str, str],
    values: Sequence[tuple[Schema | None, Any]],
    *,
    is_key: bool,
    reads_back: bool,
) -> list[bytes | None]:
    converter = kind({**config, "converter.type": "key" if is_key else "value"}, is_key=is_key)
    written = []
    try:
        for schema, value in values:
            before = copy.deepcopy(value)
            await converter.prepare("topic", schema)
            encode = converter.encoder("topic", schema)
            data = encode(value)
            _require_that(value == before, f"{kind.__name__} changed a value")
            _require_that(
                data is None or isinstance(data, bytes), f"{kind.__name__} made a {type(data).__name__}, not bytes"
            )
            _require_that(encode(value) == data, f"{kind.__name__} writes something else the second time")
            _require_that(
                converter.encoder("topic", schema) is encode,
                f"{kind.__name__} makes a new encoder each time: keep one per topic and schema (SchemaCache)",
            )
            for bad_value, case in ((None, "null"), (object(), "a value of no known type")):
                try:
                    encode(bad_value)
                except Skippable:
                    pass
                except Exception as error:
                    raise AssertionError(f"{kind.__name__} fails at {case} with {error!r}; raise Skippable") from error
            await converter.prepare_data("topic", data)
            _, read = converter.to_connect("topic", data)
            _require_that(
                not reads_back or read == value, f"{kind.__name__} reads {read!r} back where it has written {value!r}"
            )
            written.append(data)
    finally:
        await converter.close()
    return written


def _require_that(holds: object, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)


def _check_options(definition: ConfigDef, kind: type) -> None:
    """Options have documentation, and defaults that they accept."""
    for key in definition.keys.values():
        _require_that(key.doc, f"{kind.__name__}: the option {key.name} has no documentation")
        if key.required or key.default is None or key.validator is None:
            continue
        complaint = key.validator(key.name, key.default)
        _require_that(complaint is None, f"{kind.__name__}: the default of {key.name} is refused: {complaint}")
