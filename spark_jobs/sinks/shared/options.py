"""Options that sinks of rows have in common: declared by functions, under the prefix of each sink (``sink.redis.``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.options import ConfigKey, ConfigType, Importance, Password, at_least, between, one_of
from spark_jobs.sinks.jdbc.config import INSERT, REAL, SOFT, SSL_MODES, UPSERT
from spark_jobs.steps.lookup.model import LookupAccess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Deletes are not written: the row stays as it was.
IGNORE: Final = "ignore"
#: Deletes are written like other changes, for the receiver to deal with.
WRITE: Final = "write"
#: Groups of options, as in the JDBC sink.
WHERE: Final = "Connection"
CONTENT: Final = "What is written"
SPEED: Final = "Speed and failures"

_MODES: Final = {
    UPSERT: "upsert: one row per key, the one with the largest ums_id_",
    INSERT: "insert: every change is written, images before an update (ums_op_ b) as well",
}
_DELETES: Final = {
    REAL: "real removes the row",
    SOFT: "soft keeps it with ums_active_ = 0 (1 in other rows)",
    IGNORE: "ignore leaves it as it was",
    WRITE: "write sends it like other changes, with ums_op_ = d",
}
_I, _L, _S = ConfigType.INT, ConfigType.LONG, ConfigType.STRING
_LOW: Final = Importance.LOW
_WEEK_MS: Final = 7 * 24 * 3_600_000


def mode_key(prefix: str, default: str = UPSERT) -> ConfigKey:
    """``mode``: upsert or insert."""
    return ConfigKey(
        name=f"{prefix}mode",
        type=_S,
        default=default,
        importance=Importance.HIGH,
        group=CONTENT,
        validator=one_of(*_MODES),
        doc="; ".join(_MODES.values()) + ".",
    )


def key_columns_key(prefix: str) -> ConfigKey:
    """``key.columns``: the columns that make the key."""
    return ConfigKey(
        name=f"{prefix}key.columns",
        type=ConfigType.LIST,
        default=[],
        group=CONTENT,
        example="country,number",
        doc="The columns that make the key of a row, in this order; all tables must have them. Empty: the primary key.",
    )


def delete_mode_key(
    prefix: str, default: str = REAL, modes: Sequence[str] = (REAL, SOFT, IGNORE), note: str = ""
) -> ConfigKey:
    """``delete.mode``: real, soft or ignore.

    Args:
        prefix: of the sink.
        default: one of ``modes``.
        modes: those that the sink has.
        note: a sentence to add.
    """
    return ConfigKey(
        name=f"{prefix}delete.mode",
        type=_S,
        default=default,
        importance=Importance.HIGH,
        group=CONTENT,
        validator=one_of(*modes),
        doc="What a delete does: " + "; ".join(_DELETES[mode] for mode in modes) + "." + (f" {note}" if note else ""),
    )


def delete_retention_key(prefix: str) -> ConfigKey:
    """``delete.retention.ms``: how long deletes are remembered."""
    return ConfigKey(
        name=f"{prefix}delete.retention.ms",
        type=_L,
        default=_WEEK_MS,
        unit="ms",
        group=CONTENT,
        validator=at_least(60_000),
        doc="How long deletes are remembered. A change that arrives later than that after a newer delete of its key brings the "
        "row back, so it must be longer than any replay or delay of a source.",
    )


def batch_keys(prefix: str, rows: int = 1000, size: int = 4 << 20, max_rows: int = 100_000) -> list[ConfigKey]:
    """``batch.rows``, ``batch.bytes``, ``batch.ms`` and ``connections``.

    Args:
        prefix: of the sink.
        rows: default of the first.
        size: default of the second.
        max_rows: the most rows that a user may choose.
    """
    return [
        ConfigKey(
            name=f"{prefix}batch.rows",
            type=_I,
            default=rows,
            unit="rows",
            group=SPEED,
            validator=between(1, max_rows),
            doc="Rows that are written together, at most. A task prepares as many meanwhile.",
        ),
        ConfigKey(
            name=f"{prefix}batch.bytes",
            type=_L,
            default=size,
            unit="bytes",
            importance=_LOW,
            group=SPEED,
            validator=between(1024, 256 << 20),
            doc="Bytes of rows that are written together, about; a task needs some ten times that of memory.",
        ),
        ConfigKey(
            name=f"{prefix}batch.ms",
            type=_I,
            default=1000,
            unit="ms",
            importance=_LOW,
            group=SPEED,
            validator=between(1, 600_000),
            doc="Rows that a task has held for this long are written when the next ones come, also if there are fewer than "
            "the other limits allow.",
        ),
        ConfigKey(
            name=f"{prefix}connections",
            type=_I,
            default=2,
            group=SPEED,
            validator=between(1, 64),
            doc="How many tasks write one table at the same time, at most; each has a connection.",
        ),
    ]


def retry_keys(prefix: str, retries: int = 3, pause_ms: int = 100) -> list[ConfigKey]:
    """``retries`` and ``retry.backoff.ms``."""
    return [
        ConfigKey(
            name=f"{prefix}retries",
            type=_I,
            default=retries,
            group=SPEED,
            validator=between(0, 100),
            doc="How often a task writes rows again after a lost connection, a timeout and the like, before the batch is given "
            "back to the job (which waits, and tries it again as errors.retry.* say).",
        ),
        ConfigKey(
            name=f"{prefix}retry.backoff.ms",
            type=_I,
            default=pause_ms,
            unit="ms",
            importance=_LOW,
            group=SPEED,
            validator=between(1, 60_000),
            doc="The first pause; each is twice as long as the one before, up to ten seconds.",
        ),
    ]


def access_keys(prefix: str, user: str = "The login; empty: none.") -> list[ConfigKey]:
    """``user``, ``password``, ``ssl.*`` and ``timeout.ms``; what they say is an ``LookupAccess`` (``access_of``)."""
    return [
        ConfigKey(name=f"{prefix}user", type=_S, default="", group=WHERE, doc=user),
        ConfigKey(
            name=f"{prefix}password",
            type=ConfigType.PASSWORD,
            default=Password(""),
            group=WHERE,
            doc="The login's password.",
        ),
        ConfigKey(
            name=f"{prefix}ssl.mode",
            type=_S,
            default="prefer",
            importance=_LOW,
            group=WHERE,
            validator=one_of(*SSL_MODES),
            doc="TLS, by libpq's names: disable and prefer (as the address says; the server and its name are verified); "
            "require (encrypted, the server is not verified); verify-ca; verify-full (its name too).",
        ),
        *(
            ConfigKey(
                name=f"{prefix}{name}",
                type=_S,
                default=None,
                importance=_LOW,
                group=WHERE,
                doc=f"File with {content}, on every machine that runs tasks.",
            )
            for name, content in (
                ("ssl.root.cert", "the authorities that verify the server (default: the system's)"),
                ("ssl.cert", "the client's certificate"),
                ("ssl.key", "the key of the client's certificate"),
            )
        ),
        ConfigKey(
            name=f"{prefix}timeout.ms",
            type=_I,
            default=10_000,
            unit="ms",
            importance=_LOW,
            group=WHERE,
            validator=between(100, 600_000),
            doc="How long the server may take to accept a connection, and to answer a request.",
        ),
    ]


def access_of(config: Mapping[str, Any], prefix: str, address: str) -> LookupAccess:
    """The values of ``access_keys``; read them for each batch, since a config provider may give a new password.

    Args:
        config: parsed values.
        prefix: of the sink.
        address: for messages, without a login.
    """
    return LookupAccess(
        address=address,
        user=config[f"{prefix}user"],
        password=config[f"{prefix}password"].value,
        ssl_mode=config[f"{prefix}ssl.mode"],
        ssl_root_cert=config[f"{prefix}ssl.root.cert"],
        ssl_cert=config[f"{prefix}ssl.cert"],
        ssl_key=config[f"{prefix}ssl.key"],
        timeout_s=config[f"{prefix}timeout.ms"] / 1000,
    )


def access_problems(config: Mapping[str, Any], prefix: str) -> list[str]:
    """Values of ``access_keys`` that do not go together, as ``<option>: <text>``. Pure."""
    problems = []
    if bool(config[f"{prefix}ssl.cert"]) != bool(config[f"{prefix}ssl.key"]):
        problems.append(
            f"{prefix}ssl.cert: a client's certificate needs its key ({prefix}ssl.key), and the other way round"
        )
    if config[f"{prefix}password"].value and not config[f"{prefix}user"] and not prefix.endswith("redis."):
        problems.append(f"{prefix}password: a password needs its login ({prefix}user)")
    return problems


@dataclass(frozen=True, slots=True)
class RowSettings:
    """How rows are written; picklable.

    Attributes:
        prefix: of the sink's options, for messages.
        mode: upsert (the newest row of each key) or insert (every change).
        delete_mode: real, soft or ignore.
        key_columns: that make the key; empty: the primary key.
        ordered: whether one task writes all rows of a Kafka partition, in the order of their offsets; with insert always.
        batch_rows, batch_bytes, batch_s: when the rows that were collected are written.
        connections: tasks at a time.
        retries, backoff_s: how often a task retries, and the first pause.
    """

    prefix: str
    mode: str
    delete_mode: str
    key_columns: tuple[str, ...]
    ordered: bool
    batch_rows: int
    batch_bytes: int
    batch_s: float
    connections: int
    retries: int
    backoff_s: float


def row_settings(config: Mapping[str, Any], prefix: str, mode: str = "", *, ordered: bool = False) -> RowSettings:
    """The values of the options of this module.

    Args:
        config: parsed values.
        prefix: of the sink.
        mode: of a sink without the option ``mode``.
        ordered: see ``RowSettings``.
    """
    chosen = mode or config[f"{prefix}mode"]
    return RowSettings(
        prefix=prefix,
        mode=chosen,
        delete_mode=config.get(f"{prefix}delete.mode", REAL),
        key_columns=tuple(config[f"{prefix}key.columns"]),
        ordered=ordered or chosen == INSERT,
        batch_rows=config[f"{prefix}batch.rows"],
        batch_bytes=config[f"{prefix}batch.bytes"],
        batch_s=config[f"{prefix}batch.ms"] / 1000,
        connections=config[f"{prefix}connections"],
        retries=config[f"{prefix}retries"],
        backoff_s=config[f"{prefix}retry.backoff.ms"] / 1000,
    )
