"""Names of topics, by Debezium's naming strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors import topic_names
from connectors.java_regex import compile_java, java_replacement
from connectors.mysql.events.names import unicode_escape, utf16_units

if TYPE_CHECKING:
    from connectors.mysql.events.contract import TopicSettings
    from connectors.mysql.model import TableName


class MySqlTopics:
    """The topics of one connector.

    Attributes:
        schema_changes: the topic of DDL statements: the prefix itself.
        transactions: begins and ends of transactions.
        heartbeat: heartbeats.
        versions: table versions; not Debezium's.
    """

    def __init__(self, settings: TopicSettings) -> None:
        """Compile the expressions of the strategies that have them.

        Raises:
            ConfigInvalid: an expression or a replacement can't be used.
        """
        self._settings = settings
        join = settings.delimiter.join
        self.schema_changes = settings.prefix
        self.transactions = join((settings.prefix, settings.transaction))
        self.heartbeat = join((settings.heartbeat_prefix, settings.prefix))
        self.versions = settings.versions or self._sanitize_name(join((settings.prefix, "table-versions")))
        self._route = _Replace(settings.regex, settings.replacement)
        self._identify = _Replace(settings.key_regex, settings.key_replacement)

    def table(self, name: TableName) -> str:
        """The topic of a table's events; also what the names of its schemas begin with."""
        plain = self._sanitize_name(self._origin_name(name))
        return self._route(plain) or plain

    def database(self, database: str) -> str:
        """The topic of all tables of a database, where UMS messages go by database."""
        return self._sanitize_name(self._settings.delimiter.join((self._settings.prefix, database)))

    def everything(self) -> str:
        """The topic of all UMS messages, where they go into one."""
        return self._sanitize_name(self._settings.delimiter.join((self._settings.prefix, "ums")))

    def key_field(self, name: TableName, *, shared: bool = False) -> tuple[str, str] | None:
        """Name and value of the key's field that identifies the table in a shared topic; None if the key has no such field.

        Args:
            name: the physical table.
            shared: whether the table shares its topic whatever the naming strategy is.
        """
        if not (self._settings.regex or shared) or not self._settings.key_enabled:
            return None
        origin = self._origin_name(name)
        identifier = self._identify(origin, empty=True)
        return self._settings.key_field, origin if identifier is None else identifier

    def _origin_name(self, name: TableName) -> str:
        parts = (self._settings.prefix, name.database, name.table)
        return self._settings.delimiter.join(part for part in parts if part.strip())

    def _sanitize_name(self, name: str) -> str:
        escapes = self._settings.unicode
        characters = []
        for unit in utf16_units(name):
            if unit.isascii() and (unit.isalnum() or unit in ".-" or (unit == "_" and not escapes)):
                characters.append(unit)
            else:
                characters.append(unicode_escape(unit) if escapes else "_")
        clean = "".join(characters)[: topic_names.LONGEST]
        if clean in {".", ".."}:
            return (unicode_escape(".") if escapes else "_") * len(clean)
        return clean


class _Replace:
    """A regular expression for whole names and what they become."""

    def __init__(self, expression: str, replacement: str) -> None:
        self._pattern = compile_java(expression) if expression.strip() else None
        self._replacement = java_replacement(replacement, self._pattern) if self._pattern is not None else None

    def __call__(self, name: str, *, empty: bool = False) -> str | None:
        """The new name; None if the expression doesn't match, or gives nothing and ``empty`` is not allowed."""
        if self._pattern is None or self._replacement is None or self._pattern.fullmatch(name) is None:
            return None
        new_name = self._pattern.sub(self._replacement, name, count=1)
        return new_name if new_name or empty else None
