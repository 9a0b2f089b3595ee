"""Masking: configurations, strings and log records."""

from __future__ import annotations

import io
import json
import logging
import threading
import time
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.options import MASK, ConfigKey, ConfigType
from worker.secrets.masking import (
    MOST_SECRETS,
    SecretFilter,
    SecretMasker,
    is_secret_name,
    mask_config,
    mask_patterns,
)

KEYS = (
    ConfigKey(name="login", type=ConfigType.PASSWORD, doc="A secret.", aliases=("old.login",)),
    ConfigKey(name="token.count", type=ConfigType.INT, doc="No secret."),
)
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="app" password="hunter22!";'


@pytest.mark.parametrize(
    "name",
    [
        "database.password",
        "PASSWORD",
        "ssl.keystore.password",
        "aws.secret.access.key",
        "apiKey",
        "access.token",
        "sasl.jaas.config",
        "google.credentials",
        "db.passwd",
        "key.passphrase",
        "client_secret",
        "producer.sasl.jaas.config",
        "azure.account-key",
        "value.converter.basic.auth.user.info",
        "value.converter.request.header.Authorization",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "name",
        "topic",
        "key.converter",
        "message.key",
        "partition.key",
        "primary_key",
        "key",
        "drop.fields.from.key",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.keystore.location",
        "password.file",
        "keyspace",
        "secret.provider",
        "tasks.max",
        "database.user",
        "token.refresh.ms",
        "public.key",
        "basic.auth.credentials.source",
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


def test_mask_config() -> None:
    config = {
        "name": "c",
        "login": "geheim",
        "old.login": "x",
        "token.count": "5",
        "api.key": "abc",
        "empty.password": "",
        "db.password": "${file:/f:k}",
        "other.secret": "x${env:A}",
        "plain": "value",
        "url": "jdbc:postgresql://u:pw@h/d?password=pw2",
    }
    assert mask_config(config, KEYS) == {
        "name": "c",
        "login": "[hidden]",
        "old.login": "[hidden]",
        "token.count": "5",
        "api.key": "[hidden]",
        "db.password": "${file:/f:k}",
        "other.secret": "[hidden]",
        "url": "jdbc:postgresql://u:[hidden]@h/d?password=[hidden]",
        "empty.password": "",
        "plain": "value",
    }
    assert config["login"] == "geheim"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("connect to http://user:p%40ss@host:80/x failed", "connect to http://user:[hidden]@host:80/x failed"),
        ("mysql://root:a@b@h/d", "mysql://root:[hidden]@h/d"),
        ("http://host:80/a@b", "http://host:80/a@b"),
        ('password="a b;c" user="u"', 'password="[hidden]" user="u"'),
        ("{'api_key': 'abc', 'x': 1}", "{'api_key': '[hidden]', 'x': 1}"),
        ('{"clientSecret": "a\\"b", "n": 2}', '{"clientSecret": "[hidden]", "n": 2}'),
        ("PASSWORD=abc&x=1", "PASSWORD=[hidden]&x=1"),
        ("token: abc", "token: [hidden]"),
        ("password=${env:PW}", "password=${env:PW}"),
        ('password="${env:PW}";', 'password="${env:PW}";'),
        ("password=[hidden]", "password=[hidden]"),
        ('password="hunter2 and mo', 'password="[hidden]"'),
        ("{'token': 'abc\nnext", "{'token': '[hidden]'\nnext"),
        ('{"password": "a\\\nb", "n": 2}', '{"password": "[hidden]", "n": 2}'),
        ("fs.s3a.secret.key=abcd secretKey: abcd", "fs.s3a.secret.key=[hidden] secretKey: [hidden]"),
        ("4s3://u:abcd@h and a.b-c://u:abcd@h", "4s3://u:[hidden]@h and a.b-c://u:[hidden]@h"),
        ("Authorization: Bearer ab.c-d", "Authorization: Bearer [hidden]"),
        ("authorization is needed", "authorization is needed"),
        (
            "<CIMultiDictProxy('Authorization': 'Basic YTpiYzpk')>",
            "<CIMultiDictProxy('Authorization': 'Basic [hidden]')>",
        ),
        ("secret=null, token=none", "secret=null, token=none"),
        ("no secrets here", "no secrets here"),
        ("", ""),
        (JAAS, JAAS.replace("hunter22!", "[hidden]")),
    ],
)
def test_texts_that_look_like_secrets(text: str, expected: str) -> None:
    assert mask_patterns(text) == expected
    assert mask_patterns(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a" * 300_000 + " ://@",
        "://:" * 100_000 + "@",
        "a://b:" * 100_000 + "@",
        'password="' * 100_001,
        "token" * 100_000,
        "password='\\" * 100_000,
        "authorization" + " " * 300_000,
        "authorization:" + "a" * 300_000,
        "authorization: " * 100_000,
    ],
)
def test_texts_take_a_moment_whatever_they_hold(text: str) -> None:
    started = time.process_time()
    mask_patterns(text)
    assert time.process_time() - started < 2


