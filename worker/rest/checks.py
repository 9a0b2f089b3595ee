"""Checks that the REST layer makes before it processes a configuration, and the messages of its refusals. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.options import MASK
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLASS_OPTION: Final = "connector.class"
_NULL: Final = "Null value can not be supplied as the configuration value."


def missing_type(config: Mapping[str, str | None]) -> str | None:
    """Kafka Connect's text for a configuration without ``connector.class``, else None.

    Values are left out of it, since any of them may be a secret.
    """
    if config.get(CLASS_OPTION) is not None:
        return None
    values = {key: MASK if key != "name" else "null" if value is None else value for key, value in config.items()}
    shown = ", ".join(f"{key}={value}" for key, value in values.items())
    return f"Connector config {{{shown}}} contains no connector type"


def check_type(config: Mapping[str, str | None]) -> None:
    """Refuse a configuration without ``connector.class``.

    Raises:
        RestError: 400.
    """
    complaint = missing_type(config)
    if complaint is not None:
        raise RestError(400, complaint)


def check_no_nulls(config: Mapping[str, str | None]) -> dict[str, str]:
    """The configuration if no value is null.

    Raises:
        RestError: 400, with Kafka Connect's text.
    """
    nulls = sum(value is None for value in config.values())
    if nulls:
        raise RestError(400, invalid_text([_NULL] * nulls))
    return {name: value for name, value in config.items() if value is not None}


def invalid_text(errors: Sequence[str]) -> str:
    """Kafka Connect's text for a configuration that is refused."""
    listed = "".join(f"\n{error}" for error in errors)
    return (
        f"Connector configuration is invalid and contains the following {len(errors)} error(s):{listed}\n"
        "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
    )


def add_null_errors(infos: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """``infos``, made without the properties whose value was null, with a complaint about each of them."""
    by_name = {item["value"]["name"]: item["value"] for item in infos["configs"]}
    for name in names:
        value = by_name.get(name)
        if value is None:
            infos["configs"].insert(
                0,
                {
                    "definition": None,
                    "value": {
                        "name": name,
                        "value": None,
                        "recommended_values": [],
                        "errors": [_NULL],
                        "visible": True,
                    },
                },
            )
        else:
            others = [error for error in value["errors"] if not error.startswith("Missing required configuration ")]
            infos["error_count"] -= len(value["errors"]) - len(others)
            value.update(value=None, errors=[*others, _NULL])
        infos["error_count"] += 1
    return infos
