"""The demo's web server: an access log in nginx's form that is rotated, and the table that its lines make."""

import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: The table that the lines make.
REQUESTS = "web.requests"
#: The column that the connector adds: no line has it.
IDENTITY = "log_id"
RULES = r"""
tables:
  - name: requests
    groups:
      - name: access
        steps:
          - drop: {reason: health check}
            when: {contains: '"GET /health '}
          - regexExtract:
              pattern: '^(?P<address>\S+) - customer(?P<customer>\d+) \[(?P<time>[^\]]+)\] "(?P<method>[A-Z]+) (?P<path>\S+)
                [^"]+" (?P<status>\d{3}) (?P<bytes>\d+) "-" "shop/1.0" (?P<request>\d+)$'
          - saveAs:
              columns:
                - {name: request, type: long}
                - {name: customer, type: int}
                - {name: time, type: datetime, formats: ['dd/MMM/yyyy:HH:mm:ss Z']}
                - {name: method}
                - {name: path}
                - {name: status, type: int}
                - {name: bytes, type: long}
"""
_PATHS = ("/", "/cart", "/orders", "/items/anvil", "/items/drill", "/search?q=file")
_STATUSES = (200, 200, 200, 200, 304, 404, 500)


@dataclass
class AccessLog:
    """The log.

    Attributes:
        path: Where it is.
        counts: Lines so far by kind: requests, health checks (dropped), others (unknown).
    """

    path: Path
    counts: dict[str, int] = field(default_factory=lambda: {"requests": 0, "health checks": 0, "others": 0})
    _rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, chance: random.Random, customer: int) -> None:
        """Write the line of a request of a customer; every tenth time also one of another kind."""
        number = len(self._rows) + 1
        second = int(time.time())
        row = {
            "request": number,
            "customer": customer,
            "time": second * 1000,
            "method": chance.choice(("GET", "GET", "POST")),
            "path": chance.choice(_PATHS),
            "status": chance.choice(_STATUSES),
            "bytes": chance.randrange(20_000),
        }
        self._rows.append(row)
        shown_time = datetime.fromtimestamp(second, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        line = '127.0.0.1 - customer{customer} [{time}] "{method} {path} HTTP/1.1" {status} {bytes} "-" "shop/1.0" {request}'
        lines = [line.format(**{**row, "time": shown_time})]
        self.counts["requests"] += 1
        if number % 10 == 0:
            lines.append(f'127.0.0.1 - - [{shown_time}] "GET /health HTTP/1.1" 200 2 "-" "probe" -')
            self.counts["health checks"] += 1
        if number % 50 == 0:
            lines.append("signal process started")
            self.counts["others"] += 1
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def rotate(self) -> None:
        """Give the log another name, as logrotate does; the next line begins a new one."""
        self.path.rename(self.path.with_name(f"{self.path.name}.1"))

    def rows(self) -> list[dict[str, Any]]:
        """The rows that the table must hold now."""
        return [dict(row) for row in self._rows]
