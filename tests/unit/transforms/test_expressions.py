"""Expressions: what they give, what is refused and where, and that none of them can take long."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.api import Header, SourceRecord
from connectors.errors import Skippable
from connectors.schema import (
    BYTES,
    FLOAT64,
    INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Field,
    Schema,
    array,
    decimal,
    map_of,
    struct,
    timestamp,
)
from worker.transforms.expressions.cel import MAX_ITEMS, MAX_SUMS, compile_cel
from worker.transforms.expressions.groovy import compile_groovy
from worker.transforms.expressions.parser import parse_expression
from worker.transforms.expressions.syntax import MAX_DEPTH, MAX_HEIGHT, MAX_LENGTH, ExpressionInvalid

ROW = struct(
    "srv.t.Value",
    {
        "id": INT32,
        "name": OPTIONAL_STRING,
        "price": decimal(2, optional=True),
        "tags": array(STRING, optional=True),
        "rates": map_of(STRING, FLOAT64, optional=True),
        "big": OPTIONAL_INT64,
        "raw": BYTES,
        "at": timestamp(optional=True),
    },
    optional=True,
)
COUNTRY = Schema(OPTIONAL_STRING.type, optional=True, default="none")
EVENT = Schema(
    ROW.type,
    name="srv.t.Envelope",
    fields=(
        Field("before", ROW),
        Field("after", ROW),
        Field("op", STRING),
        Field("source", struct("src", {"country": COUNTRY})),
    ),
)
AFTER = {
    "id": 2,
    "name": "Bob",
    "price": Decimal("10.50"),
    "tags": ["a", "b"],
    "rates": {"x": 0.5},
    "big": 1 << 62,
    "raw": b"\x00",
    "at": 5,
}


def record(value: Any = None, schema: Schema | None = EVENT, **more: Any) -> SourceRecord:
    event = {"before": None, "after": AFTER, "op": "u", "source": {"country": None}} if value is None else value
    return SourceRecord(
        {},
        {},
        "inventory.users",
        event,
        schema,
        {"id": 1},
        None,
        headers=(Header("h", "first", STRING), Header("h", "x", STRING), Header("n", 7, INT32)),
        **more,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("value.op == 'u' && value.after.id == 2", True),
        ("value.op == 'd' && value.before.id == 2", False),
        ("value.before.id == 2 && value.op == 'd'", False),  # CEL: false decides, whatever the other side is
        ("value.before == null && value.after != null", True),
        ("null == value.after.name", False),
        ("has(value.nowhere) || has(value.after.name)", True),
        ("value.after.price > 10.4 && value.after.price < 10.6", True),
        ("value.after.tags.exists(tag, tag == 'b')", True),
        ("value.after.tags.all(tag, tag.size() == 1)", True),
        ("'ü🦊'.size() == 2 && size('ü') == 1 && bytes('ü').size() == 2", True),
        ("['é', '🦊'].all(text, text.size() == 1) && 2 + ['ü'].size() == 3", True),
        ("value.after.tags.exists_one(tag, tag == value.after.name)", False),
        ("'a' in value.after.tags && value.after.tags[1] == 'b'", True),
        ("value.after.rates.x == 0.5 && value.after.rates['x'] == 0.5", True),
        ("value.after.big == 4611686018427387904", True),
        ("value.after.raw == b'\\x00'", True),
        ("value.source.country == 'none'", True),  # a null in a field with a default
        ("value.after.name.matches('^B.b$') && !value.after.name.matches('^o')", True),
        ("matches(topic, 'users$')", True),
        ("topic.startsWith('inventory.') && topic.endsWith('s') && topic.contains('.')", True),
        ("value.after.name.lowerAscii() + '-' + value.after.name.upperAscii()", "bob-BOB"),
        ("value.op == 'u' ? 'updates.' + value.after.name : null", "updates.Bob"),
        ("header.h.value == 'x' && header.n.value > 6 && has(header.h) && !has(header.q)", True),
        ("headers.exists(h, h.key == 'h' && h.value == 'first')", True),
        ("valueSchema.name == 'srv.t.Envelope' && 'op' in valueSchema.fields && keySchema == null", True),
        ("header.h.schema.type == 'STRING'", True),
        ("key.id == 1 && (key)['id'] == 1", True),
        ("value.after == value.after && value.after.tags == ['a', 'b']", True),
        ("size(value.after.tags) + value.after.id == 4", True),
        ("timestamp('2024-02-29T00:00:00Z').getFullYear() == 2024", True),
        ("value.after.id in [1, 2] // a comment", True),
        ("value['op'] == \"u\" && r'\\d' == '\\\\d' && '\\u00e4' == 'ä'", True),
    ],
)
def test_cel_gives(text: str, expected: Any) -> None:
    assert compile_cel(text)(record()) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("value.before.id == 2", "value.before is null, so it has no 'id'"),
        ("value.after.nowhere == 2", "the struct has no field 'nowhere'"),
        ("has(value.before.id)", "value.before is null"),
        ("header.q.value == 'x'", "no header 'q'"),
        ("value.after.rates.y == 0.5", "the map has no key 'y'"),
        ("value.op.x == 1", "a value of type STRING has no field 'x'"),
        ("value.after.name > 1", "value.after.name is a string"),
        ("value.after.id == 2 && value.op", "overload"),
        ("topic.x == 1", "topic is a string"),
        ("headers.h == 1", "header.h.value"),
        ("1 / (value.after.id - 2) == 1", "division by zero"),
        ("value.after.id.matches('x')", "string"),
    ],
)
def test_records_it_can_not_be_evaluated_for_are_refused(text: str, reason: str) -> None:
    with pytest.raises(Skippable) as caught:
        compile_cel(text)(record())
    assert str(caught.value).startswith(f"Error while evaluating expression '{text}': ")
    assert reason in str(caught.value)


def test_errors_show_no_values() -> None:
    secret = record({"before": None, "after": {**AFTER, "name": "s3cret"}, "op": "u", "source": {}})
    with pytest.raises(Skippable) as caught:
        compile_cel("value.after.name > 5 || value.after.name + 1 == 2")(secret)
    assert "s3cret" not in str(caught.value)


def test_a_decimal_that_can_not_be_exact_is_refused() -> None:
    event = {"before": None, "after": {**AFTER, "price": Decimal("123456789012345.678")}, "op": "u", "source": {}}
    with pytest.raises(Skippable, match="digits"):
        compile_cel("value.after.price > 1")(record(event))


def test_a_number_of_thousands_of_digits_does_not_count_where_the_rest_decides() -> None:
    event = {"before": None, "after": {**AFTER, "price": Decimal((0, (7,) * 5000, 0))}, "op": "u", "source": {}}
    assert compile_cel("value.after.price > 1 || value.op == 'u'")(record(event)) is True
    with pytest.raises(Skippable, match="a decimal has more than 15 digits"):
        compile_cel("value.after.price > 1")(record(event))


def test_a_whole_decimal_is_an_int() -> None:
    event = {"before": None, "after": {**AFTER, "price": Decimal("9007199254740993.00")}, "op": "u", "source": {}}
    assert compile_cel("value.after.price == 9007199254740993")(record(event)) is True


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("valu.op == 'u'", 1, "there is no variable 'valu'"),
        ("value.op = 'u'", 10, "write == to compare"),
        ("value?.op == 'u'", 6, "value.before != null &&"),
        ("value.op == 'u' and true", 17, "write &&"),
        ("value.op == 'u", 13, "not closed"),
        ("value.op ==", 12, "ends too early"),
        ("value.op == 'u')", 16, "unexpected ')'"),
        ("value.after.tags.map(t, t) == []", 18, "exists, all or exists_one"),
        ("value.after.tags.exists(t, value.after.tags.exists(u, u == t))", 45, "the product of both lists"),
        ("value.after.tags.exists(t, value.after.name.contains(t))", 28, "may only be compared"),
        ("value.after.tags.exists(t, t in value.after.tags)", 30, "the product of both"),
        ("value.after.tags.all(t, value.after == value.before)", 37, "the product of both"),
        ("''" + " + topic" * (MAX_SUMS + 1), 4, "more than 16 +"),
        ("value.after.tags.exists(value, true)", 25, "can't name an item"),
        ("value.after.tags.exists(t)", 18, "list.exists(item, condition)"),
        ("value.after.name.matches(value.op)", 26, "written out"),
        ("value.after.name.matches('(')", 26, "RE2"),
        ("value.after.name.matches('(?=a)')", 26, "RE2"),
        ("value.after.name.equals('x')", 18, "write =="),
        ("value.after.name.length() > 1", 18, "x.size()"),
        ("open('/etc/passwd')", 1, "there is no function 'open'"),
        ("value.getClass().forName('x')", 18, "there is no function"),
        ("has(value)", 1, "has(value.name)"),
        ("1L == 1", 1, "leave it away"),
        ("99999999999999999999 > 1", 1, "64 bits"),
        ("true ?\n false\n  : oops", 5, "no variable 'oops'"),
        ("value.$x == 1 ? value#y : 1", 22, "unexpected '#'"),
    ],
)
def test_wrong_expressions_are_refused_with_the_place(text: str, column: int, reason: str) -> None:
    with pytest.raises(ExpressionInvalid) as caught:
        compile_cel(text)
    assert reason in str(caught.value)
    assert f"column {column}: " in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1),
        "!" * 100 + "true",
        "[" * 100 + "]" * 100,
        "1" + " + 1" * MAX_LENGTH,
        "x" * (MAX_LENGTH + 1),
        "true" + " || true" * MAX_HEIGHT,
        "true ? " * 50 + "1" + " : 0" * 50,
    ],
)
def test_long_and_deep_expressions_are_refused(text: str) -> None:
    with pytest.raises(ExpressionInvalid):
        compile_cel(text)


def test_the_deepest_expression_can_be_evaluated() -> None:
    depth = MAX_DEPTH - 1
    assert compile_cel("(" * depth + "true" + ")" * depth)(record()) is True
    assert compile_cel("true" + " && true" * (MAX_HEIGHT - 1))(record()) is True
    assert compile_groovy("true" + " && true" * (MAX_HEIGHT - 1))(record()) is True


def test_long_lists_are_not_handed_over() -> None:
    test = compile_cel("value.after.tags.exists(t, t == 'z')")
    tags = ["a"] * MAX_ITEMS
    event = {"before": None, "after": {**AFTER, "tags": tags}, "op": "u", "source": {}}
    assert test(record(event)) is False
    tags.append("z")
    with pytest.raises(Skippable, match=f"at most {MAX_ITEMS}"):
        test(record(event))


def test_data_without_schema() -> None:
    plain = record({"op": "u", "list": [{"n": 1}], "deep": {"a": {"b": None}}}, None)
    assert compile_cel("value.op == 'u' && value.list[0].n == 1 && value.deep.a.b == null")(plain) is True
    assert compile_cel("has(value.deep.a.b) && !has(value.gone)")(plain) is True
    with pytest.raises(Skippable, match="no key 'gone'"):
        compile_cel("value.gone == 1")(plain)
    assert compile_groovy("value.gone == null && value.op == 'u'")(plain) is True


def test_a_tombstone_can_be_evaluated() -> None:
    tombstone = SourceRecord({}, {}, "t", None, None, {"id": 1})
    assert compile_cel("value == null && valueSchema == null")(tombstone) is True
    with pytest.raises(Skippable, match="value is null"):
        compile_cel("value.op == 'u'")(tombstone)


def test_one_evaluation_leaves_nothing_for_the_next() -> None:
    test = compile_cel("value.before.id == 2 || value.after.name.matches('B')")
    event = {"before": {"id": 2}, "after": None, "op": "d", "source": {}}
    assert test(record(event)) is True
    event = {"before": None, "after": None, "op": "t", "source": {}}
    with pytest.raises(Skippable):
        test(record(event))


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("value.source.schema == 'x'", 1, "Java's object"),
        ("value.after.name =~ 'x'", 18, "matches"),
        ("value.after.name", None, ""),
        ("value.after.name && true", 1, "== true"),
        ("!value.after.name", 2, "must be a comparison"),
        ("value.after.id in [1, 2]", 19, "list of strings"),
        ("value.after.id + 1 == 2", 16, "+ can be taken over"),
        ('value.op == "${topic}"', 13, "$"),
        ("value.after.tags.any { it == 'a' }", 22, "unexpected"),
        ("value.after.name.matches('x')", 18, "startsWith"),
        ("value.op == 'u'\n&& true", 16, "one line"),
        ("valueSchema.name == 'x'", 1, "can't be taken over"),
        ("value.after.id == 1 == true", 21, "parentheses"),
        ("header.h == 'x'", 1, "header.NAME.value"),
        ("new File('/tmp/x')", 5, "unexpected"),
        ("System.exit(1)", 8, "exit"),
        ("def x = 1", 5, "unexpected"),
        ("'a' + 2.0", 7, "as a string"),
        ("value.op == 010", 13, "octal"),
        ("-value.after.id == 2", 1, "can't be taken over"),
    ],
)
def test_groovy_that_could_mean_something_else_is_refused(text: str, column: int | None, reason: str) -> None:
    if column is None:
        assert compile_groovy(text)(record()) == "Bob"
        return
    with pytest.raises(ExpressionInvalid) as caught:
        compile_groovy(text)
    assert reason in str(caught.value)
    assert f"column {column}: " in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "value.before.id == 2 && value.op == 'd'",
        "value.after.at < 6",
        "value.after.raw > 1",
        "value.after == value.before || value.after == value.after",
        "'x' + value.after.price",
    ],
)
def test_groovy_fails_for_records_where_it_can_not_be_followed(text: str) -> None:
    with pytest.raises(Skippable, match="Error while evaluating expression"):
        compile_groovy(text)(record())


OPERANDS = st.sampled_from(
    [
        "value.op",
        "value.after.id",
        "value.after.name",
        "value.before",
        "value.source.country",
        "topic",
        "'u'",
        "'Bob'",
        "2",
        "2.0",
        "10.5",
        "null",
        "value.after.price",
        "header.h.value",
        "key.id",
    ]
)
TESTS = st.builds("{} {} {}".format, OPERANDS, st.sampled_from(["==", "!=", "<", ">="]), OPERANDS)
CONDITIONS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.builds("({}) && ({})".format, inner, inner),
        st.builds("({}) || ({})".format, inner, inner),
        st.builds("!({})".format, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=150, derandomize=True, database=None, deadline=None)
@given(CONDITIONS)
def test_where_cel_and_groovy_both_have_an_answer_it_is_the_same(text: str) -> None:
    try:
        groovy = compile_groovy(text)(record())
    except (Skippable, ExpressionInvalid):
        return
    try:
        cel = compile_cel(text)(record())
    except Skippable:
        return  # null < 1 and the like, which only Groovy has an answer for
    assert cel == groovy, text


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(st.text(alphabet="value.op=!&|<>()[]{}'\"\\?:+-*/%, 01ehxrb\n$#", max_size=40))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    for read in (parse_expression, partial(parse_expression, groovy=True), compile_cel):
        try:
            read(text)
        except ExpressionInvalid as error:
            offsets = [error.offset]
        else:
            offsets = []
        assert all(0 <= offset <= len(text) for offset in offsets)
