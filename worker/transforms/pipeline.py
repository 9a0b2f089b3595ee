"""The chain of a connector's transforms.

Source: ``transforms`` and ``predicates`` of Kafka Connect (KIP-66, KIP-585).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid, Fatal, Fenced, Retriable, Skippable
from connectors.options import ConfigKey, ConfigType, parse_value
from worker.transforms.base import Transform
from worker.transforms.java.versions import not_found
from worker.transforms.options import PREDICATES, TRANSFORMS, read_aliases, stage_properties, transform_problems
from worker.transforms.registry import resolve_predicate, resolve_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from connectors.api import SourceRecord
    from worker.transforms.base import RecordFunction, RecordTest
    from worker.transforms.rewriting import SymbolicRecord

_NEGATE: Final = ConfigKey(
    name="negate", type=ConfigType.BOOLEAN, doc="Whether the predicate's answer is turned round."
)


class TransformError(Skippable):
    """A transform refused a record.

    Attributes:
        alias: the transform's name in the configuration.
        class_name: the executing class, for error headers and logs.
        stage: the stage of the error, in Connect's words.
    """

    stage: Final = "TRANSFORMATION"

    def __init__(self, alias: str, class_name: str, cause: BaseException) -> None:
        super().__init__(f"transformation {alias!r} ({class_name}) failed: {cause or type(cause).__name__}")
        self.alias = alias
        self.class_name = class_name


@dataclass(frozen=True, slots=True)
class TransformStage:
    """One place in the chain."""

    apply: RecordFunction
    alias: str
    class_name: str
    #: ``Transform.rewrite`` of a transform that has it, without a predicate.
    rewrite: Callable[[SymbolicRecord], SymbolicRecord | None] | None = None


class TransformPipeline:
    """The compiled chain; belongs to one task, does not block, keeps no records.

    Args:
        stages: the transforms in order, each with its predicate compiled in.
    """

    def __init__(self, stages: Iterable[TransformStage] = ()) -> None:
        self.stages = tuple(stages)
        self._steps = tuple((stage.apply, stage) for stage in self.stages)

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.stages)

    @property
    def rewrites(self) -> bool:
        """Whether every transform has a ``rewrite``, and none a predicate."""
        return all(stage.rewrite is not None for stage in self.stages)

    def rewrite(self, record: SymbolicRecord) -> SymbolicRecord | None:
        """Apply the chain to all inserts and updates of a table; None: only records will do."""
        current: SymbolicRecord | None = record
        for stage in self.stages:
            current = None if current is None or stage.rewrite is None else stage.rewrite(current)
        return current

    def apply(self, record: SourceRecord) -> SourceRecord | None:
        """The record after all transforms, or None if one dropped it; ``record`` itself is not changed.

        Raises:
            TransformError: a transform refused it; a retry gives the same result.
            Retriable, Fatal, Fenced: as a transform raised them.
        """
        stage = None
        current: SourceRecord | None = record
        try:
            for step, stage in self._steps:  # noqa: B007 - the stage is for the error below
                current = step(current)  # type: ignore[arg-type]  # None left the loop
                if current is None:
                    return None
        except (Retriable, Fatal, Fenced):
            raise
        except Exception as error:
            assert stage is not None  # noqa: S101 - only steps raise
            raise TransformError(stage.alias, stage.class_name, error) from error
        return current

    def apply_many(
        self, records: Iterable[SourceRecord]
    ) -> tuple[list[SourceRecord | None], list[tuple[int, TransformError]]]:
        """All records at once: what became of each, in order, None where one was dropped or refused, and the refusals.

        Each transform gets all of them before the next one does, which costs less than one record after the other.

        Returns:
            The results and, for those refused, their index with the error.

        Raises:
            Retriable, Fatal, Fenced: as a transform raised them; nothing of the batch is done then.
        """
        errors: list[tuple[int, TransformError]] = []
        results: list[SourceRecord | None] = list(records)
        positions: Sequence[int] = range(len(results))
        current: list[SourceRecord] = results  # type: ignore[assignment]  # no None before the first stage
        for stage in self.stages:
            done = _apply_stage(stage, current, positions, errors)
            if all(done):
                current = done  # type: ignore[assignment]
                continue
            positions = list(compress(positions, done))
            current = list(filter(None, done))
        if len(current) == len(results):
            return list(current), errors
        results = [None] * len(results)
        for position, record in zip(positions, current, strict=True):
            results[position] = record
        errors.sort(key=itemgetter(0))
        return results, errors


def _apply_stage(
    stage: TransformStage,
    records: Sequence[SourceRecord],
    positions: Sequence[int],
    errors: list[tuple[int, TransformError]],
) -> list[SourceRecord | None]:
    """Return the records after one stage, None where it drops or refuses one; ``errors`` get their ``positions``."""
    done: list[SourceRecord | None] = []
    remaining = iter(records)
    while True:
        try:
            done.extend(map(stage.apply, remaining))
            if len(done) == len(records):
                return done
            raise RuntimeError("a transform raised StopIteration")  # noqa: TRY301 - it ends the map, as the last record does
        except (Retriable, Fatal, Fenced):
            raise
        except Exception as error:  # noqa: BLE001 - a transform may raise anything; what was done before it is in the list
            refused = TransformError(stage.alias, stage.class_name, error)
            refused.__cause__ = error
            errors.append((positions[len(done)], refused))
            done.append(None)


def _make_conditional(apply: RecordFunction, test: RecordTest, *, negate: bool) -> RecordFunction:
    if negate:
        return lambda record: record if test(record) else apply(record)
    return lambda record: apply(record) if test(record) else record


def _make_predicate(raw: Mapping[str, str], alias: str) -> RecordTest:
    prefix = f"{PREDICATES}.{alias}."
    kind, class_name = resolve_predicate(raw.get(f"{prefix}type", "").strip(), raw.get(f"{prefix}plugin.version"))
    _check_version(raw, prefix, class_name, kind.version)
    return kind(kind.config_def.parse(stage_properties(raw, prefix))).compile()


def _check_version(raw: Mapping[str, str], prefix: str, class_name: str, version: str) -> None:
    wanted_version = raw.get(f"{prefix}plugin.version")
    complaint = not_found(class_name, wanted_version, [version])
    if complaint is not None:
        raise ConfigInvalid(complaint)


def _make_stage(raw: Mapping[str, str], alias: str) -> TransformStage:
    prefix = f"{TRANSFORMS}.{alias}."
    if f"{prefix}type" not in raw:
        raise ConfigInvalid(f'Missing required configuration "{prefix}type" which has no default value.')
    kind, side, class_name = resolve_transform(raw[f"{prefix}type"].strip(), raw.get(f"{prefix}plugin.version"))
    _check_version(raw, prefix, class_name, kind.version)
    transform = kind(kind.config_def.parse(stage_properties(raw, prefix)), side)
    apply = transform.compile()
    predicate = raw.get(f"{prefix}predicate")
    if predicate is not None:
        negate = bool(parse_value(_NEGATE, raw.get(f"{prefix}negate", "false")))
        apply = _make_conditional(apply, _make_predicate(raw, predicate.strip()), negate=negate)
    rewrites = predicate is None and kind.rewrite is not Transform.rewrite
    return TransformStage(apply, alias, class_name, transform.rewrite if rewrites else None)


def build_pipeline(connector_config: Mapping[str, str]) -> TransformPipeline:
    """The chain that a connector's configuration asks for; empty, and false, without ``transforms``.

    May block for some milliseconds if it names a class that is not built in.

    Raises:
        ConfigInvalid: an option is wrong; the message names the transform and the property.
    """
    problems = transform_problems(connector_config)
    if problems:
        raise ConfigInvalid("\n".join(f"{problem.name}: {problem.message}" for problem in problems))
    stages = []
    for alias in read_aliases(connector_config, TRANSFORMS):
        try:
            stages.append(_make_stage(connector_config, alias))
        except ConfigInvalid as error:
            raise ConfigInvalid(f"transformation {alias!r}: {error}") from error
    return TransformPipeline(stages)
