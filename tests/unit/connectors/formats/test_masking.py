from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors import schema as sc
from connectors.errors import ConfigInvalid, Skippable
from connectors.formats.masks.mask_functions import default_of, murmur3_32, murmur3_128, utf16_cut
from connectors.formats.masks.masking import Mask, Target, find_problems, masked_by, parse_rules, row_masker
from connectors.formats.masks.options import RULE_KEYS
from connectors.java_regex import compile_java
from connectors.schema import Schema, Type
from worker.secrets.masking import is_secret_name

NAME = "shop.customers.mail"


def mask_of(raw: dict[str, str], schema: Schema = sc.OPTIONAL_STRING, **more: Any) -> Mask:
    mask = parse_rules(raw).for_column(Target(NAME, schema, **more))
    assert mask is not None
    return mask


def ours(
    kind: str, schema: Schema = sc.OPTIONAL_STRING, *, target: dict[str, Any] | None = None, **options: str
) -> Mask:
    raw = {"mask.rules": "r", "mask.r.columns": NAME, "mask.r.type": kind}
    raw.update({f"mask.r.{name.replace('_', '.')}": value for name, value in options.items()})
    return mask_of(raw, schema, **(target or {}))


def apply(mask: Mask, value: Any) -> Any:
    assert mask.convert is not None
    return mask.convert(value)


@pytest.mark.parametrize(
    ("option", "value", "masked"),
    [
        # Values that Debezium's own code gives; the long ones are beyond 65535 bytes, where its serialized form changes.
        ("hash.SHA-256.with.salt.salt", "hello", "af5843a0f0e728ab0332c8888b6e1190bfb79e584f0d40538de8f10df6ef29c6"),
        ("hash.SHA-256.with.salt.salt", "h\0é€😀", "04a19d890816804a04a278a2bcb17527087c56714c055a591e2b132e11c3fbeb"),
        ("hash.SHA-256.with.salt.s", "x" * 70000, "2f3f5d5633c7ded8d2a39011168147eb7e8973c4b1da618a4c009ed6b74ef63f"),
        ("hash.SHA-256.with.salt.s", "é" * 32768, "9f803f7ac8e08cf16ad212bb06049ee4f5aecec89ec21a18638b7db4bec226fd"),
        ("hash.MD5.with.salt.salt", "world", "030f632140d9c9591b0d8c21098024b8"),
        ("hash.v2.SHA-256.with.salt.salt", "world", "e84ac3142870113ddc6710c06f76421befc8e8ca6de64e98d2993ed8d41f4085"),
        ("hash.v2.MD5.with.salt.salt", "hello", "06decc8b095724f80103712c235586be"),
        ("with.5.chars", "1", "*****"),
        ("with.0.chars", "1", ""),
    ],
)
def test_debezium_masks(option: str, value: str, masked: str) -> None:
    mask = mask_of({f"column.mask.{option}": NAME})
    assert apply(mask, value) == masked
    assert mask.schema.parameters == (("masked", "true"),)
    assert masked_by(mask.schema) == "masked"
    assert not mask.in_key


def test_debezium_nulls_stars_replace_them_hashes_keep_them() -> None:
    stars = mask_of({"column.mask.with.3.chars": NAME})
    assert stars.nulls
    assert apply(stars, None) == "***"
    assert not mask_of({"column.mask.hash.MD5.with.salt.s": NAME}).nulls
    assert not mask_of({"column.truncate.to.3.chars": NAME}).nulls


def test_debezium_hash_is_cut_to_the_column() -> None:
    assert apply(mask_of({"column.mask.hash.v2.MD5.with.salt.salt": NAME}, length=7), "hello") == "06decc8"


def test_debezium_leaves_other_types_alone_but_says_masked() -> None:
    for mask in (
        mask_of({"column.mask.with.3.chars": NAME}, sc.INT32),
        mask_of({"column.mask.hash.MD5.with.salt.s": NAME}, sc.STRING, text=False),
    ):
        assert mask.convert is None
        assert not mask.encoded
        assert mask.schema.parameters == (("masked", "true"),)


