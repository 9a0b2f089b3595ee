"""The check of names and prose: a planted violation of every kind is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.wording.__main__ import GLOSSARY, ROOT, is_checked, main
from tests.wording.findings import Finding, check_markdown, check_python
from tests.wording.glossary import read_glossary

if TYPE_CHECKING:
    from pathlib import Path

GLOSSARY_PAGE = (ROOT / GLOSSARY).read_text(encoding="utf-8")
WORDS = read_glossary(GLOSSARY_PAGE)


def python_findings(source: str, *, path: str = "worker/module.py", messages: bool = True) -> list[Finding]:
    return check_python(path, source, WORDS, messages=messages)


@pytest.mark.parametrize(
    "source",
    [
        "told = 1",
        "found: int = 1",
        "for each in (): pass",
        "def load(wanted): pass",
        "def load(*, known=()): pass",
        "def load(*made): pass",
        "class Reader:\n    place = 1",
        "class Reader:\n    def __init__(self): self._place = 1",
        "lambda found: 1",
        "[each for each in ()]",
        "print(f'{[each for each in ()]}')",
        "def told(): pass",
        "async def told(): pass",
        "class Told: pass",
        "def was_told(): pass",
        "import os as found",
        "try: pass\nexcept OSError as found: pass",
        "match 1:\n    case found: pass",
        "if (found := 1): pass",
        "KNOWN = 1",
        "texts = []",
        "max_pulls = 1",
        "class PullView: pass",
        "class SQLBackfill: pass",
    ],
)
def test_a_banned_name_is_reported(source: str) -> None:
    assert [finding.kind for finding in python_findings(source)] == ["name"]


@pytest.mark.parametrize(
    "source",
    [
        "known_tables = foundation = placement = replace = True",
        "print(found, record.place)",
        "load(known=1)",
        "text = pulley = watermark = reached = None",
        "def find_tables(expected): return expected",
        "from module import place",
        '"""Read the rows of a table."""',
        '"""Whether the value is None."""',
        "x = 'told'",
        '"""Set `full pull` or ``backfill.mode``; see worker/pull/told.py."""',
        "# A pull request stands for one change.",
    ],
)
def test_a_clean_file_passes(source: str) -> None:
    assert python_findings(source) == []


def test_a_module_is_named_after_the_glossary() -> None:
    assert [finding.word for finding in python_findings("", path="connectors/x/pulls.py")] == ["pulls"]
    assert [finding.word for finding in python_findings("", path="tests/unit/test_pulls.py")] == ["pulls"]
    assert python_findings("", path="connectors/x/snapshots.py") == []


@pytest.mark.parametrize(
    ("source", "line", "word"),
    [
        ('"""Say it anew."""', 1, "anew"),
        ('"""Read rows.\n\nOf these nothing but keys.\n"""', 3, "Of these nothing"),
        ('"""Read rows and go\non after it."""', 1, "go on"),
        ("x = 1  # mend it", 1, "mend"),
        ("#: Numbers of nobody.\nx = 1", 1, "nobody"),
        ("# The reader goes\n# on after a pause.\nx = 1", 1, "goes on"),
        ("x = '#'; y = 'a'  # told", 1, "told"),
        ("x = '''\n# no comment\n'''  # told", 3, "told"),
        ("x = 'ü' '#'  # told", 1, "told"),
        ("def f():\n    raise ValueError('rows are '\n                     'read anew')", 3, "anew"),
        ("def f(n):\n    raise ValueError(f'{n} is read '\n                     f'anew by {n}')", 3, "anew"),
        ("class A:\n    x: int\n    '''Read anew.'''", 3, "anew"),
    ],
)
def test_a_banned_phrase_is_reported(source: str, line: int, word: str) -> None:
    reported = [(finding.line, finding.kind, finding.word) for finding in python_findings(source)]
    assert reported == [(line, "prose", word)]


def test_strings_of_tests_are_not_prose() -> None:
    assert python_findings("x = 'read it anew'", messages=False) == []


@pytest.mark.parametrize(
    "source", ['"""What the reader does."""', "def f():\n    '''What it is.'''", "class A:\n    '''Who asks.'''"]
)
def test_a_docstring_that_opens_with_a_question_word_is_reported(source: str) -> None:
    assert [finding.kind for finding in python_findings(source)] == ["docstring"]


def test_markdown_is_checked_without_code_and_link_targets() -> None:
    page = """# A page

The stream goes
on. See [the page](docs/pull.md#backfill), `told` and <!-- anew -->.

```sh
pull anew
```

    - a full
      pull beside it"""
    assert [(finding.line, finding.word) for finding in check_markdown("docs/page.md", page, WORDS)] == [
        (3, "goes on"),
        (11, "beside"),
        (11, "pull"),
    ]


def test_a_finding_says_what_to_write() -> None:
    [finding] = python_findings("x = 1\nbackfill = 2")
    assert str(finding) == "worker/module.py:2: the name 'backfill'; write instead: snapshot"


@pytest.mark.parametrize(
    "page",
    [
        GLOSSARY_PAGE.replace("| Not in names |", "| Names |"),
        GLOSSARY_PAGE.replace("`anew`, ", "").replace("| retry |", "| again | | | `anew` |\n| retry |"),
    ],
)
def test_a_glossary_without_bans_or_with_one_twice_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"glossary\.md"):
        read_glossary(page)


def test_every_banned_word_is_reported_with_advice() -> None:
    for name in WORDS.names | WORDS.name_words:
        assert [finding.advice for finding in python_findings(f"{name} = 1")] != [""], name
    for phrase in WORDS.phrases:
        assert [finding.advice for finding in check_markdown("a.md", f"It {phrase} it.", WORDS)] == [
            WORDS.phrases[phrase]
        ]
    for word in WORDS.openers:
        assert len(python_findings(f'"""{word} it is."""')) == 1


@pytest.mark.parametrize(
    ("name", "checked"),
    [
        ("README.md", True),
        ("setup.py", False),
        ("worker/cli.py", True),
        ("docs/rest.md", True),
        ("docs/reference/rest.md", False),
        ("docs/glossary.md", False),
        ("tests/unit/__pycache__/x.py", False),
        ("compose/x.yml", False),
        (".venv/x.py", False),
    ],
)
def test_which_files_are_checked(name: str, checked: bool) -> None:
    assert is_checked(name) is checked


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for folder in ("worker", "docs", "tests/wording"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / GLOSSARY).write_text(GLOSSARY_PAGE)
    return tmp_path


def test_the_command_reports_findings_until_they_are_fixed(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = checkout / "worker" / "module.py"
    module.write_text("found = 1\n")
    assert main([], checkout) == 1
    assert "worker/module.py:1: the name 'found'; write instead:" in capsys.readouterr().out
    assert main([str(module)], checkout) == 1
    module.write_text("table = 1\n")
    assert main([], checkout) == main([str(module)], checkout) == 0


@pytest.mark.parametrize(
    ("name", "reason"), [("/dev/null", "is not in the checkout"), ("docs/none.md", "does not exist")]
)
def test_a_file_that_can_not_be_checked_is_named(
    checkout: Path, capsys: pytest.CaptureFixture[str], name: str, reason: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(checkout / name)], checkout)
    assert f"{checkout / name} {reason}" in capsys.readouterr().err
