"""The resources that the materializer's engines of one process share, and the data they hold while they merge a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectors.errors import Fatal
from spark_jobs.materializer.decoding.versions import RegistryClient, SchemaIds, Writers
from spark_jobs.materializer.events.codecs import make_codec

if TYPE_CHECKING:
    from spark_jobs.materializer.engine.model import MergeOptions
    from spark_jobs.materializer.engine.rowstate import RowState
    from spark_jobs.materializer.events.forms import EventCodec, TableShape


class Resources:
    """The resources that engines of one process share: compiled schemas and the registry's client. Close it at the end.

    Keep one per process and ``MergeOptions``; making it costs nothing, it fills as schemas come.

    Args:
        options: see ``MergeOptions``.
        registry: in place of the client that the options describe.
    """

    def __init__(self, options: MergeOptions, registry: SchemaIds | None = None) -> None:
        self.options = options
        self._registry = registry
        self.writers = Writers(options, self.registry)
        self._codecs: dict[TableShape, EventCodec] = {}

    def registry(self) -> SchemaIds:
        """The registry's client.

        Raises:
            Fatal: the options give no registry.
        """
        if self._registry is None:
            if not self.options.registry:
                raise Fatal("Avro needs a schema registry: set source.schema.registry.url.")
            self._registry = RegistryClient(dict(self.options.registry))
        return self._registry

    def codec(self, shape: TableShape) -> EventCodec:
        """The codec of a table's version; raises as ``make_codec``."""
        cached_codec = self._codecs.get(shape)
        if cached_codec is None:
            cached_codec = make_codec(
                self.options, shape, lambda subject, text: self.registry().register(subject, text)
            )
            self._codecs[shape] = cached_codec
        return cached_codec

    def close(self) -> None:
        """Close the connections to the registry."""
        if self._registry is not None:
            self._registry.close()
            self._registry = None


class Work:
    """One row under way: its state, and how it was last shown (None: it was not)."""

    __slots__ = ("before", "changed", "state")

    def __init__(self, state: RowState, before: list[Any] | None) -> None:
        self.state = state
        self.before = before
        self.changed = False


class Puts:
    """Takes what is to be put once everything has gone well."""

    def __init__(self, puts: list[tuple[bytes, bytes | None]]) -> None:
        self.put = lambda key, value: puts.append((key, value))