def test_debezium_truncation() -> None:
    raw = {"column.truncate.to.3.chars": NAME}
    mask = mask_of(raw, length=4)
    assert apply(mask, "abcd") == "abc"
    assert apply(mask, b"abcd") == b"abc"
    assert apply(mask, "ab😀") == "ab"  # two units of Java's; half a character would not be a valid string
    assert apply(mask, 12345) == 12345
    assert mask.schema.parameters == (("truncateLength", "3"),)
    assert masked_by(mask.schema) is None
    assert parse_rules(raw).for_column(Target(NAME, sc.STRING, length=3)) is None  # nothing to cut


def test_names_match_whole_in_any_case_and_the_first_rule_counts() -> None:
    masks = parse_rules(
        {
            "column.mask.with.1.chars": r"shop\.customers\.(mail|phone),shop\.x{1\,2}\.a",
            "column.truncate.to.2.chars": r".*\.mail",
            "mask.rules": "b,a",
            "mask.a.columns": r".*\.card",
            "mask.a.type": "default",
            "mask.b.columns": r".*\.card,.*\.pin",
            "mask.b.type": "md5",
        }
    )

    def rule(name: str) -> str | None:
        mask = masks.for_column(Target(name, sc.STRING))
        return None if mask is None else mask.rule

    assert rule("shop.customers.mail") == "truncate"
    assert rule("SHOP.Customers.Phone") == "chars"
    assert rule("shop.customers.phones") is None
    assert rule("shop.xx.a") == "chars"
    assert rule("a.b.card") == "b"
    assert bool(masks)
    assert not parse_rules({"other": "1"})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (sc.INT64, 0),
        (sc.FLOAT64, 0.0),
        (sc.BOOLEAN, False),
        (sc.STRING, ""),
        (sc.BYTES, b""),
        (sc.decimal(2), Decimal("0.00")),
        (sc.date(), 0),
        (Schema(Type.INT32, name="io.debezium.time.Year", version=1), 1970),
        (Schema(Type.STRING, name="io.debezium.time.ZonedTimestamp", version=1), "1970-01-01T00:00:00Z"),
        (Schema(Type.STRING, name="io.debezium.data.Json", version=1), "{}"),
        (Schema(Type.BYTES, name="io.debezium.data.Bits", version=1, parameters=(("length", "9"),)), b"\0\0"),
        (sc.array(sc.STRING), []),
        (sc.struct("s", {"a": sc.INT32, "b": sc.OPTIONAL_INT32}), {"a": 0, "b": None}),
    ],
)
def test_default_by_type(schema: Schema, value: Any) -> None:
    mask = ours("default", schema)
    assert apply(mask, "secret") == value
    assert type(apply(mask, "secret")) is type(value)
    assert (mask.schema.type, mask.schema.name) == (schema.type, schema.name)
    assert masked_by(mask.schema) == "r"
    assert not mask.nulls


def test_default_of_a_point_is_a_point() -> None:
    point = sc.struct(
        "io.debezium.data.geometry.Point",
        {"x": sc.FLOAT64, "y": sc.FLOAT64, "wkb": sc.OPTIONAL_BYTES, "srid": sc.OPTIONAL_INT32},
    )
    assert default_of(point) == {"x": 0.0, "y": 0.0, "wkb": b"\x01\x01\0\0\0" + bytes(16), "srid": None}


def test_a_shared_default_cannot_be_changed_by_a_reader() -> None:
    mask = ours("default", sc.array(sc.STRING))
    apply(mask, ["x"]).append("y")
    assert apply(mask, ["x"]) == []


def test_replace_takes_the_type_of_the_column() -> None:
    assert apply(ours("replace", replacement="none"), "x") == "none"
    assert apply(ours("replace", sc.INT32, replacement="-7"), 5) == -7
    assert apply(ours("replace", sc.decimal(30), replacement="1"), Decimal(5)) == Decimal(1)
    for schema, text in ((sc.INT32, "none"), (sc.INT8, "128"), (sc.decimal(1), "0.12"), (sc.BOOLEAN, "2")):
        with pytest.raises(ConfigInvalid, match=f"mask r of {NAME}: the replacement '{text}' is no value of type"):
            ours("replace", schema, replacement=text)


