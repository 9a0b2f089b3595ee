"""Sets of executed transactions, by GTID, of MySQL and MariaDB.

MariaDB's is one transaction per replication domain: the last one, with all before it in the domain. MySQL's are intervals of
numbers per server (uuid) and tag. Not thread-safe; nothing blocks. A string that is no such set raises ``ConfigInvalid``.
"""

from __future__ import annotations

import functools
import re
import struct
from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.mysql.model import MARIADB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_TAG: Final = re.compile(r"[a-z_][a-z0-9_]{0,31}", re.ASCII)
_INTERVAL: Final = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?", re.ASCII)
_MARIADB: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})", re.ASCII)
_U64: Final = struct.Struct("<Q")
_PAIR: Final = struct.Struct("<QQ")

#: Source of MySQL's transactions: the server's uuid and the tag, "" for none.
_Source = tuple[str, str]


class GtidSet(ABC):
    """Transactions that were executed. Sets of different flavors can't be combined."""

    __slots__ = ()

    @abstractmethod
    def text(self) -> str:
        """As the server writes it; "" if empty."""

    @abstractmethod
    def add(self, gtid: str) -> None:
        """Include one transaction."""

    @abstractmethod
    def contains(self, gtid: str) -> bool:
        """Whether one transaction is included."""

    @abstractmethod
    def is_subset(self, gtids: Self) -> bool:
        """Whether ``gtids`` includes everything that this includes."""

    @abstractmethod
    def union(self, gtids: Self) -> Self:
        """A new set with all of both."""

    @abstractmethod
    def retain(self, keep: Callable[[str], bool]) -> Self:
        """A new set of the sources that ``keep`` accepts: MySQL's uuid, MariaDB's ``domain-server``."""

    @abstractmethod
    def copy(self) -> Self:
        """A set of its own with the same transactions."""

    def __bool__(self) -> bool:
        return bool(self.text())

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, GtidSet) and self.text() == other.text()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text()!r})"


def parse_gtids(flavor: str, source: str) -> GtidSet:
    """The set that a server of this flavor writes so; line breaks and spaces do not count.

    Raises:
        ConfigInvalid: the text is no GTID set of the flavor.
    """
    return MariaDbGtids.parse(source) if flavor == MARIADB else MySqlGtids.parse(source)


def lacking_text(flavor: str, read: str, executed: str) -> str:
    """Of MySQL, the transactions of ``read`` that are not in ``executed``; "" for MariaDB, whose sets don't tell."""
    read_set, executed_set = parse_gtids(flavor, read), parse_gtids(flavor, executed)
    if not isinstance(read_set, MySqlGtids) or not isinstance(executed_set, MySqlGtids):
        return ""
    return read_set.minus(executed_set).text()


class MariaDbGtids(GtidSet):
    """The last transaction of each domain."""

    __slots__ = ("_domain", "_newest", "_settled", "_text")

    def __init__(self, last: dict[int, tuple[int, int]] | None = None) -> None:
        self._settled = last or {}
        self._text: str | None = None
        #: Where all are of one domain: that, as text, and the last one, which ``_settled`` gets when somebody asks.
        self._domain = ""
        self._newest = ""

    @property
    def _last_by_domain(self) -> dict[int, tuple[int, int]]:
        if self._newest:
            domain, server, sequence = _parse_mariadb(self._newest)
            self._settled[domain] = (server, sequence)
            self._newest = ""
        return self._settled

    @classmethod
    def parse(cls, source: str) -> MariaDbGtids:
        """See ``parse_gtids``; of several transactions of a domain (Debezium has one per server) the highest counts."""
        last: dict[int, tuple[int, int]] = {}
        for part in "".join(source.split()).split(","):
            if part:
                domain, server, sequence = _parse_mariadb(part)
                if domain not in last or last[domain][1] < sequence:
                    last[domain] = (server, sequence)
        return cls(last)

    def text(self) -> str:
        """See ``GtidSet``; in the order of the domains."""
        if self._text is None:
            self._text = ",".join(
                f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self._last_by_domain.items())
            )
        return self._text

    def add(self, gtid: str) -> None:
        """See ``GtidSet``. It becomes its domain's last one, also if its number is lower than that of the one before."""
        domain = gtid.partition("-")[0]
        if domain == self._domain:  # nearly always, for every transaction: it costs a tenth
            self._newest = self._text = gtid
            return
        number, server, sequence = _parse_mariadb(gtid)
        self._last_by_domain[number] = (server, sequence)
        self._text = None
        self._domain = domain if len(self._settled) == 1 else ""

    def contains(self, gtid: str) -> bool:
        """See ``GtidSet``."""
        domain, _, sequence = _parse_mariadb(gtid)
        last_gtid = self._last_by_domain.get(domain)
        return last_gtid is not None and last_gtid[1] >= sequence

    def is_subset(self, gtids: MariaDbGtids) -> bool:
        """See ``GtidSet``."""
        return all(
            domain in gtids._last_by_domain and gtids._last_by_domain[domain][1] >= number
            for domain, (_, number) in self._last_by_domain.items()
        )

    def union(self, gtids: MariaDbGtids) -> MariaDbGtids:
        """See ``GtidSet``."""
        last = dict(self._last_by_domain)
        for domain, entry in gtids._last_by_domain.items():
            if domain not in last or last[domain][1] < entry[1]:
                last[domain] = entry
        return MariaDbGtids(last)

    def retain(self, keep: Callable[[str], bool]) -> MariaDbGtids:
        """See ``GtidSet``."""
        return MariaDbGtids(
            {domain: entry for domain, entry in self._last_by_domain.items() if keep(f"{domain}-{entry[0]}")}
        )

    def copy(self) -> MariaDbGtids:
        """See ``GtidSet``."""
        return MariaDbGtids(dict(self._last_by_domain))


