"""A strict parser of Prometheus' text format, version 0.0.4."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL}(?:,(?=[a-zA-Z_]))?)*)\}})? (\S+)")
_HELP = re.compile(rf"# HELP ({_NAME}) (.*)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge|histogram|summary|untyped)")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
Labels = tuple[tuple[str, str], ...]


@dataclass
class Exposed:
    """One metric family: its type, help text and samples by (name, labels)."""

    kind: str
    text: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def parse(exposition: str) -> dict[str, Exposed]:
    """The metric families of an exposition.

    Raises:
        ValueError: it breaks a rule of the format: syntax, a family in several parts, a series given twice, a histogram that
            does not add up.
    """
    if exposition and not exposition.endswith("\n"):
        raise ValueError("the last line has no end")
    families: dict[str, Exposed] = {}
    current = text = ""
    for line in exposition.splitlines():
        if match := _HELP.fullmatch(line):
            current, text = match[1], match[2]
            if current in families:
                raise ValueError(f"{current} is in pieces")
        elif match := _TYPE.fullmatch(line):
            if match[1] != current or current in families:
                raise ValueError(f"TYPE without its HELP: {line}")
            families[current] = Exposed(match[2], text)
        elif match := _SAMPLE.fullmatch(line):
            family = families[current]
            if match[1] not in {current + suffix for suffix in _SUFFIXES.get(family.kind, ("",))}:
                raise ValueError(f"a sample of another family under {current}: {line}")
            labels = tuple((name, _unescape(value)) for name, value in re.findall(_LABEL, match[2] or ""))
            if len({name for name, _ in labels}) < len(labels):
                raise ValueError(f"a label twice: {line}")
            if (match[1], labels) in family.samples:
                raise ValueError(f"a series twice: {line}")
            family.samples[match[1], labels] = float(match[5])
        else:
            raise ValueError(f"not of the format: {line!r}")
    for name, family in families.items():
        if family.kind == "histogram":
            _check_histogram(name, family)
    return families


def _check_histogram(name: str, family: Exposed) -> None:
    buckets: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), value in family.samples.items():
        if sample == f"{name}_bucket":
            bound = dict(labels)["le"]
            buckets.setdefault(tuple(pair for pair in labels if pair[0] != "le"), []).append((float(bound), value))
    for labels, bound_counts in buckets.items():
        bounds, counts = [bound for bound, _ in bound_counts], [count for _, count in bound_counts]
        if bounds != sorted(bounds) or counts != sorted(counts) or bounds[-1] != float("inf"):
            raise ValueError(f"buckets of {name}{labels} are not cumulative up to +Inf")
        if family.samples[f"{name}_count", labels] != counts[-1] or (f"{name}_sum", labels) not in family.samples:
            raise ValueError(f"count or sum of {name}{labels} does not fit")


def _unescape(value: str) -> str:
    return re.sub(r'\\(["\\n])', lambda match: "\n" if match[1] == "n" else match[1], value)
