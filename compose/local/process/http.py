"""Small blocking HTTP calls to services on the loopback address."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any


def send_request(
    method: str, url: str, body: object = None, timeout: float = 30.0, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """Send a request and return the status with the decoded JSON body (None when empty, text when it is not JSON).

    An error status is an answer, not an exception. Proxies named in the environment are not used. Blocks.

    Args:
        method: For instance `GET`.
        url: Where to.
        body: What to send as JSON; None for no body.
        timeout: Seconds without any byte after which it is given up.
        headers: Headers in addition to the content type of JSON.

    Raises:
        OSError: There was no answer.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310  # http, to our own services
        url, data=data, method=method, headers={"Content-Type": "application/json", **(headers or {})}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout) as response:
            status, raw = response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            status, raw = error.code, error.read()
    if not raw.strip():
        return status, None
    try:
        return status, json.loads(raw)
    except ValueError:
        return status, raw.decode("utf-8", "replace")


def is_answering(url: str, status: int = 200, timeout: float = 2.0) -> bool:
    """Whether a GET of the URL is answered with that status."""
    try:
        return send_request("GET", url, timeout=timeout)[0] == status
    except OSError:
        return False
