"""Expressions that are evaluated by Groovy in Debezium and here: as Groovy and, where there is a second text, as CEL."""

from __future__ import annotations

#: Conditions. The second text is the CEL that gives the same for each record, errors included.
GROOVY: tuple[tuple[str, ...], ...] = (
    ("value.op == 'u'", "value.op == 'u'"),
    ("value.op == 'u' && value.before.id == 2", "value.op == 'u' && value.before.id == 2"),
    ("value.op == 'd' || value.after.id == 2", "value.op == 'd' || value.after.id == 2"),
    ("value.before.id == 2 && value.op == 'u'",),
    ("value.after != null && value.after.name == 'Bob'", "value.after != null && value.after.name == 'Bob'"),
    ("value.after?.name == 'Bob'",),
    ("value?.after?.id > 1",),
    ("value.after?.name != null",),
    ("topic.startsWith('srv')", "topic.startsWith('srv')"),
    ("topic.endsWith('users')", "topic.endsWith('users')"),
    ("topic.contains('.db.') && !topic.contains('orders')", "topic.contains('.db.') && !topic.contains('orders')"),
    ("value.source.table == 'users'", "value.source.table == 'users'"),
    ("value.get('op') == 'u'",),
    ("value['op'] == 'u'", "value['op'] == 'u'"),
    ("value.source['table'] == 'users'",),
    ("value.source.snapshot == 'false'", "value.source.snapshot == 'false'"),
    ("header.h.value == 'x'", "header.h.value == 'x'"),
    ("header.h?.value == 'x'",),
    ("header['h'].value == 'x'",),
    ("value.op in ['c', 'u']", "value.op in ['c', 'u']"),
    ("value.after.c0 in ['a', 'b']",),
    ("key.id == 1", "key.id == 1"),
    ("key == null", "key == null"),
    ("value.nosuch == 1", "value.nosuch == 1"),
    ("key?.region == 'none'",),
    *(
        (f"value.after.c{number} == {literal}",)
        for number in range(7)
        for literal in ("1", "2.0", "'a'", "true", "'1'", "null")
    ),
    *(
        (f"value.after.c{number} {operator} {literal}",)
        for number in range(7)
        for operator, literal in (("<", "2"), (">=", "1.5"), ("<=", "'b'"), (">", "null"), ("!=", "'a'"))
    ),
    ("value.after.c0 == value.after.c1",),
    ("value.after.c1 < value.after.c2",),
    ("value.after.c3 >= value.after.c4",),
    ("value.after.c5 == value.after.c6",),
    ("value.after.id == 49 || value.after.id == '1'",),
    ("!(value.op == 'u')", "!(value.op == 'u')"),
    ("!(value.op == 'u' || value.op == 'c') && topic != 'x'",),
    (
        "value.op == 'u' ? value.before.id == 2 : value.op == 'c'",
        "value.op == 'u' ? value.before.id == 2 : value.op == 'c'",
    ),
    ("true", "true"),
    ("value.op", "value.op"),
    ("value.after.c3",),
    ("(value.op == 'u') == true",),
    ("value.source.ts_ms > 1000000000000", "value.source.ts_ms > 1000000000000"),
    ("value.ts_ms == 77",),
    ("value.after.name.startsWith('B')",),
    ("value.after.name.contains(value.op)",),
    ("value.after.c2.endsWith('a')",),
    ('value.op == "u"', 'value.op == "u"'),
    ("value.after.name == 'it\\'s'",),
    ("'a' < 'b'",),
    ("'é' > 'z'",),
    ("value.after == null", "value.after == null"),
    ("value.after.id == -1",),
    ("value == null", "value == null"),
    ("value != null && value.op != 'd'",),
    ("value.transaction?.total_order == 4",),
    ("value.transaction.id == 'tx:1'",),
)
#: Topics.
ROUTES: tuple[tuple[str, ...], ...] = (
    ("value.op == 'u' ? 'updates' : null", "value.op == 'u' ? 'updates' : null"),
    ("value.op == 'd' ? 'deletes' : 'others'", "value.op == 'd' ? 'deletes' : 'others'"),
    ("value.source.table", "value.source.table"),
    ("'t.' + value.source.table", "'t.' + value.source.table"),
    ("topic + '-' + value.op", "topic + '-' + value.op"),
    ("'n.' + value.after?.name",),
    ("'i' + value.after.id",),
    ("value.after?.name",),
    ("value.op == 'c' ? value.after.name : topic", "value.op == 'c' ? value.after.name : topic"),
    ("value.after.id", "value.after.id"),
    ("null", "null"),
    ("header.h?.value",),
)
#: The pairs of both.
CEL: tuple[tuple[str, str], ...] = tuple((pair[0], pair[1]) for pair in (*GROOVY, *ROUTES) if len(pair) == 2)
