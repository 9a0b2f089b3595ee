"""The option and metric reference: pages of ``docs/reference`` made from the declarations alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from connectors.options import ConfigDef, ConfigKey, ConfigType, java_string
from worker.development.reference_types import types_page

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NOTE = "<!-- Made by `./millrace docs` from the declarations in the code; do not edit. -->\n"


def _escape_cell(raw: str) -> str:
    return " ".join(raw.split()).replace("|", "\\|")


def _format_default(key: ConfigKey) -> str:
    if key.required:
        return "**required**"
    if key.default is None:
        return "not set"
    if key.type is ConfigType.PASSWORD:
        return "hidden"
    shown_value = (
        ",".join(map(java_string, key.default)) if isinstance(key.default, list | tuple) else java_string(key.default)
    )
    return f"`{shown_value}`" if shown_value else "empty"


def options_table(definition: ConfigDef) -> str:
    """The options of ``definition`` as Markdown tables, one for each group."""
    keys = [key for key in definition.keys.values() if not key.internal]
    parts: list[str] = []
    for group in dict.fromkeys(key.group for key in keys):
        if group is not None:
            parts.append(f"\n### {group}\n")
        parts.append("| property | type | default | importance | what it does |\n|---|---|---|---|---|")
        for key in keys:
            if key.group != group:
                continue
            kind = key.type.lower() + (f", {key.unit}" if key.unit else "")
            extra = f" Example: `{_escape_cell(key.example)}`." if key.example else ""
            also = f" Also accepted as: {', '.join(f'`{alias}`' for alias in key.aliases)}." if key.aliases else ""
            parts.append(
                f"| `{key.name}` | {kind} | {_escape_cell(_format_default(key))} | {key.importance.lower()} "
                f"| {_escape_cell(key.doc)}{extra}{also} |"
            )
    return "\n".join(parts) + "\n"


def _options_page(title: str, intro: str, definition: ConfigDef) -> str:
    return f"# {title}\n{NOTE}\n{intro}\n\n{options_table(definition)}"


def _sections_page(title: str, intro: str, definitions: Mapping[str, tuple[tuple[str, ...], ConfigDef]]) -> str:
    parts = [f"# {title}\n{NOTE}\n{intro}\n"]
    for name, (aliases, definition) in definitions.items():
        also = f"\nAlso accepted: {', '.join(f'`{alias}`' for alias in aliases)}.\n" if aliases else ""
        body = options_table(definition) if definition.keys else "No options.\n"
        parts.append(f"## {name}\n{also}\n{body}")
    return "\n".join(parts)


def reference_pages() -> dict[str, str]:
    """All pages: file name below ``docs/reference`` -> text."""
    from connectors.job_api import JobConnector
    from worker.config.job_config import JOB_CONFIG
    from worker.config.source_config import SOURCE_CONFIG
    from worker.config.worker_keys import WORKER_CONFIG
    from worker.metrics.reference import render_metrics as metrics_page
    from worker.plugins import PluginRegistry

    registry = PluginRegistry("")
    result = {
        "worker.md": _options_page(
            "Worker properties",
            "The property file of `millrace worker`. Names and defaults are Kafka "
            "Connect's where it has the property; how they differ is in [connect-compatibility.md]"
            "(../connect-compatibility.md).",
            WORKER_CONFIG,
        ),
        "connectors/common.md": _options_page(
            "Options of every source connector",
            "What a connector configuration may hold in addition to the connector's own options.",
            SOURCE_CONFIG,
        ),
        "metrics.md": metrics_page(),
    }
    for name, connector in registry.builtin_connectors().items():
        also = f"\n\nAlso accepted as `connector.class`: {', '.join(f'`{alias}`' for alias in connector.aliases)}."
        if getattr(connector, "java_sink", None) is not None:
            continue  # in java-sinks.md
        if issubclass(connector, JobConnector):
            result[f"connectors/{name}.md"] = _options_page(
                f"Options of the {name} connector",
                f"`connector.class`: `{connector.__module__}.{connector.__qualname__}`.{also if connector.aliases else ''}\n\n"
                "What the worker reads; all other options are the job's: [../jobs.md](../jobs.md).",
                JOB_CONFIG,
            )
            continue
        result[f"connectors/{name}.md"] = _options_page(
            f"Options of the {name} connector",
            f"`connector.class`: `{connector.__module__}.{connector.__qualname__}`.{also if connector.aliases else ''}\n\n"
            "The options that all connectors share are in [common.md](common.md).",
            connector.config_def,
        )
    result["converters.md"] = _sections_page(
        "Converters",
        "Options are given with the prefix `key.converter.`, `value.converter.` or `header.converter.`.",
        registry.converter_definitions(),
    )
    result["transforms.md"] = _sections_page(
        "Transforms and predicates",
        "Options are given with the prefix `transforms.ALIAS.` or `predicates.ALIAS.`.",
        registry.transform_definitions(),
    )
    result["jobs.md"] = _jobs_page()
    result["java-sinks.md"] = _java_sinks_page(registry.builtin_connectors().values())
    result["types.md"] = types_page(NOTE)
    result["rest.md"] = _rest_page()
    result["openapi.json"] = _openapi_page()
    return result


def _java_sinks_page(connectors: Iterable[Any]) -> str:
    """The options of Java's sink connectors, and what each becomes."""
    from spark_jobs.java_sinks.translation.translate import COMMON

    sinks = sorted(
        (sink for connector in connectors if (sink := getattr(connector, "java_sink", None)) is not None),
        key=lambda sink: str(sink.title),
    )
    intro = (
        "What each option becomes when a configuration of a Java sink connector runs as a job "
        "([../jobs/java-sinks.md](../jobs/java-sinks.md)). *No counterpart*: the job runs, and `validate` says what is written "
        "here. *Refused*: the job does not run until the option is removed. Both hold for values other than the default."
    )
    parts = [f"# Options of Java's sink connectors\n{NOTE}\n{intro}\n"]
    lists = [("Every sink connector", "", COMMON)]
    lists += [
        (sink.title, f"`connector.class`: {', '.join(f'`{name}`' for name in sink.class_names)}.\n\n", sink.options)
        for sink in sinks
    ]
    for title, classes, options in lists:
        parts.append(f"## {title}\n\n{classes}| option | default | what it says | here |\n|---|---|---|---|")
        parts += [
            f"| {', '.join(f'`{name}`' for name in (option.name, *option.aliases))} "
            f"| {f'`{_escape_cell(option.default)}`' if option.default else ''} | {_escape_cell(option.doc)} | "
            f"{_escape_cell(option.effect)} |"
            for option in options
        ]
        parts.append("")
    return "\n".join(parts)


