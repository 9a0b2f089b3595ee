"""The user that a client certificate stands for: its subject, and rules that make a name of it (KIP-371's). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cryptography import x509

from connectors.errors import ConfigInvalid

_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|\Z)")
#: ``$1`` in a replacement, as Java writes it.
_GROUP: Final = re.compile(r"\\(.)|\$(\d)")


@dataclass(frozen=True, slots=True)
class CertificateRule:
    """One rule; without a pattern the whole subject is the name."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """The name, or None if the rule is not for this subject."""
        if self.pattern is None:
            return subject
        # Match the whole subject, as in brokers: a rule without a $ does not match a longer subject that begins the same.
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        name = _GROUP.sub(lambda reference: reference[1] or match[int(reference[2])] or "", self.replacement)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def parse_rules(raw: str) -> tuple[CertificateRule, ...]:
    """Rules from ``RULE:pattern/replacement/[LU],...,DEFAULT``, as ``ssl.principal.mapping.rules`` of brokers has them.

    Raises:
        ConfigInvalid: a rule can't be understood.
    """
    rules: list[CertificateRule] = []
    at = 0
    while at < len(raw):
        match = _RULE.match(raw, at)
        if match is None:
            raise ConfigInvalid(
                f"rest.auth.certificate.rules: '{raw[at:]}' is no rule; write RULE:pattern/replacement/ "
                "(with L or U behind it for lower or upper case) or DEFAULT, separated by commas"
            )
        at = match.end()
        if match[1]:
            rules.append(CertificateRule())
            continue
        try:
            pattern = re.compile(match[2].replace("\\/", "/"))
        except re.error as error:
            raise ConfigInvalid(
                f"rest.auth.certificate.rules: '{match[2]}' is not a regular expression: {error}"
            ) from error
        if any(int(group) > pattern.groups for _, group in _GROUP.findall(match[3]) if group):
            raise ConfigInvalid(
                f"rest.auth.certificate.rules: '{match[3]}' names a group that '{match[2]}' does not have"
            )
        rules.append(CertificateRule(pattern, match[3].replace("\\/", "/"), match[4]))
    return tuple(rules)


def name_of(subject: str, rules: tuple[CertificateRule, ...]) -> str | None:
    """The user's name by the first rule that is for the subject, or None."""
    return next((name for rule in rules if (name := rule.apply(subject)) is not None), None)


def subject_of(certificate: bytes) -> str:
    """The subject of a DER certificate as RFC 2253 writes it: ``CN=ada,OU=ops,O=example``.

    Raises:
        ValueError: it can't be read.
    """
    return x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
