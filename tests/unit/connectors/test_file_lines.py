"""Bytes to lines: any division into blocks gives the lines of the whole, with positions that a restart can resume from."""

import codecs
import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.text_files.lines import BadLine, LineSplitter, byte_order, encoding_problem, mark_length

TERMINATED = re.compile(r"([^\r\n]*)(\r\n|\r(?!\Z)|\n)")


def splitter(
    encoding: str = "utf-8", *, position: int = 0, limit: int = 1 << 20, replace: bool = False, cut: bool = False
) -> LineSplitter:
    return LineSplitter(encoding, position=position, limit=limit, replace=replace, cut=cut)


def feed_all(lines: LineSplitter, data: bytes, cuts: list[int]) -> tuple[list[tuple[str, int]], list[BadLine]]:
    lines_read: list[tuple[str, int]] = []
    bad: list[BadLine] = []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, stop in pairwise(edges):
        output = lines.feed(data[start:stop])
        assert len(output.strings) == len(output.ends)
        lines_read += zip(output.strings, output.ends, strict=True)
        bad += output.bad
    return lines_read, bad


def expected(text: str, encoding: str) -> list[tuple[str, int]]:
    result, end = [], 0
    for match in TERMINATED.finditer(text):
        end += len(match[0].encode(encoding))
        result.append((match[1], end))
    return result


TEXT = st.text(alphabet=st.sampled_from("ab \n\n\r\u00e9\u2028\u0085\U0001f600\x0b\x0c\x1c"), max_size=60)
CUTS = st.lists(st.integers(0, 400), max_size=8)


@given(text=TEXT, cuts=CUTS, encoding=st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "gb18030"]))
@example(text="a\r\nb\rc\n", cuts=[2], encoding="utf-8")
@example(text="a\r\r\n\n", cuts=[1, 2, 3, 4], encoding="utf-16-le")
def test_any_blocks_give_the_same_lines(text: str, cuts: list[int], encoding: str) -> None:
    lines = splitter(encoding)
    data = text.encode(encoding)
    lines_read, bad = feed_all(lines, data, cuts)
    assert lines_read == expected(text, encoding)
    assert not bad
    assert lines.position + sum(map(len, lines._parts)) == len(data)
    assert lines.position == (lines_read[-1][1] if lines_read else 0)


@given(text=TEXT, number=st.integers(0, 30), cuts=CUTS)
def test_a_restart_from_any_position_gives_the_rest(text: str, number: int, cuts: list[int]) -> None:
    data = text.encode()
    whole = expected(text, "utf-8")
    if not whole:
        return
    position = whole[number % len(whole)][1]
    lines_read, _ = feed_all(splitter(position=position), data[position:], cuts)
    assert lines_read == whole[number % len(whole) + 1 :]


@given(data=st.binary(max_size=80).map(lambda raw: raw.replace(b"\r", b"x")), cuts=CUTS, replace=st.booleans())
def test_malformed_bytes_cost_their_line_only(data: bytes, cuts: list[int], replace: bool) -> None:
    lines_read, bad = feed_all(splitter(replace=replace), data, cuts)
    end = 0
    good, wrong = [], []
    for raw in data.split(b"\n")[:-1]:
        end += len(raw) + 1
        try:
            good.append((raw.decode(), end))
        except UnicodeDecodeError:
            wrong.append((raw, end))
    if replace:
        assert not bad
        assert lines_read == sorted(
            [*good, *((raw.decode("utf-8", "replace"), at) for raw, at in wrong)], key=lambda item: item[1]
        )
    else:
        assert lines_read == good
        assert [(line.raw, line.end) for line in bad] == wrong


