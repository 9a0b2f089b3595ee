"""Free ports on the loopback address."""

import re
import socket
from collections.abc import Container
from pathlib import Path
from random import SystemRandom
from typing import Final

from compose.local.process.promises import open_promises
from worker.fetch.errors import StackError

LOOPBACK = "127.0.0.1"
#: Not the shared generator: who seeds that one, as property tests do, would have all programs choose the same ports.
_RANDOM: Final = SystemRandom()
_LOWEST = 20_000
_EPHEMERAL_DEFAULT = 32_768
#: How Java's RMI, Cassandra (between nodes, for clients) and asyncio say it.
_PORT_IN_USE = re.compile(
    r"Port already in use: (\d+)|:(\d+) is in use by another process|Failed to bind port (\d+) on"
    r"|while attempting to bind on address \('[^']*', (\d+)\)"
)


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on the port now. Connections in TIME_WAIT do not count as users."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def accepts_connections(port: int, host: str = LOOPBACK, timeout: float = 0.5) -> bool:
    """Whether something accepts connections on the port; waits at most `timeout` seconds."""
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return True
    except OSError:
        return False


def _ephemeral_start() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL_DEFAULT


def free_port(preferred: int | None = None, used_ports: Container[int] = (), host: str = LOOPBACK) -> int:
    """A port that is free now: the preferred one if possible, else a random one.

    Ports come from below the range the kernel uses for outgoing connections: a service that is killed and started
    again on its port would otherwise now and then find a client's connection on it. What other programs have chosen this way
    and don't use yet is left to them.

    Args:
        preferred: Port to take when it is free, whoever has chosen it.
        used_ports: Ports already promised to somebody who does not listen yet.
        host: Loopback address that it must be free on.

    Raises:
        StackError: No free port was found.
    """
    with open_promises() as promised:
        if preferred is not None and preferred not in used_ports and is_free(preferred, host):
            promised.add(preferred)
            return preferred
        highest = _ephemeral_start() - 1
        low, high = (_LOWEST, highest) if highest - _LOWEST > 1000 else (_LOWEST, 60_000)
        for _ in range(1000):
            port = _RANDOM.randint(low, high)
            if port not in used_ports and port not in promised and is_free(port, host):
                promised.add(port)
                return port
    raise StackError(f"no free port between {low} and {high} on {host}; stop some servers")


def free_ports(preferred: list[int | None], host: str = LOOPBACK) -> list[int]:
    """As many different free ports as there are entries, each the preferred one where that is free."""
    chosen: list[int] = []
    for preferred_port in preferred:
        chosen.append(free_port(preferred_port, chosen, host))  # each choice depends on those before
    return chosen


def taken_ports(said: str) -> set[int]:
    """The ports that a server's log says somebody else has. Pure."""
    return {int(number) for match in _PORT_IN_USE.finditer(said) for number in match.groups() if number}
