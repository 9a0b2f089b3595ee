"""Keeping secrets out of everything that leaves the process: answers, errors, traces and logs.

There are two mechanisms: known secret values are masked wherever they occur, and strings that look like a secret
(``password=...``, a URL with a password in it) are masked even if the value is not known.

A known secret that is a common word is masked only in the position of a secret: next to a word such as "password", after
the name of its option, between a colon and an ``@``. A common word is short, made of letters, and either well known or a word
of the configurations that is not secret (a group, a database, a topic): masked everywhere, it would make those unreadable.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import traceback
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus, unquote

from connectors.options import MASK
from worker.secrets.providers import only_references

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from connectors.options import ConfigKey

#: Shorter values are not masked in messages: they would mask half of every message.
SHORTEST: Final = 4
#: Secrets known at a time; the oldest are forgotten beyond it.
MOST_SECRETS: Final = 8192
# Up to this many secrets, one search per secret is faster than a lookup at each position of the message.
_MOST_SINGLE_SEARCHES: Final = 48

_SECRET_NAME: Final = re.compile(
    r"passw(?:or)?d|passphrase|secret|token|credential|jaas\.config|(?:key|user\.info|authorization)\Z", re.IGNORECASE
)
#: Options whose value is a name and a password with a colon between.
_USER_INFO: Final = re.compile(r"user\.info\Z", re.IGNORECASE)
# Names that match but hold something about a secret, or a key of another kind.
_HARMLESS_NAME: Final = re.compile(
    r"(?:primary|partition|message|record|row|foreign|unique|sort|cluster|routing|route|document|dedup|group|public|from)"
    r"[._-]?key\Z|^key\Z"
    r"|[._-](?:url|uri|endpoint|file|path|location|class|provider|name|type|format|enabled?|required|ms|seconds|interval|timeout"
    r"|ttl|audience|issuer|scope|algorithm|source)\Z",
    re.IGNORECASE,
)
_HARMLESS_VALUES: Final = frozenset(("true", "false", "null", "none", "default", MASK))

#: From the slashes on: to look for the scheme's begin would go through a long word once for each of its letters.
_URL: Final = re.compile(r"(://)([^\s/?#:@\"']*):([^\s/?#\"']+)@")
_ASSIGNED: Final = re.compile(
    r"((?:passw(?:or)?d|passphrase|secret|token|credentials?|(?:api|access|account|private|shared|secret)[._-]?key)[\"']?\s*[=:]\s*)"
    # A quote without an end: the text was cut.
    r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[\"'][^\r\n]+|[^\s,;&}\])\"']+)",
    re.IGNORECASE | re.DOTALL,
)
#: The header, as HTTP and representations of requests have it.
_AUTHORIZATION: Final = re.compile(
    r"(authorization[\"']?\s*[:=,]\s*[\"']?[a-z0-9-]+\s+)([a-z0-9+/=._~-]{4,})", re.IGNORECASE
)
# Every name that _ASSIGNED finds contains one of these; to look for them first is twenty times as fast.
_HINTS: Final = ("pass", "secret", "token", "credential", "key")
_JAAS_VALUE: Final = re.compile(
    r"(?:password|secret|token|keyPassword|storePassword|clientSecret)\s*=\s*"
    r"(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;]+))",
    re.IGNORECASE,
)

#: What may be a common word: letters, perhaps joined by signs and with a number behind; or a small number. Case does not mix.
_WORD_FORM: Final = re.compile(r"(?:(?:[a-z]+|[A-Z][a-z]+)(?:[._-][a-z]+)*|[A-Z]+(?:[._-][A-Z]+)*)\d{0,4}|\d{1,5}")
_LONGEST_WORD: Final = 16
_WORD_BREAK: Final = re.compile(r"[^A-Za-z0-9]+")
#: Passwords of examples and test systems, and what such systems hold.
_WELL_KNOWN: Final = frozenset(
    (
        "admin",
        "administrator",
        "cassandra",
        "changeit",
        "changeme",
        "connect",
        "connector",
        "connectors",
        "consumer",
        "customer",
        "customers",
        "data",
        "database",
        "default",
        "demo",
        "development",
        "event",
        "events",
        "example",
        "guest",
        "inventory",
        "kafka",
        "letmein",
        "local",
        "localhost",
        "mariadb",
        "master",
        "message",
        "messages",
        "millrace",
        "mysql",
        "order",
        "orders",
        "password",
        "payment",
        "payments",
        "postgres",
        "postgresql",
        "prod",
        "producer",
        "product",
        "production",
        "products",
        "public",
        "qwerty",
        "replica",
        "replication",
        "root",
        "sample",
        "scylla",
        "secret",
        "server",
        "service",
        "shop",
        "source",
        "spark",
        "staging",
        "store",
        "stream",
        "system",
        "table",
        "tables",
        "test",
        "test1",
        "test123",
        "tester",
        "testing",
        "tests",
        "token",
        "topic",
        "topics",
        "user",
        "username",
        "users",
        "welcome",
        "worker",
        "workers",
        "1234",
        "12345",
    )
)
#: Words of configurations that are kept; the oldest are forgotten beyond it.
_MOST_WORDS: Final = 8192
_MOST_NAMES: Final = 512

#: What is written alike everywhere.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]*")
_ESCAPED: Final = re.compile(r"\\(.)")
_PEM_BORDER: Final = re.compile(r"-----(?:BEGIN|END) [A-Z0-9 ]+-----\Z")


def is_secret_name(name: str) -> bool:
    """Say whether an option of that name probably holds a secret; for options without a declaration."""
    return _SECRET_NAME.search(name) is not None and _HARMLESS_NAME.search(name) is None


def _secret_names(config: Mapping[str, str], keys: Iterable[ConfigKey]) -> set[str]:
    declared: dict[str, bool] = {}
    for key in keys:
        declared[key.name] = key.secret
        declared.update(dict.fromkeys(key.aliases, key.secret))
    return {name for name in config if declared.get(name) or (name not in declared and is_secret_name(name))}


def mask_config(config: Mapping[str, str], keys: Iterable[ConfigKey]) -> dict[str, str]:
    """``config`` as it may be shown: secrets masked, references to config providers left as they are.

    Args:
        config: raw properties.
        keys: the declarations of the connector's or worker's options; names not among them are judged by what they are.
    """
    secret = _secret_names(config, keys)
    return {
        name: value
        if value is None or only_references(value)
        else MASK
        if name in secret and value
        else mask_patterns(value)
        for name, value in config.items()
    }


def mask_patterns(message: str) -> str:
    """``message`` without what looks like a secret: passwords in URLs and after names such as ``password=``."""
    if "://" in message and "@" in message:
        message = _URL.sub(rf"\1\2:{MASK}@", message)
    folded = message.lower()
    if any(hint in folded for hint in _HINTS):
        message = _ASSIGNED.sub(_mask_assigned, message)
    if "authorization" in folded:
        message = _AUTHORIZATION.sub(rf"\1{MASK}", message)
    return message


def _mask_assigned(match: re.Match[str]) -> str:
    value = match[2]
    bare = value.strip("\"'")
    if MASK in match[0] or bare == "[hidden" or bare.startswith("${") or bare.lower() in _HARMLESS_VALUES:
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match[1]}{quote}{MASK}{quote}"


def secrets_in(value: str) -> list[str]:
    """Secrets that stand inside a value: a URL's password, the values of a JAAS line."""
    secrets = [match[3] for match in _URL.finditer(value)] if "://" in value else []
    secrets += [unquote(password) for password in secrets]
    if "LoginModule" in value:
        for match in _JAAS_VALUE.finditer(value):
            quoted = match[1] or match[2] or ""
            # As it is written, and as it is sent.
            secrets += [quoted, _ESCAPED.sub(r"\1", quoted)] if quoted else [match[3] or ""]
    return secrets