def test_masker_learns_from_a_configuration() -> None:
    masker = SecretMasker()
    masker.learn(
        {
            "login": "geheim",
            "token.count": "5555",
            "some.secret": "s3cr3t",
            "sasl.jaas.config": JAAS,
            "url": "http://u:urlpass@h",
            "mode.password": "${file:/f:k}",
            "on.secret": "true",
            "short.password": "ab",
        },
        KEYS,
    )
    text = "geheim 5555 s3cr3t hunter22! urlpass /f:k true ab ScramLoginModule app"
    assert masker.scrub(text) == "[hidden] 5555 [hidden] [hidden] [hidden] /f:k true ab ScramLoginModule app"
    assert len(masker) == 5  # one has a sign that URLs write in another way


def test_the_password_of_a_registrys_user_is_known_with_and_without_its_name() -> None:
    masker = SecretMasker()
    masker.learn({"value.converter.basic.auth.user.info": "reader:s3cr3tpw"})
    assert masker.scrub("sent reader:s3cr3tpw, then s3cr3tpw alone") == "sent [hidden], then [hidden] alone"


def test_longer_secrets_go_first_and_texts_without_any_stay_the_same_object() -> None:
    masker = SecretMasker()
    masker.add("pass", "password1", "   padded   ")
    assert masker.scrub("x password1 pass padded") == "x [hidden] [hidden] [hidden]"
    quiet = "nothing to see"
    assert masker.scrub(quiet) is quiet


