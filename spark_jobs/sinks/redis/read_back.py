"""Reads the keys of the Redis sink back, for ``millrace verify``. Blocks: call it in a thread."""

from __future__ import annotations

import re
from contextlib import closing
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal
from connectors.verify.values import SparseRow
from spark_jobs.sinks.redis.client import connect_redis, translate_errors
from spark_jobs.sinks.redis.columns import is_guard
from spark_jobs.sinks.redis.config import CONFIG_DEF, HASH, JSON, PREFIX, SORTED_SET, STREAM, STRING, parse_settings
from spark_jobs.sinks.shared.read_back import ROWS_AT_ONCE, parse_own_options, read_text, select_present

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_REFUSED: Final = {
    STRING: "a value is made of columns by a template, and they can't be read out of it",
    SORTED_SET: "a set has a member and a score, not the columns of rows",
    STREAM: "it keeps every change as an entry: there is no row of a key to compare",
}
#: Redis's type of keys, and the command that reads one, by form and ``json.command``.
_FORMS: Final = {
    (HASH, "SET"): ("hash", "HGETALL"),
    (HASH, "JSON.SET"): ("hash", "HGETALL"),
    (JSON, "SET"): ("string", "GET"),
    (JSON, "JSON.SET"): ("ReJSON-RL", "JSON.GET"),
}
_PLACEHOLDER: Final = re.compile(r"\$\{[^}]*\}")
_SPECIAL: Final = re.compile(r"([*?\[\]\\^])")
_decode: Final = msgspec.json.Decoder(float_hook=Decimal).decode


class RedisTargetRows:
    """The keys of one job.

    Args:
        properties: of the job, references resolved.
    """

    #: A scan may give a key several times.
    repeats_rows = True

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._settings = parse_settings(parse_own_options(CONFIG_DEF, properties))
        form = self._settings.form
        if form in _REFUSED:
            raise Fatal(f"{PREFIX}form={form} can't be read back: {_REFUSED[form]}")

    def name(self, namespace: str) -> str:
        """The pattern of the keys that rows of a source table are written to."""
        fixed = _PLACEHOLDER.split(self._settings.key.of_table(namespace))
        return "*".join(_SPECIAL.sub(r"\\\1", part) for part in fixed)

    def rows(self, namespace: str) -> Iterator[list[dict[str, Any]]]:
        """The rows of those keys, some at a time, without those that are deleted. A row may come twice.

        Raises:
            Retriable: the server is unavailable.
            Fatal: it refuses, or a value is no row.
        """
        settings = self._settings
        kind, _ = _FORMS[settings.form, settings.command]
        with translate_errors(settings), closing(connect_redis(settings)) as client:
            keys = client.scan_iter(match=self.name(namespace), count=ROWS_AT_ONCE, _type=kind)
            while part := list(islice(keys, ROWS_AT_ONCE)):
                chosen = [key for key in part if not is_guard(key.decode(errors="surrogateescape"))]
                yield select_present(self._read_rows(client, chosen))

    def _read_rows(self, client: Any, keys: Sequence[bytes]) -> Iterator[dict[str, Any]]:
        """The rows of keys that are still there."""
        command = _FORMS[self._settings.form, self._settings.command][1]
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            pipeline.execute_command(command, key)
        for key, value in zip(keys, pipeline.execute(), strict=True):
            if not value:
                continue
            if self._settings.form == HASH:
                yield SparseRow(read_text(value))
                continue
            try:
                yield SparseRow(_decode(value))
            except (msgspec.DecodeError, TypeError, ValueError) as error:
                where = f"Redis {self._settings.access.address}"
                raise Fatal(f"{where}: the value of the key {key!r} is no JSON object: {error}") from error