def _rest_page() -> str:
    """All operations of the REST API by what they are about."""
    from worker.rest.openapi import TAGS
    from worker.rest.routes import ROUTES

    intro = (
        "What each takes and answers is in [openapi.json](openapi.json), examples are in [../rest.md](../rest.md). The "
        "role is what a caller needs once [access is restricted](../security.md): admin may do what operate may, and "
        "operate what read may. Calls marked * are Millrace's own; Kafka Connect has the others."
    )
    parts = [f"# Calls of the REST API\n{NOTE}\n{intro}\n"]
    for tag, doc in TAGS.items():
        rows = [
            f"| `{route.method} {route.path}`{'' if route.operation.kafka else ' *'} | {route.access} "
            f"| {_escape_cell(route.operation.summary)} | {', '.join(map(str, sorted(route.operation.replies)))} |"
            for route in ROUTES["all"]
            if route.operation.tag is tag
        ]
        parts += [f"## {tag}\n\n{doc}\n\n| call | role | what it does | answers |\n|---|---|---|---|", *rows, ""]
    return "\n".join(parts)


def _openapi_page() -> str:
    """The REST API's document; a worker serves its own at ``/openapi.json``."""
    from worker.rest.openapi import build_document
    from worker.rest.routes import ROUTES

    api_document = build_document(ROUTES["all"], "http://localhost:8083", schemes=("basic", "bearer", "mutualTLS"))
    return json.dumps(api_document, indent=1, ensure_ascii=False) + "\n"


