"""Requests of the Terraform provider of Mongey, a Go client (resty 1).

It retries a 409 five times, after half a second and then longer; 404 is read as an answer where it asks for a connector. It
compares what it has written with what it reads, as strings: a plan is empty only where both are the same.
"""

from __future__ import annotations

from msgspec import Struct

from .common import CONFIG, JSON, TaskId
from .replay import Call, Client


class TfConnector(Struct):
    name: str
    config: dict[str, str]
    tasks: list[TaskId]


_TF_CONFIG = {**CONFIG, "name": "{name}"}
TERRAFORM = Client(
    "Terraform",
    {"Accept": JSON, "User-Agent": "go-resty/1.12.0", "Accept-Encoding": "gzip"},
    (
        Call("create", "POST", "/connectors", (201,), TfConnector, {"name": "{name}", "config": _TF_CONFIG}),
        Call("created", "GET", "/connectors/{name}", reads=TfConnector, until=lambda read: bool(read.tasks)),
        Call("update", "PUT", "/connectors/{name}/config", (200,), TfConnector, {**_TF_CONFIG, "batch.size": "20"}),
        Call("updated", "GET", "/connectors/{name}/config", reads=dict[str, str]),
        Call("wrong update", "PUT", "/connectors/{name}/config", (400,), body={**_TF_CONFIG, "batch.size": "many"}),
        Call("as it was", "GET", "/connectors/{name}/config", reads=dict[str, str]),
        Call("delete", "DELETE", "/connectors/{name}", (204,)),
        Call("gone", "GET", "/connectors/{name}", (404,)),
    ),
    body_headers={"Content-Type": "application/json; charset=utf-8"},
    attempts=5,
    delay_s=0.5,
    connector="terraform-{id}",
    encoded="terraform-{id}",
)
