"""Secrets from a vault that speaks HashiCorp Vault's HTTP API: a small provider that does all that the contract asks for."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from connectors.errors import ConfigInvalid, Retriable
from worker.secrets.providers import ConfigData, ConfigProvider

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_TIMEOUT_S: Final = 10.0


class VaultConfigProvider(ConfigProvider):
    """``${vault:MOUNT/data/PATH:KEY}``."""

    contract: ClassVar[int] = 1
    aliases: ClassVar[tuple[str, ...]] = ("VaultConfigProvider",)

    def __init__(self, parameters: Mapping[str, str]) -> None:
        try:
            self._address = parameters["address"].rstrip("/")
            self._token_file = Path(parameters["token.file"])
        except KeyError as error:
            raise ConfigInvalid(f"{error.args[0]} is missing: set address (https://...) and token.file") from None
        if not self._address.startswith(("http://", "https://")):
            raise ConfigInvalid(f"address is {self._address}: it must begin with https:// (or http://)")

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        """See ``ConfigProvider.get``: what a secret holds now, for as long as the vault's lease says."""
        try:
            # The token is read each time: it may be rotated too.
            token = self._token_file.read_text("utf-8").strip()
            request = urllib.request.Request(f"{self._address}/v1/{path}", headers={"X-Vault-Token": token})  # noqa: S310
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - the scheme was checked
                secret = json.load(answer)
            values, lease_s = secret["data"]["data"], int(secret.get("lease_duration", 0))
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                raise Retriable(f"the vault at {self._address} answers with status {error.code}") from error
            raise ConfigInvalid(
                f"the vault at {self._address} refuses {path} with status {error.code}: check the path, and "
                "what the token's policy allows"
            ) from error
        except OSError as error:
            raise Retriable(f"the vault at {self._address} does not answer: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigInvalid(
                f"the vault's answer for {path} is none of a key-value secret: is it MOUNT/data/PATH?"
            ) from error
        data = {key: str(values[key]) for key in keys if key in values}
        return ConfigData(data, lease_s * 1000 if lease_s else None)
