"""Asking a worker, and bringing its answers into a form in which two products can be compared."""

from __future__ import annotations

import http.client
import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from connectors.file.connector import FileStreamSourceConnector
from tests.support.eventually import eventually
from worker.config.source_config import EXTENSIONS, SOURCE_CONFIG

from .scenario import FIRST, FOLLOWER, LEADER, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Seconds to wait for what a step expects.
PATIENCE = 30.0
#: Kafka Connect's words for "ask me again".
_RETRY_WORDS = (
    "a rebalance is expected",
    "stale configuration",
    "due to no known leader URL",
    "(e.g. worker rebalance)",
)
_VERSION_OPTION = ".plugin.version"
_AVAILABLE = re.compile(r"available versions: \[[^\]]*\]")
_CHOICE = re.compile(r"(could not be found\.) Available [a-z]+: [^\"]*")
#: Options that Millrace adds to Kafka Connect's: they are not compared.
_MORE = ({key.name for key in EXTENSIONS} | set(FileStreamSourceConnector.config_def.keys)) - {
    "file",
    "topic",
    "batch.size",
}
_MORE_GROUPS = set(FileStreamSourceConnector.config_def.groups) - set(SOURCE_CONFIG.groups)


@dataclass(frozen=True, slots=True)
class Names:
    """The values of the scenario's placeholders in this run."""

    topic: str
    file: str

    def fill(self, text: str) -> str:
        return text.replace("{topic}", self.topic).replace("{file}", self.file)

    def empty(self, text: str) -> str:
        return text.replace(self.file, "{file}").replace(self.topic, "{topic}")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def parsed(self) -> Any:
        """The JSON body, its text where it is not JSON, None if it is empty."""
        try:
            return json.loads(self.body) if self.body.strip() else None
        except ValueError:
            return self.body.decode(errors="replace")


def ask(url: str, step: Step, names: Names) -> Answer:
    """Send a step's request once."""
    target = urlsplit(url)
    headers = {"Accept": "*/*"}
    data: bytes | None = None
    if step.body is not None:
        data = names.fill(step.body if isinstance(step.body, str) else json.dumps(step.body)).encode()
        headers["Content-Type"] = "application/json"
    headers.update(step.headers)
    connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=60)
    try:
        connection.putrequest(step.method, step.path, skip_accept_encoding=True)
        for name, value in headers.items():
            if value:
                connection.putheader(name, value)
        if data is not None:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def ask_until(url: str, step: Step, names: Names) -> Answer:
    """Send it until the answer is what the step waits for, or patience ends."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = ask(url, step, names)
        text = json.dumps(_sorted_body(answer.parsed), separators=(",", ":"), ensure_ascii=False)
        if (
            answer.status in {409, 500}
            and "forward" not in step.path
            and any(word in text for word in _RETRY_WORDS[:2])
        ):
            pass
        elif all(names.fill(part) in text for part in step.until):
            return answer
        if time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def _sorted_body(body: Any) -> Any:
    """Sort keys with states first: the scenario's strings name a task or connector by id and state."""
    if isinstance(body, dict):
        first = [key for key in ("id", "state") if key in body]
        return {key: _sorted_body(body[key]) for key in [*first, *(key for key in sorted(body) if key not in first)]}
    return [_sorted_body(item) for item in body] if isinstance(body, list) else body


def roles(urls: Iterable[str], names: Names) -> dict[str, str]:
    """Find the leader of a cluster of two workers: a follower refuses a request that it may not forward."""
    probe = Step("probe", "DELETE", "/connectors/probe?forward=false")
    first, second = urls
    statuses: list[int] = []

    def one_leads() -> bool:
        statuses[:] = [ask(url, probe, names).status for url in (first, second)]
        return sorted(statuses) == [404, 409]

    eventually(one_leads, f"one of {first}, {second} leads", PATIENCE, every=0.1, detail=lambda: statuses)
    leads = statuses[0] == 404
    return {FIRST: first, LEADER: first if leads else second, FOLLOWER: second if leads else first}


def run(steps: Iterable[Step], urls: Mapping[str, str], names: Names) -> dict[str, Any]:
    """Run all steps in order; return step -> normalised answer.

    Of ``validate`` answers only what differs from the first one is kept, and the order of all options.
    """
    answers: dict[str, Any] = {}
    plain: dict[str, Any] | None = None
    for step in steps:
        answer = normalise(step, ask_until(urls[step.worker], step, names), urls, names)
        body = answer.get("body")
        if isinstance(body, dict) and "configs" in body:
            if plain is None:
                plain = {item["value"]["name"]: item for item in body["configs"]}
            else:
                body["order"] = [item["value"]["name"] for item in body["configs"]]
                body["configs"] = [item for item in body["configs"] if plain.get(item["value"]["name"]) != item]
        answers[step.name] = answer
    return answers


# Normalising.