def _parse_mariadb(gtid: str) -> tuple[int, int, int]:
    match = _MARIADB.fullmatch(gtid)
    if match is None:
        raise ConfigInvalid(f"{gtid!r} is no GTID of MariaDB: the form is DOMAIN-SERVER-NUMBER, such as 0-1-100")
    return int(match[1]), int(match[2]), int(match[3])


class MySqlGtids(GtidSet):
    """Intervals of numbers per source; each ``[first, one after the last]``, in order and with gaps between."""

    __slots__ = ("_intervals", "_source_texts")

    def __init__(self, intervals: dict[_Source, list[list[int]]] | None = None) -> None:
        self._intervals = intervals or {}
        self._source_texts: dict[_Source, str] = {}

    @classmethod
    def parse(cls, raw: str) -> MySqlGtids:
        """See ``parse_gtids``: ``uuid:1-5:7,uuid:1:tag:3-4``."""
        gtids = cls()
        for part in "".join(raw.split()).lower().split(","):
            if not part:
                continue
            uuid, *items = part.split(":")
            if not _UUID.fullmatch(uuid) or not items:
                raise _no_mysql(part)
            tag = ""
            for item in items:
                interval = _INTERVAL.fullmatch(item)
                if interval is None:
                    if not _TAG.fullmatch(item):
                        raise _no_mysql(part)
                    tag = item
                    continue
                first = int(interval[1])
                last = int(interval[2] or first)
                if not 0 < first <= last:
                    raise _no_mysql(part)
                gtids.include((uuid, tag), first, last + 1)
        return gtids

    @classmethod
    def decode(cls, data: bytes) -> MySqlGtids:
        """The set in the form of the wire: of a PREVIOUS_GTIDS event, without its header; see ``encoded``."""
        gtids = cls()
        try:
            head, at = _U64.unpack_from(data)[0], 8
            tagged = bool(head >> 56)
            for _ in range(head >> 8 & (1 << 48) - 1 if tagged else head):
                uuid, tag = data[at : at + 16].hex(), ""
                at += 16
                if tagged:
                    length = data[at] >> 1
                    tag = data[at + 1 : at + 1 + length].decode("ascii")
                    at += 1 + length
                count = _U64.unpack_from(data, at)[0]
                at += 8
                source = (f"{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}", tag)
                for _ in range(count):
                    gtids.include(source, *_PAIR.unpack_from(data, at))
                    at += 16
        except (IndexError, ValueError, struct.error) as error:
            raise ConfigInvalid(
                f"a GTID set of {len(data)} bytes is cut or not of the known form: {data[:64].hex()}"
            ) from error
        return gtids

    def encoded(self) -> bytes:
        """The form of the wire, as COM_BINLOG_DUMP_GTID takes it: with tags only if there are some."""
        sources = sorted(self._intervals.items())
        tagged = any(tag for (_, tag), _ in sources)
        parts = [_U64.pack(1 << 56 | len(sources) << 8 | 1 if tagged else len(sources))]
        for (uuid, tag), intervals in sources:
            parts.append(bytes.fromhex(uuid.replace("-", "")))
            if tagged:
                parts.append(bytes((len(tag) << 1,)) + tag.encode("ascii"))
            parts.append(_U64.pack(len(intervals)))
            parts.extend(_PAIR.pack(first, stop) for first, stop in intervals)
        return b"".join(parts)

    def text(self) -> str:
        """See ``GtidSet``; in the order of uuid and tag, the same uuid written once."""
        source_texts, before = self._source_texts, ""
        parts: list[str] = []
        for source in sorted(self._intervals):
            part = source_texts.get(source)
            if part is None:
                part = source_texts[source] = _intervals_text(self._intervals[source])
            uuid, tag = source
            name = f":{tag}" if tag else ""
            parts.append(f"{name}{part}" if uuid == before else f"{',' if parts else ''}{uuid}{name}{part}")
            before = uuid
        return "".join(parts)

    def add(self, gtid: str) -> None:
        """See ``GtidSet``."""
        source, number = _parse_mysql(gtid)
        intervals = self._intervals.get(source)
        if intervals and intervals[-1][1] == number:
            intervals[-1][1] = number + 1
            self._source_texts.pop(source, None)
        else:
            self.include(source, number, number + 1)

    def include(self, source: _Source, first: int, stop: int) -> None:
        """Add the numbers from ``first`` up to ``stop``, which is not one of them."""
        self._source_texts.pop(source, None)
        intervals = self._intervals.setdefault(source, [])
        at = bisect_left(intervals, first, key=lambda interval: interval[1])
        end = at
        while end < len(intervals) and intervals[end][0] <= stop:
            first, stop = min(first, intervals[end][0]), max(stop, intervals[end][1])
            end += 1
        intervals[at:end] = [[first, stop]]

    def contains(self, gtid: str) -> bool:
        """See ``GtidSet``."""
        source, number = _parse_mysql(gtid)
        return _covers_range(self._intervals.get(source, ()), number, number + 1)

    def is_subset(self, gtids: MySqlGtids) -> bool:
        """See ``GtidSet``."""
        return all(
            _covers_range(gtids._intervals.get(source, ()), first, stop)
            for source, intervals in self._intervals.items()
            for first, stop in intervals
        )

    def minus(self, gtids: MySqlGtids) -> MySqlGtids:
        """A new set of those that ``gtids`` does not include."""
        rest = MySqlGtids()
        for source, intervals in self._intervals.items():
            for start, stop in intervals:
                first = start
                for begin, end in gtids._intervals.get(source, ()):
                    if first < end and begin < stop:
                        if first < begin:
                            rest.include(source, first, begin)
                        first = end
                if first < stop:
                    rest.include(source, first, stop)
        return rest

    def union(self, gtids: MySqlGtids) -> MySqlGtids:
        """See ``GtidSet``."""
        both = self.copy()
        for source, intervals in gtids._intervals.items():
            for first, stop in intervals:
                both.include(source, first, stop)
        return both

    def retain(self, keep: Callable[[str], bool]) -> MySqlGtids:
        """See ``GtidSet``."""
        return MySqlGtids(
            {
                source: [list(interval) for interval in intervals]
                for source, intervals in self._intervals.items()
                if keep(source[0])
            }
        )

    def copy(self) -> MySqlGtids:
        """See ``GtidSet``."""
        return self.retain(lambda _: True)


def _covers_range(intervals: Iterable[Iterable[int]], first: int, stop: int) -> bool:
    return any(begin <= first and stop <= end for begin, end in intervals)


def _intervals_text(intervals: list[list[int]]) -> str:
    return "".join(f":{first}" if stop == first + 1 else f":{first}-{stop - 1}" for first, stop in intervals)


def _parse_mysql(gtid: str) -> tuple[_Source, int]:
    head, _, number = gtid.rpartition(":")
    source = _mysql_source(head) if number.isascii() and number.isdigit() else None
    if source is None:
        raise _no_mysql(gtid)
    return source, int(number)


@functools.lru_cache(maxsize=128)
def _mysql_source(source_name: str) -> _Source | None:
    """The uuid and the tag of ``uuid`` or ``uuid:tag``; None for other text. Few of them make all transactions of a server."""
    uuid, _, tag = source_name.partition(":")
    return (uuid, tag) if _UUID.fullmatch(uuid) and (not tag or _TAG.fullmatch(tag)) else None


def _no_mysql(source: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"{source!r} is no GTID set of MySQL: the form is UUID:FIRST-LAST, such as "
        "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7, and UUID:TAG:FIRST-LAST with a tag"
    )
