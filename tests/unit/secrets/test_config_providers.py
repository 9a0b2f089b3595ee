"""Config providers and the transformer that puts their values in."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from worker.secrets.providers import (
    ConfigData,
    ConfigProvider,
    ConfigTransformer,
    DirectoryConfigProvider,
    EnvVarConfigProvider,
    FileConfigProvider,
    build_providers,
    find_references,
    only_references,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path


class Table(ConfigProvider):
    """Values by path and key; counts how often it is asked, and from which thread."""

    aliases = ()

    def __init__(
        self, parameters: Mapping[str, str], data: Mapping[str, Mapping[str, str]], ttl: int | None = None
    ) -> None:
        del parameters
        self.data, self.ttl = data, ttl
        self.asked: list[tuple[str, frozenset[str]]] = []
        self.threads: set[int] = set()

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        self.asked.append((path, frozenset(keys)))
        self.threads.add(threading.get_ident())
        return ConfigData({key: value for key, value in self.data.get(path, {}).items() if key in keys}, self.ttl)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${t:/p:a}", "1"),
        ("x${t:/p:a}y${t:/p:b}z", "x1y2z"),
        ("${t:c}", "3"),
        ("${t:/p:missing}", "${t:/p:missing}"),
        ("${other:/p:a}", "${other:/p:a}"),
        ("${other:x}${t:c}", "${other:x}3"),
        ("${t:c}${other:x}", "3${other:x}"),
        ("plain", "plain"),
        ("${t}", "${t}"),
        ("$${t:c}", "$3"),
        ("${t:/p:a:b}", "5"),
        ("${t:/p:empty}", ""),
        ("${t:/p:nested}", "${t:c}"),
        ("", ""),
        ("${t:/p:a", "${t:/p:a"),
    ],
)
def test_references_are_resolved_as_kafka_does(value: str, expected: str) -> None:
    table = Table({}, {"/p": {"a": "1", "b": "2", "a:b": "5", "empty": "", "nested": "${t:c}"}, "": {"c": "3"}})
    assert ConfigTransformer({"t": table}).transform({"k": value}) == ({"k": expected}, {})


def test_each_path_is_read_once_and_its_ttl_is_given() -> None:
    table = Table({}, {"/p": {"a": "1", "b": "2"}, "/q": {"a": "3"}}, ttl=500)
    seen: list[str] = []
    config = {"x": "${t:/p:a}", "y": "${t:/p:b}${t:/q:a}", "z": "${t:/p:a}"}
    resolved, ttls = ConfigTransformer({"t": table}, seen.append).transform(config)
    assert resolved == {"x": "1", "y": "23", "z": "1"}
    assert ttls == {"/p": 500, "/q": 500}
    assert sorted(table.asked) == [("/p", frozenset("ab")), ("/q", frozenset("a"))]
    assert sorted(seen) == ["1", "2", "3"]
    assert config["x"] == "${t:/p:a}"


async def test_providers_never_run_on_the_event_loop() -> None:
    table = Table({}, {"": {"a": "1"}})
    transformer = ConfigTransformer({"t": table})
    assert await transformer.transform_async({"x": "${t:a}", "y": "b"}) == ({"x": "1", "y": "b"}, {})
    assert table.threads
    assert threading.get_ident() not in table.threads
    assert await asyncio.wait_for(transformer.transform_async({"x": "plain"}), 5) == ({"x": "plain"}, {})
    assert len(table.asked) == 1


@given(
    st.lists(
        st.tuples(
            st.text(alphabet="ab:$ \n{", max_size=5), st.sampled_from(["p", "q"]), st.sampled_from(["k1", "k2", "k3"])
        ),
        max_size=6,
    )
)
def test_text_around_references_stays(parts: list[tuple[str, str, str]]) -> None:
    data = {"/p": {"k1": "one", "k2": "two"}}
    # Text before a reference must not open one itself.
    references = [(re.sub(r"\$\{", "", text).rstrip("$"), provider, key) for text, provider, key in parts]
    value = "".join(f"{text}${{{provider}:/p:{key}}}" for text, provider, key in references)
    expected = "".join(
        text + (data["/p"].get(key, f"${{p:/p:{key}}}") if provider == "p" else f"${{q:/p:{key}}}")
        for text, provider, key in references
    )
    if "{" not in "".join(text for text, _, _ in references):
        assert ConfigTransformer({"p": Table({}, data)}).transform({"v": value})[0]["v"] == expected


@given(st.text(alphabet="${}:ab/", max_size=30))
def test_without_providers_nothing_changes(value: str) -> None:
    assert ConfigTransformer({}).transform({"v": value}) == ({"v": value}, {})


def test_what_is_a_reference() -> None:
    assert find_references("a${file:/x:k}${env:N}") == [("file", "/x", "k"), ("env", "", "N")]
    assert only_references("${env:N}")
    assert only_references(" ${a:b}${c:d} ")
    assert not only_references("x${env:N}")
    assert not only_references("")


@given(st.text(alphabet="${}:a\n", max_size=14))
def test_references_are_those_of_kafka(value: str) -> None:
    kafka = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
    assert find_references(value) == [(match[1], match[3] or "", match[4]) for match in kafka.finditer(value)]
    left = kafka.sub("", value)
    assert only_references(value) == (left != value and not left.strip())


@pytest.mark.parametrize(
    "value", ["${" + ":" * 100_000, "${a:" * 100_000, "${a" * 100_000 + "}", "${:" + "}${" * 100_000]
)
def test_looking_for_references_takes_a_moment_whatever_the_value(value: str) -> None:
    started = time.process_time()
    find_references(value)
    only_references(value)
    assert time.process_time() - started < 1


def test_file_provider(tmp_path: Path) -> None:
    secrets = tmp_path / "db.properties"
    secrets.write_text("password = gehe\\u0069m\nuser: ünal\n", encoding="utf-8")
    provider = FileConfigProvider({})
    assert provider.get(str(secrets), {"password", "user", "none"}) == ConfigData(
        {"password": "geheim", "user": "ünal"}
    )
    assert provider.get("", {"password"}) == ConfigData({})
    with pytest.raises(ConfigInvalid, match=r"Could not read properties from file .*missing"):
        provider.get(str(tmp_path / "missing"), {"a"})


@pytest.mark.parametrize("kind", [FileConfigProvider, DirectoryConfigProvider])
def test_allowed_paths(kind: type[ConfigProvider], tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "in-too"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "f.properties").write_text("k=v")
    provider = kind({"allowed.paths": f"{inside}/../in"})
    path, key = ("/f.properties", "k") if kind is FileConfigProvider else ("", "f.properties")
    assert provider.get(f"{inside}{path}", {key}).data
    for refused in (f"{outside}{path}", f"{inside}/../in-too{path}", f"/{path}", f"in{path}"):
        assert provider.get(refused, {key}) == ConfigData({}), refused
    with pytest.raises(ConfigInvalid, match="is not absolute"):
        kind({"allowed.paths": "relative"})
    with pytest.raises(ConfigInvalid, match="does not exist"):
        kind({"allowed.paths": f"{inside},{tmp_path}/nowhere"})


def test_directory_provider(tmp_path: Path) -> None:
    mounted = tmp_path / "secrets"
    mounted.mkdir()
    (mounted / "password").write_text("two\nlines\n")
    (mounted / "folder").mkdir()
    (tmp_path / "beside").write_text("not yours")
    provider = DirectoryConfigProvider({})
    data = provider.get(str(mounted), {"password", "folder", "../beside", "none", "", ".", ".."})
    assert data == ConfigData({"password": "two\nlines\n"})
    assert provider.get(str(mounted / "password"), {"x"}) == ConfigData({})


def test_a_file_keeps_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "certificate").write_bytes(b"a\r\nb\r")
    assert DirectoryConfigProvider({}).get(str(tmp_path), {"certificate"}).data == {"certificate": "a\r\nb\r"}


def test_a_path_that_no_file_can_have_is_a_mistake_in_the_configuration() -> None:
    with pytest.raises(ConfigInvalid, match="Could not read properties from file a"):
        FileConfigProvider({}).get("a\0b", {"key"})


def test_environment_provider() -> None:
    provider = EnvVarConfigProvider(
        {"allowlist.pattern": "APP_.*|HOME"}, {"APP_KEY": "k", "HOME": "/h", "OTHER": "o", "XAPP_": "x", "HOMES": "y"}
    )
    assert provider.get("", {"APP_KEY", "HOME", "OTHER", "XAPP_", "HOMES"}) == ConfigData(
        {"APP_KEY": "k", "HOME": "/h"}
    )
    with pytest.raises(ConfigInvalid, match="Path is not supported for EnvVarConfigProvider, invalid value '/p'"):
        provider.get("/p", {"HOME"})


def test_environment_is_that_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_TEST_VALUE", "early")
    provider = EnvVarConfigProvider({})
    monkeypatch.setenv("MILLRACE_TEST_VALUE", "late")
    assert provider.get("", {"MILLRACE_TEST_VALUE"}).data == {"MILLRACE_TEST_VALUE": "early"}


def test_worker_properties_declare_providers(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("k=v")
    prefix = "org.apache.kafka.common.config.provider."
    providers = build_providers(
        {
            "config.providers": "file, env,dir",
            "config.providers.file.class": prefix + "FileConfigProvider",
            "config.providers.file.param.allowed.paths": str(tmp_path),
            "config.providers.env.class": "EnvVarConfigProvider",
            "config.providers.env.param.allowlist.pattern": "NOTHING",
            "config.providers.dir.class": prefix + "DirectoryConfigProvider",
        }
    )
    kinds = [type(provider) for provider in providers.values()]
    assert kinds == [FileConfigProvider, EnvVarConfigProvider, DirectoryConfigProvider]
    resolved, _ = ConfigTransformer(providers).transform(
        {
            "a": f"${{file:{tmp_path}/p:k}}",
            "b": "${file:/etc/hostname:k}",
            "c": "${env:PATH}",
            "d": f"${{dir:{tmp_path}:p}}",
        }
    )
    assert resolved == {"a": "v", "b": "${file:/etc/hostname:k}", "c": "${env:PATH}", "d": "k=v"}
    assert build_providers({}) == {}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"config.providers": "a"}, "config.providers.a.class.*FileConfigProvider"),
        (
            {"config.providers": "a", "config.providers.a.class": "com.example.Vault"},
            "Vault could not be found. Available",
        ),
        (
            {
                "config.providers": "a",
                "config.providers.a.class": "FileConfigProvider",
                "config.providers.a.param.allowed.paths": "x",
            },
            r"config\.providers\.a\.param.*not absolute",
        ),
        (
            {
                "config.providers": "a",
                "config.providers.a.class": "EnvVarConfigProvider",
                "config.providers.a.param.allowlist.pattern": "(",
            },
            "Invalid regex",
        ),
    ],
)
def test_wrong_provider_settings_name_the_property(config: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigInvalid, match=message):
        build_providers(config)