@pytest.mark.parametrize(
    ("kind", "options", "value", "masked"),
    [
        ("md5", {}, "hello", "5d41402abc4b2a76b9719d911017c592"),
        ("md5", {"salt_secret": "salt"}, "hello", "06decc8b095724f80103712c235586be"),
        ("md5", {}, 42, "a1d0c6e83f027327d8461063f4ac58a6"),
        ("md5", {}, b"hello", "5d41402abc4b2a76b9719d911017c592"),
        ("md5", {}, True, "b326b5062b2f0e69046810717534cb09"),
        ("hash", {"algorithm": "SHA-512/256"}, "", "c672b8d1ef56ed28ab87c3622c5114069bdd3ad7b8f9737498d0c01ecef0967a"),
        ("murmur", {}, "hello", "029bbd41b3a7d8cb191dae486a901e5b"),
        ("murmur32", {}, "hello", "47fa8b24"),
        ("chars", {"length": "4"}, "hello", "****"),
        ("truncate", {"length": "2"}, "hello", "he"),
        ("regex", {"regex": r"(?<head>\d{4})\d+", "replacement": "${head}…"}, "a 12345678 b 99999", "a 1234… b 9999…"),
        ("regex", {"regex": "[0-9]"}, "a1b2", "ab"),
    ],
)
def test_masks_that_make_text(kind: str, options: dict[str, Any], value: Any, masked: str) -> None:
    schema = {int: sc.INT64, bytes: sc.OPTIONAL_BYTES, bool: sc.BOOLEAN}.get(type(value), sc.STRING)
    mask = ours(kind, schema, **options)
    assert apply(mask, value) == masked
    assert mask.schema == Schema(Type.STRING, optional=schema.optional, parameters=(("millrace.masked", "r"),))


@pytest.mark.parametrize(
    ("regex", "value"),
    [
        ("[^@]+@", "x" * 1_000_000),
        (r"(\w)\w*@\w+", "é" + "x" * 1_000_000),
        (r"(?<all>\d+)-\d", "1" * 1_000_000),
        ("(?:a|aa)+b", "a" * 100_000),
        (r"^(\w+\s?)+$", "a" * 1000 + "!"),
        (r"\s+$", " " * 1_000_000 + "x"),
        (r"\b(\w+\b)+;", "a" * 1_000_000),
    ],
)
def test_a_mask_that_matches_nowhere_in_a_long_value_ends(regex: str, value: str) -> None:
    assert apply(ours("regex", regex=regex, replacement="?"), value) == value


@pytest.mark.parametrize(
    "regex",
    [
        *(
            "(?i)(a+)+$",
            "(a*)*b",
            "(?=(a+)+c)a",
            "((a|aa)+$)?",
            r"(\S+\s?)+x",
            r"(a+)+\1c",
            "(?:(?:a?){3})+b",
            "(?>(a+)+b)",
        ),
        "(?<!(?:))(a|a)*b",
    ],
)
def test_an_expression_that_may_take_exponential_time_and_is_not_for_re2_is_refused(regex: str) -> None:
    raw = {"mask.rules": "r", "mask.r.columns": NAME, "mask.r.type": "regex", "mask.r.regex": regex}
    (problem,) = find_problems(raw)
    assert "exponential time" in problem.message


@pytest.mark.parametrize(
    ("regex", "masked"),
    [
        (r".(?=.{4})", "******4321"),
        (r"(?<=\d{2})\d", "98********"),
        (r"\d(?=\d*1)", "*********1"),
        (r"(?i)[a-z0-9]+", "*"),
        (r"(?>\d+)", "*"),
        (r"(?:\d++,?)*+1?", "**"),
        (r"\d*?(?!\d)", "**"),
        (r"(\d)(?!\1)", "**********"),
    ],
)
def test_look_around_and_its_like_without_exponential_time_are_accepted(regex: str, masked: str) -> None:
    assert apply(ours("regex", regex=regex, replacement="*"), "9876504321") == masked


@pytest.mark.parametrize("end", ["\n", "\ud800"])
def test_a_value_that_re2_can_not_take_does_not_cost_exponential_time(end: str) -> None:
    mask = ours("regex", regex=r"(\w+\s?)+$", replacement="?")
    with pytest.raises(Skippable, match="exponential time"):
        apply(mask, "a" * 50 + "!" + end)
    assert apply(mask, "short!" + end) == "short!" + end


