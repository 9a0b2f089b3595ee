"""Connections to MongoDB, and the errors of its driver as ours. Blocking."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Fatal, Retriable
from spark_jobs.sinks.mongodb.config import NAME, PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_jobs.sinks.mongodb.config import MongoSettings
    from spark_jobs.steps.lookup.model import LookupAccess

EXISTS: Final = 11000
#: Of a server that steps down, recovers, shuts down, is full or too busy, waits for others, or ran into another writer.
PASSING: Final = frozenset(
    {6, 7, 50, 64, 89, 91, 112, 134, 189, 202, 262, 317, 9001, 10107, 11600, 11602, 13435, 13436, 14031, 16500}
)
#: The login lacks a right.
RIGHT: Final = frozenset({13, 8000})
_LOGIN: Final = 18


def connect_mongodb(settings: MongoSettings) -> Any:
    """A client of the driver; connects with the first request. Retries are the caller's.

    Raises:
        ConfigInvalid: a file of TLS can't be read.
    """
    import pymongo

    access = settings.access
    wait_ms = int(access.timeout_s * 1000)
    options: dict[str, Any] = {
        "serverSelectionTimeoutMS": wait_ms,
        "connectTimeoutMS": wait_ms,
        "socketTimeoutMS": wait_ms,
        "retryReads": False,
        "retryWrites": False,
        "appname": "millrace",
        "tz_aware": True,
    }
    if "w=" not in settings.url:
        options |= {"w": "majority", "wTimeoutMS": wait_ms}
    if access.user:
        options |= {"username": access.user, "password": access.password}
    _demand_files(access)
    with _key_file(access) as certificate:
        options |= _tls_options(settings, certificate)
        return pymongo.MongoClient(settings.url, **options)


def _tls_options(settings: MongoSettings, certificate: str) -> dict[str, Any]:
    access = settings.access
    mode = access.ssl_mode
    if mode == "disable":
        return {"tls": False}
    asked = any(sign in settings.url for sign in ("+srv:", "tls=true", "ssl=true"))
    if mode == "prefer" and not asked:
        return {}
    options: dict[str, Any] = {"tls": True}
    if mode == "require":
        options["tlsAllowInvalidCertificates"] = True
    elif mode == "verify-ca":
        options["tlsAllowInvalidHostnames"] = True
    if access.ssl_root_cert:
        options["tlsCAFile"] = access.ssl_root_cert
    if certificate:
        options["tlsCertificateKeyFile"] = certificate
    return options


def _demand_files(access: LookupAccess) -> None:
    for path in (access.ssl_root_cert, access.ssl_cert, access.ssl_key):
        if path and not Path(path).is_file():
            raise ConfigInvalid(
                f"{NAME} {access.address}: {PREFIX}ssl.root.cert, ssl.cert or ssl.key can't be read: {path}; the files must be "
                "on every machine that runs tasks"
            )


@contextmanager
def _key_file(access: LookupAccess) -> Iterator[str]:
    """The file with certificate and key, which the driver wants in one; it reads it once, when the client is made."""
    certificate, key = access.ssl_cert or "", access.ssl_key or ""
    if certificate == key:
        yield certificate
        return
    with tempfile.NamedTemporaryFile("wb", suffix=".pem") as file:  # of this user alone
        file.write(Path(certificate).read_bytes() + b"\n" + Path(key).read_bytes())
        file.flush()
        yield file.name


@contextmanager
def translate_errors(settings: MongoSettings) -> Iterator[None]:
    """Turns the driver's errors into ours."""
    from pymongo import errors as mongo

    where = f"{NAME} {settings.access.address}"
    try:
        yield
    except (mongo.ConfigurationError, mongo.InvalidURI) as error:
        raise Fatal(f"{where}: {error}. Correct {PREFIX}url or {PREFIX}ssl.*") from error
    except mongo.OperationFailure as error:
        raise explain_code(settings, error.code, _find_error_message(error)) from error
    except (mongo.ConnectionFailure, mongo.WTimeoutError, OSError) as error:
        raise Retriable(f"{where} does not answer: {_shorten_error(error)}") from error
    except mongo.PyMongoError as error:
        raise Fatal(f"{where}: {error}") from error


def explain_code(settings: MongoSettings, code: int | None, message: str) -> Retriable | Fatal:
    """The error of ours for a code of the server. Pure."""
    where = f"{NAME} {settings.access.address}"
    if code == _LOGIN:
        return Fatal(f"{where}: {message}. Correct {PREFIX}user and {PREFIX}password, or authSource in {PREFIX}url")
    if code in PASSING:
        return Retriable(f"{where}: {message}")
    if code in RIGHT:
        return Fatal(f"{where}: {message}. Give the login ({PREFIX}user) the role readWrite in the database")
    return Fatal(f"{where}: {message} (code {code}). Correct {PREFIX}database, {PREFIX}collection or the server")


def _find_error_message(error: Any) -> str:
    return str((error.details or {}).get("errmsg") or error).rstrip(".")


def _shorten_error(error: Exception) -> str:
    """Without the description of all servers that the driver knows, which follows."""
    return str(error).partition(", Timeout:")[0]