def test_lines_of_a_key_are_secret_each() -> None:
    masker = SecretMasker()
    masker.add("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n")
    assert masker.scrub("got kqhkiG9w0BAQEF") == "got [hidden]"
    assert masker.scrub("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


secrets = st.text(alphabet="abcXYZ019-_", min_size=4, max_size=12)


@given(
    st.lists(secrets, max_size=80, unique=True),
    st.lists(st.tuples(st.text(max_size=8), st.integers(0, 79)), max_size=12),
)
def test_no_known_secret_is_left(known_secrets: list[str], parts: list[tuple[str, int]]) -> None:
    known_secrets = [secret for secret in known_secrets if secret.lower() not in ("true", "false", "null", "none")]
    masker = SecretMasker()
    masker.add(*known_secrets)
    text = "".join(
        before + (known_secrets[index % len(known_secrets)] if known_secrets else "") for before, index in parts
    )
    scrubbed = masker.scrub(text)
    for secret in known_secrets:
        assert secret not in scrubbed.replace("[hidden]", "\0")


def test_many_secrets_are_bounded_and_still_found() -> None:
    masker = SecretMasker()
    masker.add(*(f"secret-value-{number}" for number in range(MOST_SECRETS + 10)))
    assert len(masker) == MOST_SECRETS
    newest = f"secret-value-{MOST_SECRETS + 9}"
    assert masker.scrub(f"<{newest}>") == "<[hidden]>"


def test_secrets_that_are_added_again_are_not_forgotten() -> None:
    masker = SecretMasker()
    masker.add("in-use-all-the-time", "only-once")
    for number in range(0, MOST_SECRETS, 1000):
        masker.add("in-use-all-the-time")
        masker.add(*(f"rotated-{number + index}" for index in range(1000)))
    assert masker.scrub("in-use-all-the-time rotated-8000") == "[hidden] [hidden]"
    assert len(masker) == MOST_SECRETS


def test_threads_may_add_while_others_scrub() -> None:
    masker = SecretMasker()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for index in range(200):
                secret = f"thread{number}value{index}"
                masker.add(secret)
                assert secret not in masker.scrub(f"a {secret} b")
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(masker) == 800


def logged(masker: SecretMasker, call: Any) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s %(where)s", defaults={"where": ""}))
    handler.addFilter(SecretFilter(masker))
    logger = logging.Logger("masking")  # noqa: LOG001 - a logger of this test alone
    logger.addHandler(handler)
    call(logger)
    return stream.getvalue()


def test_log_records_are_scrubbed() -> None:
    masker = SecretMasker()
    masker.add("t0ps3cret")
    assert (
        logged(masker, lambda log: log.warning("login %s with %s", "app", "t0ps3cret")) == "login app with [hidden] \n"
    )
    assert (
        logged(masker, lambda log: log.warning("at", extra={"where": "http://u:t0ps3cret@h"}))
        == "at http://u:[hidden]@h\n"
    )
    assert logged(masker, lambda log: log.warning("plain %d%%", 5)) == "plain 5% \n"

    def fail(log: logging.Logger) -> None:
        try:
            int("bad t0ps3cret")
        except ValueError:
            log.exception("failed", stack_info=True)

    text = logged(masker, fail)
    assert "ValueError: invalid literal for int() with base 10: 'bad [hidden]'" in text
    assert "t0ps3cret" not in text
    assert "Traceback (most recent call last)" in text


def test_a_wrong_call_neither_fails_nor_shows_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    masker = SecretMasker()
    masker.add("t0ps3cret")
    text = logged(masker, lambda log: log.warning("%d rows for t0ps3cret", "t0ps3cret"))
    assert text.startswith("%d rows for [hidden] (its arguments do not fit: ")
    assert "t0ps3cret" not in text + capsys.readouterr().err


def test_traces_that_are_texts_already_are_scrubbed() -> None:
    masker = SecretMasker()
    masker.add("t0ps3cret")
    record = logging.LogRecord("n", logging.ERROR, "f", 1, "m", (), None)
    record.exc_text, record.stack_info = "Boom: t0ps3cret", "  f(t0ps3cret)"
    assert SecretFilter(masker).filter(record) is True
    assert (record.exc_text, record.stack_info) == ("Boom: [hidden]", "  f([hidden])")


@pytest.mark.parametrize("pairs", [3, 60])
def test_of_secrets_within_each_other_the_longer_one_is_masked(pairs: int) -> None:
    inner = [f"{number:02}-inner" for number in range(pairs)]
    masker = SecretMasker()
    masker.add(*inner, *(f"outer-{secret}-end" for secret in inner))
    assert masker.scrub(" ".join(f"outer-{secret}-end {secret}" for secret in inner)) == " ".join(
        ["[hidden] [hidden]"] * pairs
    )


def test_trace_without_secrets_is_left_to_the_formatter() -> None:
    masker = SecretMasker()
    record = logging.LogRecord("n", logging.ERROR, "f", 1, "m", (), (ValueError, ValueError("x"), None))
    assert SecretFilter(masker).filter(record) is True
    assert record.exc_info is not None


AWKWARD_SECRET = "p\u00e4\"ss\\wo'rd%&/ \u2028x"


@pytest.mark.parametrize(
    "shown",
    [
        AWKWARD_SECRET,
        repr(AWKWARD_SECRET),
        repr(AWKWARD_SECRET.encode()),
        json.dumps(AWKWARD_SECRET),
        json.dumps(AWKWARD_SECRET, ensure_ascii=False),
        quote(AWKWARD_SECRET, safe=""),
        quote_plus(AWKWARD_SECRET),
        json.dumps({"error": f"refused: {AWKWARD_SECRET}"}),
        str(ValueError("refused", AWKWARD_SECRET)),
        f"https://h/?p={quote(AWKWARD_SECRET, safe='')}",
    ],
)
def test_secrets_are_found_as_they_are_written(shown: str) -> None:
    masker = SecretMasker()
    masker.add(AWKWARD_SECRET)
    clean = masker.scrub(f"it was {shown}")
    assert MASK in clean
    assert not any(part in clean for part in ("ss\\wo", "rd%", "rd\\'", "ss%5C", "%25%26"))


def test_a_jaas_password_is_known_as_it_is_sent() -> None:
    masker = SecretMasker()
    masker.learn({"sasl.jaas.config": 'X.ScramLoginModule required username="u" password="ab\\"c\\\\d-1";'})
    assert masker.scrub('refused: ab"c\\d-1') == f"refused: {MASK}"
    assert masker.scrub('refused: ab\\"c\\\\d-1') == f"refused: {MASK}"


def test_a_password_in_a_url_is_known_as_it_is_sent() -> None:
    masker = SecretMasker()
    masker.learn({"url": "https://u:p%40ss%2Fw@h/d"})
    assert masker.scrub("refused: p@ss/w, p%40ss%2Fw") == f"refused: {MASK}, {MASK}"


def test_an_apostrophe_is_known_as_a_literal_with_both_quotes_writes_it() -> None:
    masker = SecretMasker()
    masker.add("pa'ss")
    assert masker.scrub(repr(ValueError('refused: "pa\'ss"'))) == f"ValueError('refused: \"{MASK}\"')"


COMMON = ("test", "orders", "millrace", "Kafka", "root")
#: Messages of drivers, clients and representations with a secret in them.
IN_PLACE = (
    "password={}",
    "Password: {}",
    "password '{}' is wrong",
    'the password "{}" was refused',
    "the password is {}",
    "('password', '{}')",
    "{{'database.password': '{}', 'x': 1}}",
    '{{"database.password": "{}"}}',
    "mysql://app:{}@db:3306/shop",
    "app:{}@db",
    "token {} has expired",
    "'{}' is not a valid password",
    "odd.pin={}",
    "odd.pin: '{}'",
    "secret[{}]",
    "PASSWORD={},",
)
#: Where the same word is the name of something.
ELSEWHERE = (
    "group {}-workers",
    "topic {} has 3 partitions",
    "database '{}', table '{}.t'",
    "connector {} failed",
    "/srv/{}/data",
    "{}",
    "user {} connects to {}",
    "the group '{}' has a token bucket",
    "jdbc:postgresql://db:5432/{}",
)


def common_masker(word: str) -> SecretMasker:
    masker = SecretMasker()
    masker.learn(
        {"odd.pin": word, "database.password": word},
        [ConfigKey(name="odd.pin", type=ConfigType.PASSWORD, doc="A secret with an odd name.")],
    )
    return masker


@pytest.mark.parametrize("word", COMMON)
def test_a_common_word_is_hidden_where_a_secret_stands(word: str) -> None:
    masker = common_masker(word)
    for form in IN_PLACE:
        text = masker.scrub(form.format(word))
        assert word not in text, text
        assert MASK in text
        assert masker.scrub(text) == text


@pytest.mark.parametrize("word", COMMON)
def test_a_common_word_stays_where_it_names_something(word: str) -> None:
    masker = common_masker(word)
    for form in ELSEWHERE:
        text = form.replace("{}", word)
        assert masker.scrub(text) == text


@pytest.mark.parametrize("earlier", [True, False])
def test_a_word_of_the_configuration_is_a_common_one_whenever_it_is_learnt(*, earlier: bool) -> None:
    masker = SecretMasker()
    public = {"topic.prefix": "sunflower", "group.id": "north-moonlight"}
    if earlier:
        masker.learn(public)
    masker.learn({"database.password": "sunflower", "keystore.password": "moonlight", "other.password": "starlight"})
    if not earlier:
        assert masker.scrub("sunflower moonlight") == f"{MASK} {MASK}", "nobody knows yet that it is public"
        masker.learn(public)
    assert masker.scrub("topic sunflower.t of north-moonlight") == "topic sunflower.t of north-moonlight"
    assert masker.scrub("password 'sunflower', password 'moonlight'") == f"password '{MASK}', password '{MASK}'"
    assert masker.scrub("starlight") == MASK, "it stands in no option that is shown"


@pytest.mark.parametrize(
    "secret",
    [
        "a-word-that-is-too-long",
        "Tr0ub4dor",
        "correcthorsebatterystaple",
        "xK9z",
        "p@ss",
        "orderS7x",
        "hunter22!",
        "123456",
    ],
)
def test_what_is_no_word_is_hidden_everywhere_even_if_it_stands_in_the_open(secret: str) -> None:
    masker = SecretMasker()
    masker.learn({"database.password": secret, "comment": secret, "url": f"http://u:{secret}@h"})
    assert secret not in masker.scrub(f"group {secret}-workers, topic '{secret}'")


def test_a_password_in_a_url_is_not_public_because_of_the_url() -> None:
    masker = SecretMasker()
    masker.learn({"database.password": "sunflower", "url": "http://u:sunflower@h", "jaas": JAAS})
    assert masker.scrub("sunflower hunter22!") == f"{MASK} {MASK}"


@given(st.sampled_from(COMMON), st.sampled_from(IN_PLACE), st.text(max_size=20), st.text(max_size=20))
def test_common_words_are_hidden_whatever_stands_around(word: str, form: str, before: str, after: str) -> None:
    text = common_masker(word).scrub(f"{before} {form.format(word)} {after}")
    assert form.format(word) not in text
    assert MASK in text


def test_many_common_words_at_once() -> None:
    masker = SecretMasker()
    words = [f"{chr(97 + number // 26) * 4}{chr(97 + number % 26)}" for number in range(600)]
    masker.learn({f"n{number}": word for number, word in enumerate(words)})
    masker.learn({f"n{number}.password": word for number, word in enumerate(words)})
    plain = " ".join(words) * 20
    assert masker.scrub(plain) == plain
    assert masker.scrub("".join(f"password '{word}', " for word in words)) == f"password '{MASK}', " * 600