@given(
    st.sampled_from(
        [
            *(r"([^@ ])[^@ ]*@(\w+)", r"\d+-(\d)", "(a|b)+c", r"[\w.]*(x)", r"(?<n>[^,]*),", "(?:(a)|b)*?c", "(.+)é"),
            *(r"^(\w+\s?)+", r"([^@]+)$", r"[\s,]*\b(\w+)\s$", r"(^|,)[^,]*@", r"(\w+)\s?$", r"(a|b)+(?:c$|\s)"),
        ]
    ),
    st.lists(st.text("abcx1-,@ .é😀\n\v", max_size=12), min_size=1, max_size=6),
)
@settings(max_examples=90, deadline=None)
def test_long_values_are_masked_as_short_ones_are(regex: str, words: list[str]) -> None:
    mask = ours("regex", regex=regex, replacement="<$1>")
    value = "".join(words)
    value = value * (5000 // max(1, len(value)) + 1)
    pattern = compile_java(regex)
    assert apply(mask, value) == pattern.sub(lambda match: f"<{match[1] or ''}>", value)


def test_murmur_passes_the_reference_implementations_own_check() -> None:
    keys = [bytes(range(i)) for i in range(256)]
    all32 = b"".join(murmur3_32(key, 256 - i).to_bytes(4, "little") for i, key in enumerate(keys))
    assert murmur3_32(all32) == 0xB0F57EE3
    all128 = b"".join(murmur3_128(key, 256 - i) for i, key in enumerate(keys))
    assert murmur3_128(all128)[:4] == (0x6384BA69).to_bytes(4, "little")


def test_salt_from_another_field() -> None:
    mask = ours("md5", salt_field="id", salt_secret="s")
    assert mask.convert is None
    assert mask.convert_row is not None
    assert mask.convert_row("x", {"id": 7}) == apply(ours("md5", salt_secret="s7"), "x")
    assert mask.convert_row("x", {"id": 8}) != mask.convert_row("x", {"id": 7})
    assert mask.convert_row("x", {"id": None}) == apply(ours("md5", salt_secret="s"), "x")
    with pytest.raises(Skippable, match=r"needs the field 'id'.*binlog_row_image=FULL"):
        mask.convert_row("x", {"other": 1})
    with pytest.raises(ConfigInvalid, match=r"no field .id. for salt\.field; there are a, b"):
        ours("md5", salt_field="id", target={"fields": ("a", "b")})


def test_row_masks_see_the_row_before_any_of_them() -> None:
    a, b = ours("md5", salt_field="b"), ours("md5", salt_field="a")
    assert a.convert_row is not None
    assert b.convert_row is not None
    run = row_masker([("a", a), ("b", b), ("c", ours("md5"))])
    assert run is not None
    row = {"a": "1", "b": "2", "c": "3"}
    run(row)
    assert row == {"a": a.convert_row("1", {"b": "2"}), "b": b.convert_row("2", {"a": "1"}), "c": "3"}
    empty: dict[str, Any] = {"a": None, "b": "2"}
    run(empty)
    assert empty["a"] is None
    assert row_masker([("c", ours("md5"))]) is None
    partial = {"c": "3"}
    run(partial)
    assert partial == {"c": "3"}


def test_nulls() -> None:
    assert not ours("md5").nulls
    mask = ours("md5", nulls="mask")
    assert mask.nulls
    assert apply(mask, None) == "d41d8cd98f00b204e9800998ecf8427e"
    assert apply(ours("default", nulls="mask"), None) == ""


def test_the_default_of_a_masked_column_is_not_shown() -> None:
    schema = Schema(
        Type.STRING,
        optional=True,
        default="someone@example.org",
        name="io.debezium.data.Enum",
        version=1,
        parameters=(("allowed", "a,b"),),
    )
    for kind in ("default", "md5"):
        assert ours(kind, schema).schema.default is None
    assert ours("md5", schema).schema.name is None


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("default", {}),
        ("replace", {"replacement": "x"}),
        ("chars", {"length": "1"}),
        ("truncate", {"length": "1"}),
        ("regex", {"regex": "a"}),
        ("md5", {"salt_field": "id"}),
    ],
)
def test_masks_that_would_merge_rows_refuse_key_columns(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid, match="message key"):
        ours(kind, target={"in_key": True}, **options)


