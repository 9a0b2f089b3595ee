"""The targets (indices, tables, collections) that rows of tables are written to, as the driver knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.errors import Fatal
from spark_jobs.namespaces import find_identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_jobs.contract import TableSchema


class Targets:
    """Fits targets to the schemas of tables, each once; keeps two tables from one target by chance.

    Args:
        option: with the template of their names, for messages.
    """

    def __init__(self, option: str) -> None:
        self._option = option
        self._fitted: dict[str, TableSchema] = {}
        self._owners: dict[str, str] = {}

    def fit(
        self, name: str, schema: TableSchema, create: Callable[[TableSchema], None], *, shared: bool = False
    ) -> None:
        """Call ``create`` unless the target fits the table's schema already. Blocks.

        Args:
            name: of the target.
            schema: the table's.
            create: makes or alters the target; raises what ``Sink.write`` may raise.
            shared: whether several tables may have one target.

        Raises:
            Fatal: another table has this target.
        """
        table = find_identity(schema.namespace)
        owner = self._owners.setdefault(name, table)
        if owner != table and not shared:
            raise Fatal(
                f"the tables {owner} and {table} would both be written to {name}, where their rows would share keys: name "
                f"${{namespace}} or ${{database}} in {self._option}"
            )
        if self._fitted.get(schema.namespace) != schema:
            create(schema)
            self._fitted[schema.namespace] = schema

    def forget(self) -> None:
        """Look at all targets again before the next batch."""
        self._fitted.clear()
