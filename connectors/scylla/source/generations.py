"""Choice of the generation of a table's streams to read, by what is saved. Pure functions; times in ms since 1970-01-01 UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from connectors.scylla.model import Generation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from connectors.scylla.model import StreamGroup

#: A log row may outlive its TTL by as much as clocks differ; what expires within it is still read.
EXPIRY_MARGIN_MS: Final = 60_000


def to_generations(starts_ms: Iterable[int]) -> list[Generation]:
    """Generations in order, from their starts: each ends where the next begins."""
    ordered = sorted(set(starts_ms))
    return [Generation(start, end) for start, end in zip_longest(ordered, ordered[1:])]


def is_expired(generation: Generation, now_ms: int, ttl_s: int, altered_ms: int = 0) -> bool:
    """Whether all of its log rows must be gone: it is closed and older than the table's TTL (0: rows stay).

    ``altered_ms``: when the table was altered last. Rows from before may have been written with a longer TTL: of a generation
    that had started by then nothing is known.
    """
    if generation.end_ms is None or ttl_s <= 0 or generation.start_ms < altered_ms:
        return False
    return generation.end_ms + ttl_s * 1000 + EXPIRY_MARGIN_MS < now_ms


def is_finished(generation: Generation, groups: Sequence[StreamGroup], saved: Mapping[str, int]) -> bool:
    """Whether it is closed and every group was read to its end.

    Args:
        generation: the generation, with the end that is known now.
        groups: all its groups of one table.
        saved: starts of saved windows by name of the group, the Java connector's names included.
    """
    end = generation.end_ms
    if end is None:
        return False
    return all(start is not None and start >= end for start in group_starts(groups, saved).values())


def group_starts(groups: Sequence[StreamGroup], saved: Mapping[str, int]) -> dict[str, int | None]:
    """By group the start of its saved window; of Java positions of tablets the least of its streams'; None: none is saved."""
    if not groups or not groups[0].tablets:
        return {group.name: saved.get(group.name) for group in groups}
    shared = saved.get("0")
    result: dict[str, int | None] = {}
    for group in groups:
        own_start = saved.get(group.name)
        if own_start is None and saved:
            parts = [saved.get(str(number), shared) for number in group.java_numbers]
            known_starts = [part for part in parts if part is not None]
            own_start = min(known_starts) if len(known_starts) == len(parts) and known_starts else None
        result[group.name] = own_start
    return result


@dataclass(frozen=True, slots=True)
class GenerationChoice:
    """The generations of a table to read.

    Attributes:
        generation: the one to read first if it is not finished (``is_finished`` needs its groups), None: the table has none
            yet.
        later: those after it, in order.
        first: whether nothing was saved for the table: look-back and TTL say where in the generation to begin.
        skipped: those left out although nothing says that they were read to their end: their rows have expired.
        notes: what an operator should know.
    """

    generation: Generation | None
    later: tuple[Generation, ...] = ()
    first: bool = False
    skipped: tuple[Generation, ...] = ()
    notes: tuple[str, ...] = field(default=())


def choose_generation(
    all_generations: Sequence[Generation],
    saved: Iterable[int],
    *,
    now_ms: int,
    ttl_s: int = 0,
    altered_ms: int = 0,
    lookback_ms: int = 0,
) -> GenerationChoice:
    """The oldest generation that may hold something unread.

    A generation is only started when the one before is finished, so a position saved for it says that all before it are done.

    Args:
        all_generations: the table's generations in order, ends included.
        saved: starts of generations with saved positions.
        now_ms: now.
        ttl_s: the table's log TTL, 0: rows stay.
        altered_ms: when the table was altered last; counts only with saved positions, for a first start would read all
            generations there ever were.
        lookback_ms: ``scylla.initial.lookback.ms``, 0: no limit.
    """
    if not all_generations:
        return GenerationChoice(None, first=not list(saved))
    newest_saved = max(saved, default=None)
    if newest_saved is None or newest_saved > all_generations[-1].start_ms:
        notes: tuple[str, ...] = ()
        if newest_saved is not None:
            note = (
                f"Positions are saved for a generation that starts at {newest_saved}, and the cluster's newest starts at "
                f"{all_generations[-1].start_ms}: is it another cluster? Reading begins from the start"
            )
            notes = (note,)
        begin = 0 if lookback_ms <= 0 else now_ms - lookback_ms
        left = [generation for generation in all_generations if generation.end_ms is None or generation.end_ms > begin]
        alive = [generation for generation in left if not is_expired(generation, now_ms, ttl_s)]
        return GenerationChoice(alive[0], tuple(alive[1:]), first=True, notes=notes)
    remaining = [generation for generation in all_generations if generation.start_ms >= newest_saved]
    alive = [generation for generation in remaining if not is_expired(generation, now_ms, ttl_s, altered_ms)]
    notes = ()
    if remaining[0].start_ms != newest_saved:
        note = (
            f"Positions are saved for a generation that starts at {newest_saved} and that the cluster does not know any "
            f"more; continuing with the next one, {remaining[0].start_ms}"
        )
        notes = (note,)
    return GenerationChoice(
        alive[0],
        tuple(alive[1:]),
        skipped=tuple(generation for generation in remaining if generation not in alive),
        notes=notes,
    )