def test_hashes_mask_keys_too() -> None:
    assert ours("md5", target={"in_key": True}).in_key


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"type": "md5"}, "mask r: it needs columns"),
        ({}, "mask r: it needs columns"),
        ({"columns": "a"}, "mask r: it needs type"),
        (
            {"columns": "a", "type": "md5", "salt.secret": "${file:/salts.properties:mail}"},
            r"mask r: \$\{file:/salts.properties:mail\} in salt.secret has no value: check the provider's name",
        ),
        ({"columns": "a", "type": "rot13"}, "there is no type 'rot13'; types are chars, default"),
        ({"columns": "a", "type": "no.such:thing"}, "type=no.such:thing can't be loaded: No module named 'no'"),
        ({"columns": "(", "type": "md5"}, "mask.r.columns: Invalid regex"),
        ({"columns": " , ", "type": "md5"}, "name the columns"),
        ({"columns": "a", "type": "hash", "algorithm": "CRC"}, "unknown hash algorithm 'CRC'"),
        ({"columns": "a", "type": "regex", "regex": "("}, "Invalid regex"),
        ({"columns": "a", "type": "regex", "regex": "a", "replacement": "$1"}, "No group 1"),
        ({"columns": "a", "type": "regex"}, "type=regex needs regex"),
        ({"columns": "a", "type": "replace"}, "type=replace needs replacement"),
        ({"columns": "a", "type": "chars", "length": "-1"}, "length='-1' is no number"),
        ({"columns": "a", "type": "md5", "nulls": "no"}, "nulls='no'; it is keep or mask"),
    ],
)
def test_wrong_rules_are_refused_before_any_column(options: dict[str, str], message: str) -> None:
    raw = {"mask.rules": "r", **{f"mask.r.{name}": value for name, value in options.items()}}
    with pytest.raises(ConfigInvalid, match=message):
        parse_rules(raw)
    assert [problem.name for problem in find_problems(raw)] == ["mask.r.type"]


def test_problems_names_options_that_nothing_reads() -> None:
    problems = find_problems(
        {
            "mask.rules": "a",
            "mask.a.columns": "x",
            "mask.a.type": "md5",
            "mask.a.salt": "oops",
            "mask.b.type": "md5",
            "column.mask.hash.CRC.with.salt.Pepper": "x",
            "column.mask.with.9999999.chars": "x",
        }
    )
    assert {problem.name for problem in problems} == {
        "mask.a.salt",
        "mask.b.type",
        "column.mask.hash.CRC.with.salt.Pepper",
        "column.mask.with.9999999.chars",
    }
    assert not any("Pepper" in problem.message for problem in problems)


def test_a_mask_of_ones_own() -> None:
    raw = {"mask.rules": "r", "mask.r.columns": NAME, "mask.r.type": f"{__name__}:reversing", "mask.r.sign": "!"}
    assert find_problems(raw) == []
    mask = mask_of(raw)
    assert apply(mask, "abc") == "!cba"
    with pytest.raises(ConfigInvalid, match="returned str, not a Mask"):
        mask_of({**raw, "mask.r.type": f"{__name__}:broken"})


def reversing(target: Target, options: Any) -> Mask:
    return Mask(options["rule"], target.schema, lambda value: options["sign"] + value[::-1])


def broken(target: Target, options: Any) -> Any:
    return str(target) + str(options)


def test_salts_are_secrets_everywhere() -> None:
    assert is_secret_name("mask.mail.salt.secret")
    assert next(key for key in RULE_KEYS if key.name == "salt.secret").secret


def test_utf16_cut_counts_as_java_does() -> None:
    assert utf16_cut("a😀b", 3) == "a😀"
    assert utf16_cut("a😀b", 2) == "a"
    assert utf16_cut("äöü", 2) == "äö"
    assert utf16_cut("äöü", 3) == "äöü"