def _jobs_page() -> str:
    """Options of Spark jobs, part by part, and their metrics."""
    from spark_jobs import registry as jobs
    from spark_jobs.config.keys import FRAME, FUNCTIONS
    from spark_jobs.metrics import FRAME_METRICS
    from spark_jobs.sources.plain import PLAIN_KEYS
    from spark_jobs.steps.python.functions import keys_of

    intro = (
        "What a job file ([../jobs/running.md](../jobs/running.md)) may hold: the frame's options, those of its source, "
        "and those of its sink or of the materializer. Nested mappings mean the same as dotted names."
    )
    parts = [f"# Options and metrics of Spark jobs\n{NOTE}\n{intro}\n", "## The frame\n", options_table(FRAME)]
    metrics = [("Every job", FRAME_METRICS)]
    kinds = {
        "Source type": jobs.INPUT_SOURCES,
        "Source format": jobs.list_entry_points(jobs.SOURCES),
        "Sink": jobs.list_entry_points(jobs.SINKS),
        "Transformation": {"materialize": jobs.MATERIALIZER},
    }
    for title, classes_by_name in kinds.items():
        for name, where in sorted(classes_by_name.items()):
            part = jobs.load_class(where)
            shared = {*FRAME.keys, *(key.name for key in PLAIN_KEYS if title == "Source type" and name == "files")}
            part_definition = ConfigDef([key for key in part.config_def.keys.values() if key.name not in shared])
            prefixes = "".join(f" Properties that begin with `{prefix}` are passed on." for prefix in part.pass_through)
            offers = f"Guarantees: {', '.join(part.guarantees)}.\n\n" if hasattr(part, "guarantees") else ""
            table = options_table(part_definition) if part_definition.keys else "No options of its own."
            parts.append(f"## {title} `{name}`\n\n{offers}{table}\n" + (f"\n{prefixes.strip()}\n" if prefixes else ""))
            if getattr(part, "metrics", ()):
                metrics.append((f"{title} `{name}`", part.metrics))
    for name, where in jobs.list_entry_points(jobs.STEPS).items():
        step = jobs.load_class(where)
        passed = "".join(
            f"\nProperties that begin with `{prefix}` are passed on.\n" for prefix in step.pass_through if prefix
        )
        parts.append(
            f"## Step `{name}`\n\nThe prefix of each option is `transform.step.<name>.`.\n\n"
            f"{options_table(step.config_def)}\n{passed}"
        )
        if step.metrics:
            metrics.append((f"Step `{name}`", step.metrics))
    functions = ConfigDef(keys_of({FUNCTIONS: "<name>"}))
    parts.append(f"## Functions in SQL\n\nFor each name in `{FUNCTIONS}`.\n\n{options_table(functions)}\n")
    parts.append(
        "## Metrics\n\n`metrics.port` of a job serves them to Prometheus, each with the label `job`. A job "
        "that a worker runs shows its own on the worker's `/metrics`, with the labels `connector` and "
        "`task`; see [metrics.md](metrics.md).\n"
    )
    for title, declared in metrics:
        parts.append(f"### {title}\n\n| name | labels | type | unit | meaning |\n|---|---|---|---|---|")
        parts += [
            f"| `millrace_job_{metric.name}` | {', '.join(metric.labels)} | {metric.kind} | {metric.unit} | "
            f"{_escape_cell(metric.help)} |"
            for metric in declared
        ]
        parts.append("")
    return "\n".join(parts)
