"""``millrace hash-password`` and ``hash-token``: lines for the files that say who may call the REST API."""

from __future__ import annotations

import getpass
import sys
import time
from typing import TYPE_CHECKING, Any

from connectors.errors import ConfigInvalid
from worker.rest.security.access import parse_grants
from worker.rest.security.identities import make_token, parse_tokens, parse_users
from worker.rest.security.passwords import hash_password

if TYPE_CHECKING:
    import argparse

_ROLE = (
    "read, operate or admin; with a colon and a regular expression behind it for the connectors of certain names "
    "(operate:sales-.*). May be given several times (default read)"
)


def add_commands(commands: Any) -> None:
    """Add the commands to a parser's subparsers."""
    password = commands.add_parser(
        "hash-password",
        help="make a line for rest.auth.users.file",
        description="Asks for a password (or reads it from standard input) and prints the user's line; nothing is stored.",
    )
    password.add_argument("user", metavar="NAME", help="the user's name")
    password.add_argument("--role", action="append", metavar="ROLE", help=_ROLE)
    password.set_defaults(run=_hash_password)

    token = commands.add_parser(
        "hash-token",
        help="make a token and its line for rest.auth.tokens.file",
        description="Prints a new random token on standard error, and the line that knows it on standard output.",
    )
    token.add_argument("owner", metavar="NAME", help="what the token is for")
    token.add_argument("--role", action="append", metavar="ROLE", help=_ROLE)
    token.add_argument("--expires", metavar="TIME", help="when it ends: 2027-01-31, or with a time behind a T")
    token.set_defaults(run=_hash_token)


def _hash_password(options: argparse.Namespace) -> int:
    roles = _format_roles(options)
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise ConfigInvalid("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    line = f"{hash_password(password)},{roles}"
    parse_users({options.user: line})
    sys.stdout.write(f"{property_key(options.user)}={line}\n")
    return 0


def _hash_token(options: argparse.Namespace) -> int:
    token, digest = make_token()
    line = f"{digest},{_format_roles(options)}" + (f",expires={options.expires}" if options.expires else "")
    (parsed,) = parse_tokens({options.owner: line}).values()
    if parsed.expires is not None and parsed.expires <= time.time():
        raise ConfigInvalid(f"--expires {options.expires} is over already: the token would never be accepted")
    sys.stderr.write(f"token: {token}\n")
    sys.stdout.write(f"{property_key(options.owner)}={line}\n")
    return 0


def _format_roles(options: argparse.Namespace) -> str:
    # A property file takes a backslash for an escape.
    return ",".join(str(grant) for grant in parse_grants(",".join(options.role or ["read"]))).replace("\\", "\\\\")


def property_key(name: str) -> str:
    """A name as the key of a property file."""
    return "".join(f"\\{letter}" if letter in "=:#! \\" else letter for letter in name)
