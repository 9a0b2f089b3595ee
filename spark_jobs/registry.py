"""The known sinks, sources and types of steps: entry points, imported only when a job asks for one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from connectors.entry_points import list_entries

if TYPE_CHECKING:
    from spark_jobs.contract import Sink, Source
    from spark_jobs.inputs.contract import Input
    from spark_jobs.steps.contract import Step

#: Groups of entry points: the name is what ``sink.type`` and ``source.format`` say.
SINKS: Final = "millrace.sinks"
SOURCES: Final = "millrace.sources"
#: The name is what ``transform.step.<name>.type`` says.
STEPS: Final = "millrace.steps"
#: With ``transform.type=materialize`` the whole batch goes here, whatever ``sink.type`` (which must be kafka) says.
MATERIALIZER: Final = "spark_jobs.materializer.job:MaterializerSink"

#: By ``source.type``: the class of the input, and of the source where ``source.format`` alone does not say it.
_INPUTS: Final = {
    "kafka": "spark_jobs.inputs.kafka:KafkaInput",
    "files": "spark_jobs.inputs.files.source:FilesInput",
    "history": "spark_jobs.inputs.history.source:HistoryInput",
}
INPUT_SOURCES: Final = {
    "files": "spark_jobs.inputs.files.rows:FilesSource",
    "history": "spark_jobs.inputs.history.rows:HistorySource",
}


def list_entry_points(group: str) -> dict[str, str]:
    """The ``module:class`` of every entry point of a group by name; of two with one name Millrace's own. Blocks for some ms."""
    declared = {entry.name: entry.value for entry in reversed(list_entries(group))}
    return dict(sorted(declared.items()))


def load_class(where: str) -> Any:
    """The class that ``module:class`` names.

    Raises:
        ImportError: the module can't be imported.
        AttributeError: it has no such class.
    """
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


def sink_class(name: str) -> type[Sink]:
    """The class of ``sink.type``: the name of an entry point, or ``module:Class`` of one of a user's own.

    Raises:
        KeyError: an unknown name.
        ImportError, AttributeError: as ``load_class``.
    """
    loaded_class: type[Sink] = load_class(name if ":" in name else list_entry_points(SINKS)[name])
    return loaded_class


def source_class(name: str) -> type[Source]:
    """The class of ``source.format``, as ``sink_class``."""
    loaded_class: type[Source] = load_class(name if ":" in name else list_entry_points(SOURCES)[name])
    return loaded_class


def step_class(name: str) -> type[Step]:
    """The class of a type of step: the name of an entry point.

    Raises:
        KeyError: an unknown name.
        ImportError, AttributeError: as ``load_class``.
    """
    step: type[Step] = load_class(list_entry_points(STEPS)[name])
    return step


def input_class(name: str) -> type[Input]:
    """The class of a ``source.type``.

    Raises:
        KeyError: an unknown name.
    """
    chosen: type[Input] = load_class(_INPUTS[name])
    return chosen