def _secrets_of(name: str, value: str, *, secret: bool) -> list[str]:
    """The secrets in the value of an option.

    Args:
        name: of the option.
        value: its value.
        secret: whether the option holds a secret.
    """
    secrets = secrets_in(value)
    if secret:
        secrets = secrets or [value]
        if _USER_INFO.search(name):
            secrets.append(value.partition(":")[2])
    return secrets


def find_bare_references(config: Mapping[str, str], keys: Iterable[ConfigKey]) -> list[tuple[str, str]]:
    """Secrets that are still references, with their options: their own text would be taken for the secret.

    Args:
        config: properties, with references resolved.
        keys: the declarations of the options; names not among them are judged by what they are.
    """
    secret = _secret_names(config, keys)
    return [
        (name, value)
        for name, option_value in config.items()
        if option_value
        for value in dict.fromkeys(_secrets_of(name, option_value, secret=name in secret))
        if only_references(value)
    ]


class SecretMasker:
    """Knows secret values and masks them in strings. Safe to use from several threads; never blocks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: dict[str, None] = {}
        #: Snapshots for readers: secrets from long to short, and the same by their first characters.
        self._ordered: tuple[str, ...] = ()
        self._by_start: dict[str, tuple[str, ...]] = {}
        #: Words of configurations that are no secrets, in lower case, and names of the options that hold secrets.
        self._public: dict[str, None] = {}
        self._names: dict[str, None] = {}
        #: The secrets that are common words, and what finds them where a secret would stand.
        self._words: tuple[str, ...] = ()
        self._word_pattern: re.Pattern[str] | None = None

    def __len__(self) -> int:
        return len(self._secrets)

    def add(self, *values: str) -> None:
        """Mask these from now on; blank, very short and everyday values are left out.

        Values that are added again are in use: they are the last to be forgotten.
        """
        new_secrets = dict.fromkeys(part for value in values for part in _secret_forms(value))
        with self._lock:
            known_secrets = new_secrets.keys() & self._secrets.keys()
            for value in known_secrets:
                del self._secrets[value]
            self._secrets.update(new_secrets)
            if len(known_secrets) == len(new_secrets):
                return
            _shorten_dict(self._secrets, MOST_SECRETS)
            self._rebuild_snapshots()

    def _rebuild_snapshots(self) -> None:
        """Recreate the snapshots; the caller holds the lock."""
        words = {value for value in self._secrets if _is_common(value, self._public)}
        self._ordered = tuple(sorted((value for value in self._secrets if value not in words), key=len, reverse=True))
        by_start: dict[str, list[str]] = {}
        for value in self._ordered:
            by_start.setdefault(value[:SHORTEST], []).append(value)
        self._by_start = {start: tuple(group) for start, group in by_start.items()}
        self._word_pattern = _in_place(sorted(words, key=len, reverse=True), self._names) if words else None
        self._words = tuple(words)

    def _remember_words(self, words: Iterable[str], names: Iterable[str]) -> None:
        """Remember words that are no secrets, and names of options that hold some."""
        with self._lock:
            new_words = [word for word in words if word not in self._public]
            new_names = [name for name in names if name not in self._names]
            self._public.update(dict.fromkeys(new_words))
            self._names.update(dict.fromkeys(new_names))
            _shorten_dict(self._public, _MOST_WORDS)
            _shorten_dict(self._names, _MOST_NAMES)
            if new_names or any(secret.lower() in new_words for secret in self._secrets):
                self._rebuild_snapshots()

    def learn(self, config: Mapping[str, str], keys: Iterable[ConfigKey] = ()) -> None:
        """Mask the secrets of a resolved configuration from now on.

        Args:
            config: properties, with references resolved.
            keys: the declarations of the options; names not among them are judged by what they are.
        """
        secret = _secret_names(config, keys)
        secrets: list[str] = []
        public: set[str] = set()
        for name, value in config.items():
            if not value or only_references(value):
                continue
            values = _secrets_of(name, value, secret=name in secret)
            secrets += values
            if not values:
                public |= _words_of(value)
        self._remember_words(public, secret)
        if secrets:
            self.add(*secrets)

    def scrub(self, message: str) -> str:
        """``message`` with every known secret, and whatever looks like one, masked; the same object if it holds no secret."""
        for secret in self._find_candidates(message):
            message = message.replace(secret, MASK)
        pattern = self._word_pattern
        if pattern is not None and any(word in message for word in self._words):
            message = pattern.sub(lambda match: f"{match['before'] or ''}{MASK}", message)
        return mask_patterns(message)

    def _find_candidates(self, message: str) -> list[str]:
        ordered = self._ordered
        if len(ordered) <= _MOST_SINGLE_SEARCHES:
            return [secret for secret in ordered if secret in message]
        by_start = self._by_start
        starts = {message[at : at + SHORTEST] for at in range(len(message) - SHORTEST + 1)} & by_start.keys()
        candidates = [secret for start in starts for secret in by_start[start] if secret in message]
        return sorted(candidates, key=len, reverse=True)


def scrub_all(value: Any, scrub: Callable[[str], str]) -> Any:
    """A JSON value with all its strings scrubbed; names of fields stay. Pure."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {name: scrub_all(member, scrub) for name, member in value.items()}
    return [scrub_all(member, scrub) for member in value] if isinstance(value, list | tuple) else value


