"""Records from log rows: one builder per table version and output form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.scylla.events.contract import EventBuilder, ScyllaEventSettings
    from connectors.scylla.events.debezium import DebeziumBuilder
    from connectors.scylla.events.partition_update import PartitionUpdateBuilder
    from connectors.scylla.events.ums import UmsBuilder
    from connectors.scylla.model import TableVersion

#: Words of ``scylla.compat``: each keeps one wrong form of the Java connector (TYPES.md); ``java`` keeps all of them.
COMPAT_NAMES: Final = frozenset({"java", "null-udt", "list-order", "hybrid-calendar"})


def build_events(
    version: TableVersion, settings: ScyllaEventSettings, now: Callable[[], float] | None = None
) -> EventBuilder:
    """The builder of a table version's records in the form that ``settings.output_format`` asks for, masked.

    It compiles code (a few milliseconds): make one per table version, never per row.

    Args:
        version: the table as the rows have it.
        settings: see ``ScyllaEventSettings``.
        now: the clock for the time of processing in the legacy and the advanced format, in seconds since 1970.

    Raises:
        ConfigInvalid: a mask rule names a column that can't be masked in this form.
    """
    plain = _plain_builder(version, settings, now)
    if not any(settings.masks.rule_of(f"{version.id}.{column.name}") for column in version.columns):
        return plain
    from connectors.scylla.events.masked import MaskedBuilder

    return MaskedBuilder(plain, version, settings.masks)


def _plain_builder(
    version: TableVersion, settings: ScyllaEventSettings, now: Callable[[], float] | None
) -> DebeziumBuilder | PartitionUpdateBuilder | UmsBuilder:
    # Each form is imported where it is asked for.
    if settings.output_format == "ums":
        from connectors.scylla.events.ums import UmsBuilder

        return UmsBuilder(version, settings)
    if settings.output_format == "partition-update":
        from connectors.scylla.events.partition_update import PartitionUpdateBuilder

        return PartitionUpdateBuilder(version, settings)
    from connectors.scylla.events.debezium import DebeziumBuilder

    return DebeziumBuilder(version, settings, now)
