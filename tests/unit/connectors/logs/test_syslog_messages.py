"""Messages of syslog: both forms, what real senders make of them, and what is of no form."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.logs.network.frames import SyslogDecoder
from connectors.logs.network.lines import LineLimits, NetworkLine, make_line
from connectors.logs.network.syslog import parse_syslog
from connectors.logs.rules.records import LineOrigin

NOW = int(datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp() * 1000)
PEER = LineOrigin("peer", "tcp://0.0.0.0:5514", 0, NOW)


def milliseconds(*time: int) -> int:
    return int(datetime(*time, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type,misc]


def test_a_message_of_rfc_5424() -> None:
    line = parse_syslog(
        "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog 99 ID47 "
        '[exampleSDID@32473 iut="3" event="a \\"b\\" \\] \\\\"][other@32473] \ufeffAn application event',
        PEER,
    )
    origin = line.origin
    assert line.line == "An application event"
    assert (origin.priority, origin.facility, origin.severity) == (165, "local4", "notice")
    assert (origin.host, origin.app, origin.procid, origin.msgid) == (
        "mymachine.example.com",
        "evntslog",
        "99",
        "ID47",
    )
    assert origin.timestamp == milliseconds(2003, 10, 11, 22, 14, 15) + 3
    assert json.loads(origin.data or "") == {
        "exampleSDID@32473": {"iut": "3", "event": 'a "b" ] \\'},
        "other@32473": {},
    }


@pytest.mark.parametrize(
    ("text", "line", "host", "app", "process", "time"),
    [
        (
            "<34>Oct 11 22:14:15 mymachine su: 'su root' failed",
            "'su root' failed",
            "mymachine",
            "su",
            None,
            milliseconds(2026, 10, 11, 22, 14, 15),
        ),
        ("<34>Dec  1 00:00:00 h app[12]: x", "x", "h", "app", "12", milliseconds(2025, 12, 1)),
        ("<34>Nov 27 00:00:00 h app[]: x: y", "x: y", "h", "app", None, milliseconds(2026, 11, 27)),
        ("<34>Feb 29 00:00:00 h app: x", "x", "h", "app", None, milliseconds(2024, 2, 29)),
        ("<34>Jun 30 23:59:60 h app: x", "x", "h", "app", None, milliseconds(2026, 7, 1)),
        ("<13>1 2016-12-31T23:59:60.5Z h app - - - x", "x", "h", "app", None, milliseconds(2017, 1, 1) + 500),
        ("<13>2026-11-26T13:00:00.5+02:00 h a: x", "x", "h", "a", None, milliseconds(2026, 11, 26, 11) + 500),
        ("<13>Nov 26 11:00:00 app: x", "x", "peer", "app", None, milliseconds(2026, 11, 26, 11)),
        ("<13>Nov 26 11:00:00 h no tag here", "no tag here", "h", None, None, milliseconds(2026, 11, 26, 11)),
        ("<13>anything", "anything", "peer", None, None, NOW),
        ("<13>Nov 31 11:00:00 h a: x", "Nov 31 11:00:00 h a: x", "peer", None, None, NOW),
        ("<13>1 yesterday h a - - - x", "1 yesterday h a - - - x", "peer", None, None, NOW),
        ("<34>1 - - - - - -", "", "peer", None, None, NOW),
    ],
)
def test_other_messages(text: str, line: str, host: str, app: str | None, process: str | None, time: int) -> None:
    parsed = parse_syslog(text, PEER)
    assert (parsed.line, parsed.origin.host, parsed.origin.app, parsed.origin.procid, parsed.origin.timestamp) == (
        line,
        host,
        app,
        process,
        time,
    )
    assert parsed.origin.priority in (13, 34)


@pytest.mark.parametrize("text", ["no priority", "<999>x", "<192>x", "<>x", "<1", "a\0b", ""])
def test_what_is_of_no_form_is_a_line(text: str) -> None:
    assert parse_syslog(text, PEER) == NetworkLine(text, PEER)


@given(st.text())
def test_any_text_makes_a_line(text: str) -> None:
    parse_syslog("<13>" + text, PEER)
    parse_syslog("<13>1 - - - - - " + text, PEER)


def test_a_sender_may_name_its_messages() -> None:
    assert parse_syslog('<13>1 - h a - - [line@32473 id="abc"] x', PEER).identity == "abc"
    counted = parse_syslog('<13>1 2026-11-26T11:00:00Z h a 7 - [meta sequenceId="5"] x', PEER)
    assert counted.identity == "h:a:7:2026-11-26T11:00:00Z:5"
    assert parse_syslog('<13>1 - h a 7 - [meta sequenceId="5"] x', PEER).identity == ""


def decoder(most: int = 20) -> SyslogDecoder:
    limits = LineLimits(most)
    return SyslogDecoder(lambda data, cut: make_line(data, limits, PEER, parse_syslog, cut=cut), most)


@given(st.data())
def test_frames_are_found_however_they_come(data: st.DataObject) -> None:
    counted = b"8 <13>a\nb!"
    stream = (
        counted + b"<13>line\n" + counted + b"12 not a count\n" + b"9 <13>" + "aé".encode() + b"\0\0" + b"<1>\n\n\n"
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    target = decoder()
    lines: list[NetworkLine] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        lines += target.feed(stream[start:end]).lines
    lines += target.end().lines
    assert [line.line for line in lines] == ["a\nb!", "line", "a\nb!", "12 not a count", "aé", ""]


@given(st.data())
def test_long_lines_are_cut_and_what_follows_is_not(data: st.DataObject) -> None:
    stream = b"<13>" + b"x" * 30 + b"\n<13>after\n" + b"40 <13>" + b"y" * 36 + b"9 <13>after"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    target = decoder()
    lines: list[NetworkLine] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        lines += target.feed(stream[start:end]).lines
    assert [line.line for line in lines] == ["x" * 16, "after", "y" * 16, "after"]


def test_ten_megabytes_without_an_end_hold_little_memory() -> None:
    target = decoder(1000)
    lines: list[NetworkLine] = []
    for _ in range(160):
        lines += target.feed(b"x" * 65536).lines
    lines += target.feed(b"\nnext\n").lines
    assert [line.line for line in lines] == ["x" * 1000, "next"]
    assert len(target._rest) == 0


def test_a_last_line_without_its_end() -> None:
    target = decoder()
    assert target.feed(b"<13>last").lines == []
    assert [line.line for line in target.end().lines] == ["last"]
    assert target.end().lines == []
    assert target.feed(b"9 <13>la").lines == []
    assert target.end().lines == []


def test_broken_utf_8() -> None:
    replaced = make_line(b"<13>a\xff", LineLimits(20), PEER, parse_syslog)
    assert replaced.line == "a�"
    reported = make_line(b"<13>a\xff", LineLimits(20, report_malformed=True), PEER, parse_syslog)
    assert "not UTF-8" in reported.error
    assert reported.raw == b"<13>a\xff"
    cut = make_line("<13>aé".encode()[:6], LineLimits(6, report_malformed=True), PEER, parse_syslog, cut=True)
    assert (cut.line, cut.error) == ("a�", "")
    long = make_line(b"<13>abc", LineLimits(5, report_long=True), PEER, parse_syslog)
    assert "longer than line.max.bytes=5" in long.error