def normalise(step: Step, answer: Answer, urls: Mapping[str, str], names: Names) -> dict[str, Any]:
    """An answer without what differs from run to run (addresses, versions, times, names), and without documentation."""
    text = json.dumps({"location": answer.headers.get("Location"), "body": answer.parsed}, ensure_ascii=False)
    for url in set(urls.values()):
        text = text.replace(url, "http://WORKER").replace(url.removeprefix("http://"), "WORKER")
    plain = json.loads(_CHOICE.sub(r"\1", _AVAILABLE.sub("available versions: [VERSION]", names.empty(text))))
    result: dict[str, Any] = {"status": answer.status}
    if plain["location"] is not None:
        result["location"] = plain["location"]
    if answer.body and "Content-Type" in answer.headers:
        result["type"] = answer.headers["Content-Type"].replace(" ", "").lower()
    if step.method == "OPTIONS" and "Allow" in answer.headers:
        result["allow"] = sorted(answer.headers["Allow"].split(","))
    elif answer.body:
        result["body"] = _body(step, plain["body"])
    return result


def _body(step: Step, body: Any) -> Any:
    if isinstance(body, str):
        return "TEXT"
    if isinstance(body, dict) and "kafka_cluster_id" in body:
        return dict.fromkeys(body, "ANY")
    if isinstance(body, dict) and isinstance(body.get("configs"), list):
        return _infos(body)
    if isinstance(body, list) and body and isinstance(body[0], dict) and "default_value" in body[0]:
        return _definitions(body)
    if step.fields is not None and isinstance(body, list):
        body = [item for item in body if item.get("class") in step.fields]
    elif step.fields is not None and isinstance(body, dict):
        body = {name: item for name, item in body.items() if name in step.fields}
    return _anonymous(body)


def _anonymous(body: Any) -> Any:
    """Without versions, times, and digits in names that Java made up."""
    if isinstance(body, list):
        return [_anonymous(item) for item in body]
    if not isinstance(body, dict):
        return body
    # Java writes a task's version as null for a moment after it was stopped: in one run it is seen, in the next it is not.
    task = {"id", "state"} <= body.keys()
    return {
        key: "TIME"
        if key == "last_modified" and item is not None
        else "VERSION"
        if key == "version" and (task or item is not None)
        else _anonymous(item)
        for key, item in body.items()
    }


def _infos(body: dict[str, Any]) -> dict[str, Any]:
    """A ``validate`` answer: the order of what one converter or client contributes is arbitrary in Java."""
    configs = []
    for item in body["configs"]:
        name = item["value"]["name"]
        if name in _MORE:
            continue
        definition = item["definition"] and _definition(item["definition"])
        value = dict(item["value"])
        _hide(name, value, "value")
        value["recommended_values"] = _recommended(name, value["recommended_values"])
        configs.append({"definition": definition, "value": value})
    settled = [item for item in configs if not _added(item["value"]["name"])]
    added = sorted((item for item in configs if _added(item["value"]["name"])), key=lambda item: item["value"]["name"])
    groups = [group for group in body["groups"] if group not in _MORE_GROUPS]
    base = groups.index("offsets.topic") + 1 if "offsets.topic" in groups else 0
    return {
        "name": body["name"],
        "error_count": body["error_count"],
        "groups": [*groups[:base], *sorted(groups[base:])],
        "configs": [*settled, *added],
    }


def _added(name: str) -> bool:
    """Whether an entry comes from a converter's or a client's options."""
    return ".override." in name or (".converter." in name and not name.endswith(_VERSION_OPTION))


def _of_converter(name: str) -> bool:
    return (name.partition(".converter.")[2] or name) in {
        "converter.type",
        "converter.encoding",
        "decimal.format",
        "replace.null.with.default",
        "schemas.cache.size",
        "schemas.enable",
    }


def _definitions(body: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_definition(item) for item in body if item["name"] not in _MORE]


def _definition(item: dict[str, Any]) -> dict[str, Any]:
    """A declaration without its documentation; of converters' options, their place in forms is not compared either."""
    left_out = {"documentation", "display_name", "order", "width"} if _of_converter(item["name"]) else {"documentation"}
    result = {key: value for key, value in item.items() if key not in left_out}
    _hide(item["name"], result, "default_value")
    return result


def _hide(name: str, item: dict[str, Any], key: str) -> None:
    """Versions of plugins differ; that there is one does not."""
    if name.endswith(_VERSION_OPTION) and _is_version(item[key]):
        item[key] = "VERSION"


def _is_version(text: Any) -> bool:
    return isinstance(text, str) and text.replace(".", "").isdigit() and "." in text and text != "9.9"


def _recommended(name: str, values: list[str]) -> list[str]:
    """Replace the recommended classes, which differ; that there are recommendations does not."""
    if name.endswith(_VERSION_OPTION):
        return ["VERSION" for _ in values]
    if name.endswith((".converter", ".type")) and values:
        return ["CLASSES"]
    return values