def _shorten_dict(kept: dict[str, None], max_entries: int) -> None:
    while len(kept) > max_entries:
        del kept[next(iter(kept))]


def _is_common(value: str, public: Mapping[str, None]) -> bool:
    """Whether a secret is a common word (see the module)."""
    folded = value.lower()
    return (
        len(value) <= _LONGEST_WORD
        and _WORD_FORM.fullmatch(value) is not None
        and (folded in _WELL_KNOWN or folded in public)
    )


def _words_of(value: str) -> set[str]:
    """Return the possible common words of a value that is not secret: the value, and its words, in lower case."""
    if len(value) > 4096:
        return set()
    shown = mask_patterns(value)
    return {
        word.lower()
        for word in (shown, *_WORD_BREAK.split(shown))
        if SHORTEST <= len(word) <= _LONGEST_WORD and _WORD_FORM.fullmatch(word)
    }


def _in_place(words: Iterable[str], names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds words in the position of a secret; the group ``before`` is kept unmasked."""
    word = f"(?:{'|'.join(map(re.escape, words))})"
    hints = "|".join(
        (
            "passw(?:or)?d",
            "passphrase",
            "pwd",
            "secret",
            "token",
            "credentials?",
            "(?:api|access|account|private|shared)[._-]?key",
            *map(re.escape, names),
        )
    )
    # password=test, password 'test', ('password', 'test'), the password is test
    between = r"""["'`)\]]{0,2}(?:\s{0,3}(?:[=:,]|=>|->)|\s(?:is|was))?\s{0,3}["'`(\[]{0,2}"""
    after_a_hint = rf"(?P<before>(?i:(?:{hints}){between})){word}(?![A-Za-z0-9])"
    in_an_address = rf"(?<=:){word}(?=@)"
    # 'test' is no valid password
    before_a_hint = rf"""(?<=["'`]){word}(?=["'`]\s(?:is|was|as)\s[^"'`\n]{{0,32}}(?i:{hints}))"""
    return re.compile(f"{after_a_hint}|{in_an_address}|{before_a_hint}")


def _written_forms(secret: str) -> tuple[str, ...]:
    """``secret`` within a Python literal, in JSON with and without other letters than ASCII's, and in a URL."""
    # The second is the form of a secret with an apostrophe in the literal of a string that also has double quotes.
    return (
        repr(secret)[1:-1],
        repr(secret + "\"'")[1:-4],
        repr(secret.encode("utf-8", "surrogatepass"))[2:-1],
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe="", errors="replace"),
        quote_plus(secret, errors="replace"),
    )


def _secret_forms(value: str) -> list[str]:
    """The ways in which a secret may show: as it is, without the blanks around it, its lines one by one, all also escaped."""
    stripped = value.strip()
    forms = [value, stripped]
    if "\n" in stripped:
        forms += [line.strip() for line in stripped.splitlines()]
    if not _PLAIN.fullmatch(value):
        forms += [written for form in forms for written in _written_forms(form)]
    return [
        form
        for form in dict.fromkeys(forms)
        if len(form.strip()) >= SHORTEST and form.lower() not in _HARMLESS_VALUES and not _PEM_BORDER.match(form)
    ]


class SecretFilter(logging.Filter):
    """Scrubs log records: message, trace and the strings among extra fields. Put it on handlers, not on loggers."""

    def __init__(self, masker: SecretMasker) -> None:
        super().__init__()
        self._masker = masker
        self._standard = frozenset(logging.makeLogRecord({}).__dict__)

    def filter(self, record: logging.LogRecord) -> bool:
        """Scrub ``record`` in place; it is always kept."""
        scrub = self._masker.scrub
        try:
            message = record.getMessage()
        except Exception as error:  # noqa: BLE001 - a wrong call in some library must not fail it, nor be printed as it is
            record.msg, record.args = f"{record.msg} (its arguments do not fit: {error})", ()
            message = record.msg
        clean = scrub(message)
        if clean != message:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[0] is not None:
            trace = record.exc_text or "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            clean = scrub(trace)
            if clean != trace:
                # Formatters print exc_text; without exc_info no formatter can format the exception again.
                record.exc_text, record.exc_info = clean, None
        elif record.exc_text:
            record.exc_text = scrub(record.exc_text)
        if record.stack_info:
            record.stack_info = scrub(record.stack_info)
        for name, value in record.__dict__.items():
            if name not in self._standard and isinstance(value, str):
                record.__dict__[name] = scrub(value)
        return True
