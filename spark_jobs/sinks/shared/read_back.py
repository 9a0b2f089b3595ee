"""Functions that sinks share where they read their targets back, for ``millrace verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal
from spark_jobs.sinks.jdbc.config import INSERT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from connectors.options import Config, ConfigDef
    from spark_jobs.sinks.shared.options import RowSettings

#: Rows that are asked for, and handed over, at once.
ROWS_AT_ONCE: Final = 1_000
_ACTIVE: Final = "ums_active_"


def parse_own_options(definition: ConfigDef, properties: Mapping[str, str], prefixes: tuple[str, ...] = ()) -> Config:
    """The options of a definition out of a job's properties, which have others, too. Pure.

    Args:
        definition: the options.
        properties: of the job.
        prefixes: beginnings of further ones that are wanted.
    """
    chosen = {name: value for name, value in properties.items() if name in definition.keys or name.startswith(prefixes)}
    return definition.parse(chosen)


def demand_row_per_key(option: str, mode: str) -> None:
    """Raises ``Fatal`` where the target has a row for each change. Pure."""
    if mode == INSERT:
        raise Fatal(f"{option}={INSERT} keeps every change as a row: there is no row of a key to compare")


def demand_own_tables(option: str, properties: Mapping[str, str], *, shared: bool) -> None:
    """Raises ``Fatal`` where rows of several topics are in one table: no row says of which topic it is. Pure.

    Args:
        option: the sink's option that permits it.
        properties: of the job.
        shared: the option's value.
    """
    topics = [topic for topic in properties.get("source.topics", "").split(",") if topic.strip()]
    if shared and len(topics) > 1:
        raise Fatal(
            f"{option}=true: the rows of several topics are in one table, and no row says of which topic it is. "
            "Verify a flow of one topic"
        )


def demand_row_settings(rows: RowSettings) -> None:
    """``demand_row_per_key`` of a sink with the option ``mode``. Pure."""
    demand_row_per_key(f"{rows.prefix}mode", rows.mode)


def select_present(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without those that the sink keeps as deleted. Pure."""
    return [row for row in rows if row.get(_ACTIVE, 1) not in (0, "0")]


def list_present(batches: Iterable[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
    """The rows of Arrow's batches, some at a time, without those that the sink keeps as deleted."""
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield select_present(batch.slice(start, ROWS_AT_ONCE).to_pylist(maps_as_pydicts="lossy"))


def read_text(value: Any) -> Any:
    """A value of a target whose strings and bytes are alike: strings in place of bytes that are UTF-8. Pure."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, list):
        return [read_text(item) for item in value]
    if isinstance(value, dict):
        return {read_text(name): read_text(item) for name, item in value.items()}
    return value
