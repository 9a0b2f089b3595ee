"""TLS of lookups in systems without a driver that reads libpq's options."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from connectors.errors import ConfigInvalid
from connectors.tls import client_context

if TYPE_CHECKING:
    from spark_jobs.steps.lookup.model import LookupAccess


def make_tls_context(access: LookupAccess, *, always: bool = False) -> ssl.SSLContext | None:
    """The context of connections; None for plain ones. Reads files: blocks for a moment.

    Args:
        access: of the system.
        always: whether the address asks for TLS (``https``, ``rediss``): then the server is verified unless
            ``ssl.mode=require`` says otherwise.

    Raises:
        ConfigInvalid: a file can't be read.
    """
    mode = access.ssl_mode
    if mode in ("disable", "prefer"):
        if not always:
            return None
        mode = "verify-full"
    try:
        tls = client_context(access.ssl_root_cert)
        if access.ssl_cert:
            tls.load_cert_chain(access.ssl_cert, access.ssl_key)
    except OSError as error:
        raise ConfigInvalid(
            f"{access.address}: ssl.root.cert, ssl.cert or ssl.key can't be read: {error}; the files must be on every "
            "machine that runs tasks"
        ) from error
    tls.check_hostname = mode == "verify-full"
    if mode == "require":
        tls.verify_mode = ssl.CERT_NONE
    return tls
