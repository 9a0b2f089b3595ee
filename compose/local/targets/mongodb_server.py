"""The program of a MongoDB stand-in: SecantusDB's server, with a login where one is asked for.

Run as a script: port, folder of the data, folder of the packages, user, password (both empty for no login).
"""

import signal
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> None:
    """Serve until a signal comes. Blocks."""
    port, data, packages, user, password = arguments
    sys.path.insert(0, packages)
    Path(data).mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {
        "port": int(port),
        "storage_path": data,
        "replica_set_name": None,
        "enable_test_commands": False,
    }
    if user:
        _create_user(options, user, password)
        options["require_auth"] = True
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with _build_server(options):
        stopped.wait()


def _build_server(options: dict[str, Any]) -> Any:
    secantus: Any = import_module("secantus")
    return secantus.SecantusDBServer(**options)


def _create_user(options: dict[str, Any], user: str, password: str) -> None:
    """Create the login as MongoDB's manual has it: by a server without logins, on a port of its own."""
    pymongo: Any = import_module("pymongo")
    with (
        _build_server({**options, "port": 0}) as server,
        pymongo.MongoClient(server.uri, directConnection=True) as client,
    ):
        if not client.admin.command("usersInfo", user)["users"]:
            client.admin.command("createUser", user, pwd=password, roles=["root"])


if __name__ == "__main__":
    main(sys.argv[1:])
