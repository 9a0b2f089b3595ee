"""Paths, methods and media types, without a server."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.rest.facade import RestError
from worker.rest.operations import Operation, Tag
from worker.rest.routes import ROUTES
from worker.rest.routing import RestRoute, Router, check_media, route_for, split_path

ROUTER = Router(ROUTES["all"])


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/connectors/a/status", {"connector": "a"}),
        ("/connectors/a/status/", {"connector": "a"}),
        ("/connectors/a%2Fb/status", {"connector": "a/b"}),
        ("/connectors/a%252Fb/status", {"connector": "a%2Fb"}),
        ("/connectors/%C3%BC%20x/status", {"connector": "ü x"}),
        ("/connectors/a+b;c=d/status", {"connector": "a+b;c=d"}),
        ("/connectors/status/status", {"connector": "status"}),
        ("/connectors/a/tasks/3/status", {"connector": "a", "task": "3"}),
        ("/", {}),
        ("", {}),
        ("/connectors/", {}),
    ],
)
def test_a_path_is_matched_before_it_is_decoded(path: str, parameters: dict[str, str]) -> None:
    assert ROUTER.find(path)[1] == parameters


@pytest.mark.parametrize(
    "path",
    [
        "/nosuch",
        "/Connectors",
        "/connectors//",
        "//connectors",
        "/connectors//status",
        "/admin",
        "/connectors/a/tasks/0",
        "/connector-plugins/a",
        "/connectors/%E4",
        "/connectors/a/status/x",
    ],
)
def test_other_paths_are_404(path: str) -> None:
    with pytest.raises(RestError) as caught:
        ROUTER.find(path)
    assert (caught.value.status, str(caught.value)) == (404, "HTTP 404 Not Found")


@given(st.text(min_size=1))
def test_every_name_finds_its_way(name: str) -> None:
    try:
        encoded = quote(name, safe="")
    except UnicodeEncodeError:
        return  # a lone surrogate can't be in a URL
    resource, parameters = ROUTER.find(f"/connectors/{encoded}/config")
    assert parameters == {"connector": name}
    assert "PUT" in resource.routes


def test_methods() -> None:
    resource, _ = ROUTER.find("/connectors")
    assert set(resource.allowed) == {"HEAD", "GET", "POST", "OPTIONS"}
    assert route_for(resource, "HEAD") is route_for(resource, "GET")
    with pytest.raises(RestError) as caught:
        route_for(resource, "PUT")
    assert caught.value.status == 405
    restart, _ = ROUTER.find("/connectors/a/restart")
    assert restart.allowed == ["POST", "OPTIONS"]
    with pytest.raises(RestError):
        route_for(restart, "HEAD")


def _route(*, takes_body: bool = False, negotiate: bool = True) -> RestRoute:
    operation = Operation("x", "X.", Tag.WORKER, {}, body=dict if takes_body else None)
    return RestRoute("PUT", "/x", None, negotiate=negotiate, operation=operation)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("accept", "content_type", "has_body", "takes_body", "status"),
    [
        (None, None, False, False, None),
        ("*/*", "application/json", True, True, None),
        ("text/html, application/json;q=0.5", "Application/JSON; charset=utf-8", True, True, None),
        ("application/*", None, False, False, None),
        ("", None, False, False, None),
        (None, None, True, False, None),  # nothing has to read the body
        (None, None, True, True, 415),
        (None, "text/plain", True, True, 415),
        (None, "text/plain", False, False, 415),
        (None, "text/json", True, True, 415),
        ("text/plain", None, False, False, 406),
        ("bogus", None, False, False, 406),
        ("text/plain", "text/plain", False, False, 415),
    ],
)
def test_media_types(
    accept: str | None, content_type: str | None, has_body: bool, takes_body: bool, status: int | None
) -> None:
    route = _route(takes_body=takes_body)
    if status is None:
        check_media(route, accept, content_type, has_body=has_body)
        return
    with pytest.raises(RestError) as caught:
        check_media(route, accept, content_type, has_body=has_body)
    assert caught.value.status == status
    check_media(_route(negotiate=False), accept, content_type, has_body=has_body)


def test_split() -> None:
    assert split_path("/a/b/") == ["a", "b"]
    assert split_path("/a//") == ["a", ""]
    assert split_path("/") == []


def test_the_parts_of_the_api_make_up_the_whole() -> None:
    assert set(ROUTES["all"]) == set(ROUTES["main"]) | set(ROUTES["admin"])
    assert not set(ROUTES["main"]) & set(ROUTES["admin"])
    assert len({(route.method, route.path) for route in ROUTES["all"]}) == len(ROUTES["all"])