@given(
    sizes=st.lists(st.integers(0, 200), max_size=12),
    cuts=st.lists(st.integers(0, 3000), max_size=12),
    ends=st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_long_lines_are_reported_with_their_beginning(sizes: list[int], cuts: list[int], ends: bytes) -> None:
    data = b"".join(b"x" * size + ends for size in sizes) + b"y\n"
    lines_read, bad = feed_all(splitter(limit=64), data, cuts)
    end = 0
    good: list[tuple[int, int]] = []
    long: list[tuple[int, int]] = []
    for size in sizes:
        end += size + len(ends)
        (long if size > 64 else good).append((size, end))
    # Where a lone "\r" is before the last line, that line is its own.
    assert [(len(text), at) for text, at in lines_read] == [*good, (1, len(data))]
    assert [(line.raw, line.end) for line in bad] == [(b"x" * 64, at) for _, at in long]


@given(
    sizes=st.lists(st.integers(0, 200), max_size=8),
    cuts=st.lists(st.integers(0, 3000), max_size=12),
    encoding=st.sampled_from(["utf-16-le", "utf-16-be", "utf-32-le"]),
)
@example(sizes=[100], cuts=[3, 6, 9, 12, 15, 99], encoding="utf-16-le")
def test_lines_behind_a_long_one_of_wide_characters_are_read(sizes: list[int], cuts: list[int], encoding: str) -> None:
    data = "".join("x" * size + "\n" for size in sizes).encode(encoding)
    lines_read, bad = feed_all(splitter(encoding, limit=64), data, cuts)
    width, end = len("x".encode(encoding)), 0
    ends = [(size, end := end + (size + 1) * width) for size in sizes]
    assert [(len(line), at) for line, at in lines_read] == [item for item in ends if item[0] * width <= 64]
    assert [line.end for line in bad] == [at for size, at in ends if size * width > 64]


@given(
    text=st.text(alphabet="ab\u00e9\U0001f600\n", max_size=300),
    cuts=st.lists(st.integers(0, 1500), max_size=10),
    encoding=st.sampled_from(["utf-8", "utf-16-le"]),
)
def test_long_lines_can_be_cut_between_characters(text: str, cuts: list[int], encoding: str) -> None:
    text += "\n"
    data = text.encode(encoding)
    lines_read, bad = feed_all(splitter(encoding, limit=64, cut=True), data, cuts)
    assert not bad
    assert "".join(part for part, _ in lines_read) == text.replace("\n", "")
    assert all(len(part.encode(encoding)) <= 64 for part, _ in lines_read)
    once, _ = feed_all(splitter(encoding, limit=64, cut=True), data, [])
    assert lines_read == once, "pieces depend on how the file was read"
    for number, (_, position) in enumerate(lines_read):
        rest, _ = feed_all(splitter(encoding, position=position, limit=64, cut=True), data[position:], cuts)
        assert rest == lines_read[number + 1 :]


def test_memory_is_bounded_by_the_limit() -> None:
    lines = splitter(limit=1000)
    for _ in range(200):
        assert lines.feed(b"z" * 500).strings == []
        assert sum(map(len, lines._parts)) <= 1600
        assert lines.position == 0, "a restart reads the whole line again"
    output = lines.feed(b"\nnext\n")
    assert [(line.raw, line.end) for line in output.bad] == [(b"z" * 1000, 100_001)]
    assert output.strings == ["next"]
    assert lines.position == 100_006


def test_a_long_line_of_wide_characters_is_looked_through_once() -> None:
    looked_at = 0

    class Counting(LineSplitter):
        """Counts the bytes that it looks through."""

        def _wide_stop(self, data: bytes) -> int:
            nonlocal looked_at
            looked_at += len(data)
            return super()._wide_stop(data)

    lines = Counting("utf-16-le", limit=1 << 20, replace=False, cut=False)
    line = "x" * 100_000
    data = f"{line}\n".encode("utf-16-le")
    result: list[str] = []
    for start in range(0, len(data), 101):
        result += lines.feed(data[start : start + 101]).strings
    assert result == [line]
    assert looked_at < 4 * len(data), "not the whole line again for each block"


def test_a_carriage_return_waits_for_the_next_byte() -> None:
    lines = splitter()
    assert lines.feed(b"one\r").strings == []
    assert lines.feed(b"\n").strings == ["one"]
    assert lines.feed(b"two\r").strings == []
    output = lines.feed(b"three")
    assert (output.strings, list(output.ends)) == (["two"], [9])


def test_the_unfinished_line_of_an_ended_file() -> None:
    lines = splitter()
    lines.feed(b"one\ntw")
    output = lines.finish()
    assert (output.strings, list(output.ends)) == (["tw"], [6])
    assert lines.finish().strings == []


@pytest.mark.parametrize(
    "name", ["utf-8", "latin-1", "cp1252", "gbk", "shift_jis", "big5", "euc-jp", "utf-8-sig", "utf-16", "utf-32"]
)
def test_encodings_that_work(name: str) -> None:
    assert encoding_problem(name) is None


@pytest.mark.parametrize(
    "name", ["nonsense", "cp037", "utf-7", "base64", "rot13", "idna", "", "punycode", "raw_unicode_escape"]
)
def test_encodings_that_do_not_work(name: str) -> None:
    assert encoding_problem(name)


@pytest.mark.parametrize(
    ("name", "head", "resolved", "length"),
    [
        ("utf-16", codecs.BOM_UTF16_BE + b"\0a", "utf-16-be", 2),
        ("utf-16", codecs.BOM_UTF16_LE + b"a\0", "utf-16-le", 2),
        ("utf-16", b"a\0", "utf-16-le", 0),
        ("utf-32", codecs.BOM_UTF32_BE, "utf-32-be", 4),
        ("utf-8-sig", codecs.BOM_UTF8 + b"a", "utf-8-sig", 3),
        ("utf-8", codecs.BOM_UTF8 + b"a", "utf-8", 0),
        ("latin-1", b"\xff\xfe", "iso8859-1", 0),
    ],
)
def test_byte_order_marks(name: str, head: bytes, resolved: str, length: int) -> None:
    assert byte_order(name, head) == resolved
    assert mark_length(name, head) == length
