"""Access control: roles, the connectors they are for, and the role that each operation requires. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from connectors.errors import ConfigInvalid
from worker.rest.facade import RestError
from worker.rest.routing import RequiredAccess

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from worker.rest.routing import RestRoute

#: Each role includes those before it.
_ORDER: Final = {RequiredAccess.READ: 1, RequiredAccess.OPERATE: 2, RequiredAccess.ADMIN: 3}
_GRANT: Final = re.compile(r"\s*(?P<role>[a-z]+)\s*(?::(?P<pattern>.*))?\Z", re.DOTALL)
_BETWEEN: Final = re.compile(r",(?=\s*(?:read|operate|admin)\s*(?:[:,]|\Z))")
#: All grants of one caller together: they travel in a header between workers.
_LONGEST: Final = 4096
#: Operations that name no connector and show or change nothing of a certain one (the list of connectors is filtered, a new
#: connector's name is checked): any connector's grant is enough. All others need a grant for every connector.
_OF_NO_CONNECTOR: Final = frozenset(
    (
        "/",
        "/connectors",
        "/connector-plugins",
        "/connector-plugins/{plugin}/config",
        "/connector-plugins/{plugin}/config/validate",
        "/console/connectors",
        "/console/events",
        "/console/pipeline",
        "/console/providers",
        "/console/rules/operators",
        "/console/rules/read",
        "/console/session",
        "/console/tables",
        "/console/topics",
        "/console/topics/{topic}",
        "/flows/plan",
        "/flows/preview",
        "/openapi.json",
        "/rules/diff",
        "/rules/preview",
        "/rules/propose",
    )
)


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, for the connectors whose whole name matches ``pattern``; None: for the whole cluster."""

    access: RequiredAccess
    pattern: re.Pattern[str] | None = None

    @classmethod
    def parse(cls, raw: str) -> Self:
        """A grant from ``role`` or ``role:regular expression``.

        Raises:
            ConfigInvalid: no such role, or not a regular expression.
        """
        match = _GRANT.match(raw)
        if match is None or match["role"] not in {str(role) for role in _ORDER}:
            raise ConfigInvalid(
                f"'{raw.strip()}' is no role: write read, operate or admin, with a colon and a regular "
                "expression behind it if it is only for the connectors of certain names (operate:sales-.*)"
            )
        if match["pattern"] is None:
            return cls(RequiredAccess(match["role"]))
        try:
            return cls(RequiredAccess(match["role"]), re.compile(match["pattern"].strip()))
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigInvalid(
                f"'{raw.strip()}': the connectors' names are not a regular expression: {error}"
            ) from error

    def __str__(self) -> str:
        return str(self.access) if self.pattern is None else f"{self.access}:{self.pattern.pattern}"


def parse_grants(raw: str) -> tuple[Grant, ...]:
    """Return all grants of a comma-separated list; expressions may hold commas.

    Raises:
        ConfigInvalid: one is wrong, the list is empty, or together they are too long.
    """
    return checked_grants(_BETWEEN.split(raw))


def checked_grants(raw_grants: Iterable[str]) -> tuple[Grant, ...]:
    """Return grants from a list of strings; see ``parse_grants``."""
    grants = tuple(Grant.parse(item) for item in raw_grants)
    if not grants or sum(len(str(grant)) + 3 for grant in grants) > _LONGEST:
        raise ConfigInvalid(f"there must be a role, and all of a user's roles together at most {_LONGEST} characters")
    return grants


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request.

    Attributes:
        name: the user's, the token's or the certificate's name.
        method: the way of authentication: basic, bearer, certificate, worker, or none where it is not required.
        grants: what this caller may do.
    """

    name: str
    method: str
    grants: tuple[Grant, ...]

    def may(self, needed: RequiredAccess, connector: str | None = None) -> bool:
        """Whether the role is there for a connector, or for the whole cluster (None)."""
        return any(
            _ORDER[grant.access] >= _ORDER[needed]
            and (grant.pattern is None or (connector is not None and grant.pattern.fullmatch(connector) is not None))
            for grant in self.grants
        )

    def may_for_some(self, needed: RequiredAccess) -> bool:
        """Whether the role is there for some connector at least."""
        return any(_ORDER[grant.access] >= _ORDER[needed] for grant in self.grants)

    def require(self, needed: RequiredAccess, connector: str | None = None) -> None:
        """Refuse what this caller may not do.

        Raises:
            RestError: 403, naming the role and the connector.
        """
        if not self.may(needed, connector):
            raise refuse_access(self, needed, connector)


#: Without authentication everybody may do everything, as in Kafka Connect.
ANYBODY: Final = Principal("anonymous", "none", (Grant(RequiredAccess.ADMIN),))


def refuse_access(principal: Principal, needed: RequiredAccess, connector: str | None) -> RestError:
    """The answer to a caller without the role."""
    where = "for the whole cluster" if connector is None else f"for the connector {connector}"
    return RestError(403, f"{principal.name} needs the role '{needed}' {where}")


def needed_access(route: RestRoute, *, metrics_public: bool) -> RequiredAccess:
    """Return the access that an operation requires of its caller."""
    if metrics_public and route.path == "/metrics":
        return RequiredAccess.PUBLIC
    return route.access


def check_access(principal: Principal, route: RestRoute, needed: RequiredAccess, connector: str | None) -> None:
    """Refuse an operation that the caller may not do.

    Raises:
        RestError: 403.
    """
    if connector is None and route.path in _OF_NO_CONNECTOR:
        if not principal.may_for_some(needed):
            raise RestError(403, f"{principal.name} needs the role '{needed}'")
        return
    principal.require(needed, connector)


def readable_names(principal: Principal, names: Sequence[str]) -> list[str]:
    """Those of the connectors that the caller may read."""
    return [name for name in names if principal.may(RequiredAccess.READ, name)]
