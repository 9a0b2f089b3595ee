"""Questions of REST about connectors of class ``logs``, answered in a task host: unknown lines, recent lines, schemas."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import ConfigInvalid, Skippable
from connectors.logs.config import ID_COLUMN, OUTPUT, PREFIX
from connectors.logs.connector import LogsConnector
from connectors.logs.forms import make_form
from connectors.logs.recent import read_recent
from connectors.logs.replays.unknown_lines import UnknownLine, find_deleted, is_signal, read_unknown
from connectors.logs.rules.built import build_any
from connectors.logs.rules.model import UNKNOWN_TABLE
from worker.host.plan import converter_config, reader_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.options import Config
    from worker.plugins.registry import PluginRegistry

#: Bytes of the lines in one answer.
MOST_BYTES: Final = 16 * 1024 * 1024
#: Steps at which most unknown lines failed that are in an answer.
_MOST_FAILURES: Final = 50
_SLICE: Final = 200
_WITH_TRANSFORMS: Final = (
    "its transforms make schemas of their own: whether the schema registry takes them shows when the first row comes"
)


async def answer_question(
    question: str, config: Mapping[str, str], worker: Mapping[str, str], plugins: PluginRegistry, request: bytes
) -> dict[str, Any]:
    """The answer to ``worker.protocol.AskLogs``.

    Args:
        question: ``unknown``, ``recent`` or ``schemas``.
        config: the connector's properties, resolved.
        worker: the worker's.
        plugins: finds classes.
        request: for ``unknown`` and ``recent`` an object with ``lines``, how many, and ``seconds``; for ``schemas`` one with
            ``rules``, a rule set.

    Raises:
        ConfigInvalid: it is no such connector, or the question makes no sense for it.
        Retriable: something does not answer now.
    """
    cls = plugins.configured_class(config)
    if not issubclass(cls, LogsConnector):
        raise ConfigInvalid(f"{cls.__name__} connectors have no rules and no lines; it must be one of class logs")
    parsed = cls.config_def.parse(config)
    asked = json.loads(request)
    if question == "unknown":
        return await _read_unknown(config, parsed, worker, plugins, asked["lines"])
    if question == "recent":
        lines = await read_recent(parsed, asked["lines"], asked["seconds"])
        return {"lines": _newest_lines([(line, msgspec.to_builtins(origin)) for line, origin in lines])}
    if config.get("transforms", "").strip():
        return {"problems": [], "warnings": [_WITH_TRANSFORMS]}
    return {"problems": await check_schemas(config, parsed, worker, plugins, asked["rules"]), "warnings": []}


async def _read_unknown(
    config: Mapping[str, str], parsed: Config, worker: Mapping[str, str], plugins: PluginRegistry, max_lines: int
) -> dict[str, Any]:
    topic = f"{parsed[PREFIX]}.{UNKNOWN_TABLE}"
    reader = reader_of(config, worker, plugins)
    try:
        records, deleted = await reader.newest(topic, max_lines, MOST_BYTES)
        lines: list[tuple[UnknownLine, int]] = []
        #: What identifies a line -> how many lines came before the last message that deletes it.
        deletes: dict[str, int] = {}
        unreadable = 0
        for number, record in enumerate(records):
            if number % _SLICE == 0:
                await asyncio.sleep(0)  # other tasks of this host have their turn
            try:
                value = await reader.decode(topic, record.value or b"")
            except Skippable:
                unreadable += 1
                continue
            if is_signal(value):
                continue
            if (name := find_deleted(value, parsed[ID_COLUMN])) is not None:
                deletes[name] = len(lines)
                deleted += 1
                continue
            line = read_unknown(value, record.timestamp, parsed[ID_COLUMN])
            if line is None:
                unreadable += 1
            else:
                lines.append((line, record.timestamp))
    finally:
        await reader.close()
    lines = [entry for number, entry in enumerate(lines) if number >= deletes.get(entry[0].name, 0)]
    return {
        "topic": topic,
        "unreadable": unreadable,
        "replayed": deleted,
        "first_ms": lines[0][1] if lines else None,
        "last_ms": lines[-1][1] if lines else None,
        "failures": _count_failures([line for line, _ in lines]),
        "lines": _newest_lines([(line.line, msgspec.to_builtins(line.origin)) for line, _ in lines]),
    }


def _count_failures(lines: Sequence[UnknownLine]) -> list[dict[str, Any]]:
    """The steps at which most lines failed, with the reason of the newest."""
    counts: Counter[tuple[Any, ...]] = Counter()
    reasons: dict[tuple[Any, ...], Any] = {}
    for line in lines:
        for failure in line.failures:
            step = tuple(failure.get(name) for name in ("table", "group", "step", "operator"))
            counts[step] += 1
            reasons[step] = failure.get("reason")
    return [
        {
            "table": step[0],
            "group": step[1],
            "step": step[2],
            "operator": step[3],
            "lines": count,
            "reason": reasons[step],
        }
        for step, count in counts.most_common(_MOST_FAILURES)
    ]


def _newest_lines(lines: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """The newest lines, as many as fit into an answer."""
    kept: list[dict[str, Any]] = []
    left = MOST_BYTES
    for line, origin in reversed(lines):
        left -= len(line)
        if left < 0:
            break
        kept.append({"line": line, "origin": origin})
    return kept[::-1]


async def check_schemas(
    config: Mapping[str, str], parsed: Config, worker: Mapping[str, str], plugins: PluginRegistry, document: Any
) -> list[str]:
    """The refusals of the schema registries of a connector's converters of the schemas that a rule set makes.

    Only without transforms: these make other schemas.

    Raises:
        ConfigInvalid: the rules can't work.
        Retriable: a registry does not answer.
    """
    rules = await asyncio.to_thread(build_any, document)
    problems: list[str] = []
    for option, is_key in (("key.converter", True), ("value.converter", False)):
        name, options = converter_config(config, worker, option)
        converter = plugins.converter(name, options.get("plugin.version"))(options, is_key=is_key)
        try:
            for table, schema in rules.schemas.items():
                form = make_form(parsed[OUTPUT], parsed[PREFIX], table, schema, parsed[ID_COLUMN])
                refusals = await converter.refusals(form.topic, form.key_schema if is_key else form.value_schema)
                problems += [f"table {table}: {problem}" for problem in refusals]
        finally:
            await converter.close()
    return problems
