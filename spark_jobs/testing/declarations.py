"""The case of what a sink says of itself: options, guarantees, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.config.keys import GUARANTEES
from spark_jobs.testing.batches import change
from spark_jobs.testing.model import RuleBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_jobs.contract import Sink
    from spark_jobs.testing.kit import Kit


def check_declarations(kit: Kit) -> None:
    """Options, guarantees and metrics are declared as users and the reference need them."""
    problems = [*option_problems(kit.kind), *guarantee_problems(kit.kind)]
    kit.write((kit.table("metrics"), [change("i", 1, id=1, name="a")]))
    kit.sink.idle()
    declared = {metric.name for metric in kit.kind.metrics}
    problems += [
        f"the metric {name} is in context.metrics and not among the sink's metrics"
        for name in sorted(kit.sink.context.metrics.keys() - declared)
    ]
    problems += [
        f"the metric {metric.name} is a counter, so its name must end in _total"
        for metric in kit.kind.metrics
        if (metric.kind == "counter") != metric.name.endswith("_total")
    ]
    if problems:
        raise RuleBroken("\n".join(problems))


def option_problems(kind: type[Sink]) -> Iterator[str]:
    """Yield the problems of a sink's options. Pure."""
    heads = {".".join(name.split(".")[:2]) for name in kind.config_def.keys}
    if len(heads) > 1 or any(not name.startswith("sink.") for name in kind.config_def.keys):
        yield f"all options must begin with sink.<type>., these begin with {', '.join(sorted(heads))}"
    for name, key in kind.config_def.keys.items():
        if not key.doc:
            yield f"the option {name} has no doc"
        if name.endswith(".ms") != (key.unit == "ms"):
            yield f"the option {name}: a name that ends in .ms has the unit ms, and no other has"
        if not key.required and key.default is not None and key.validator is not None:
            complaint = key.validator(name, key.default)
            if complaint is not None:
                yield f"the default of {name} is refused: {complaint}"


def guarantee_problems(kind: type[Sink]) -> Iterator[str]:
    """Yield the problems of a sink's guarantees. Pure."""
    known_guarantees = [guarantee for guarantee in GUARANTEES if guarantee in kind.guarantees]
    if not kind.guarantees or list(kind.guarantees) != known_guarantees:
        yield f"guarantees must be some of {', '.join(GUARANTEES)} in this order, they are {', '.join(kind.guarantees)}"
