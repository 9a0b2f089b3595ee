"""Where Millrace answers otherwise than Kafka Connect, and why; the compatibility page shows the same table.

A difference says what the answer is instead, so that it is tested like everything else; one that has gone is an error too.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Difference:
    """A deliberate difference from Kafka Connect.

    Attributes:
        reason: the reason, for the page.
        status: Millrace's status.
        message: a regular expression that its error message matches, where it answers with an error.
        changes: elsewhere: path into the normalised answer -> (Kafka Connect's value, Millrace's).
    """

    reason: str
    status: int = 400
    message: str = ""
    changes: Mapping[str, tuple[Any, Any]] | None = None


_MALFORMED = (
    "A body that can't be understood is the client's mistake: 400 says what was expected, no 500 with parser's words."
)
_SECRET = "Any value may be a secret while the connector class is not known, so values stay out of the message."
_RETRY = (
    "Passing faults of the source or of Kafka are retried forever unless configured otherwise; in Kafka Connect the option "
    "covers transforms and converters only, which are not retried by default."
)
_NAMES = "Every name that can be created can be addressed."
_SAME_NAME = "A change leaves the connector's name as it is; Kafka Connect saves another one, and refuses null."
_ASKED = "The client's mistake is answered with 400, as in POST /connectors, not with 500."


def _patched(name: str) -> dict[str, Any]:
    config = {"connector.class": "FileStreamSource", "topic": "{topic}", "file": "{file}", "name": name}
    return {"name": "\u00a0b\u3000", "config": config, "tasks": [], "type": "source"}


DIFFERENCES: Mapping[str, Difference] = {
    **{
        name: Difference(_MALFORMED, message=message)
        for name, message in (
            ("create-empty-object", "The field 'config' is missing"),
            ("create-no-body", "The request body is empty"),
            ("create-null", "The request body must be a JSON object"),
            ("create-list", "The request body must be a JSON object"),
            ("create-malformed", "The request body is not valid JSON: .* line 1 column 12"),
            ("create-unknown-field", "Unknown field 'x' in the request body"),
            ("create-initial-state", "Invalid initial_state 'foo'; it must be one of RUNNING, PAUSED, STOPPED"),
            ("create-nested", "The value of 'a' must be a string, a number or a boolean"),
            ("create-no-config", "The field 'config' is missing"),
            ("put-list", "The request body must be a JSON object"),
            ("put-null", "The request body must be a JSON object"),
            ("patch-null", "The request body must be a JSON object"),
            ("logger-null", "The request body must be a JSON object"),
            ("validate-null", "The request body must be a JSON object"),
            ("offsets-patch-null", "The request body must be a JSON object"),
            ("offsets-patch-shape", "The field 'offsets' must be a list"),
            ("offsets-patch-unknown-field", "Unknown field 'x' in entry 0 of 'offsets'"),
        )
    },
    "offsets-patch-null-partition": Difference(
        "A null partition would reset nothing; Kafka Connect answers that the offsets have been altered.",
        message="Entry 0 of 'offsets': 'partition' must be a JSON object",
    ),
    "create-no-class-null": Difference(
        _SECRET, message=r"Connector config \{a=\[hidden\], name=a\} contains no connector type"
    ),
    "validate-no-class": Difference(
        f"{_ASKED} {_SECRET}",
        message=r"Connector config \{(?=.*name=x)(?=.*topic=\[hidden\]).*\} "
        "contains no connector type",
    ),
    "validate-unknown": Difference(
        _ASKED,
        message="Failed to find any class that implements Connector and which name matches Nope, available connectors "
        "are: PluginDesc",
    ),
    "create-unknown-class": Difference(
        "The list of available connectors is Millrace's.",
        message="Failed to find any class that implements Connector and which name matches Nope, available connectors are: .*"
        "PluginDesc{klass=class org.apache.kafka.connect.file.FileStreamSourceConnector",
    ),
    "offsets-patch-partition": Difference(
        "An offset that the connector can't resume from is the client's mistake: 400."
    ),
    "offsets-patch-position": Difference(
        "An offset that the connector can't resume from is the client's mistake: 400."
    ),
    "offsets-patch-no-filename": Difference(
        "An offset that the connector can't resume from is the client's mistake: 400.",
        message="Failed to alter connector offsets for connector c1: Partition objects should contain the key 'filename'",
    ),
    "patch-name": Difference(_SAME_NAME, 200, changes={"body": (_patched("other"), _patched("\u00a0b\u3000"))}),
    "patch-no-name": Difference(
        _SAME_NAME, 200, changes={"status": (400, 200), "body": (None, _patched("\u00a0b\u3000"))}
    ),
    "tasks-config": Difference(
        "Kafka Connect 4 has dropped this resource; clients of 3.x still ask for it.", 404, "Connector nope not found"
    ),
    "create-slash-name": Difference(
        _NAMES, 201, changes={"location": ("http://WORKER/connectors/a/b%25", "http://WORKER/connectors/a%2Fb%25")}
    ),
    "slash-name": Difference(
        _NAMES,
        200,
        changes={
            "status": (400, 200),
            "type": ("text/html;charset=iso-8859-1", "application/json"),
            "body": (
                "TEXT",
                {"connector.class": "FileStreamSource", "file": "{file}", "name": "a/b%", "topic": "{topic}"},
            ),
        },
    ),
    "delete-slash-name": Difference(_NAMES, 204, changes={"status": (400, 204)}),
    "validate-nulls": Difference(
        "A null for one of the connector's own options is an error too; Kafka Connect overlooks it.", 200
    ),
    "validate-topic-groups": Difference(
        "The options of topic creation groups are checked and shown; Kafka Connect finds mistakes when the connector starts.",
        200,
    ),
    **{
        name: Difference(
            "What would fail the task when it starts, or at its first record, is an error of the option.", 200
        )
        for name in (
            "validate-later-transform",
            "validate-later-predicate",
            "validate-later-converter",
            "validate-later-retries",
        )
    },
    **{
        name: Difference("With a version that isn't there all options are shown all the same.", 200)
        for name in ("validate-version", "validate-version-bogus")
    },
    "validate-override-bogus": Difference(
        "A client property that can't be parsed is an error of that property, not of the whole request.", 200
    ),
}

#: Where ``validate`` answers otherwise on the configurations of ``tests/conformance/validation``, and why.
VALIDATION: Mapping[str, str] = {
    "topic creation groups": "The options of topic creation groups are checked and shown; Kafka Connect finds mistakes when "
    "the connector starts.",
    "what fails later": "What would fail the task when it starts, or at its first record, is an error of the option.",
    "client properties": "A client property that can't be parsed is an error of that property (400 in POST and PUT), no 500.",
    "unused clients": "What the override policy forbids is refused also for clients that this connector makes no use of; Kafka "
    "Connect overlooks it.",
    "connector version": "A version range that can't be read is the client's mistake: 400 with the same text, not 500.",
    "missing and checked": "A missing option that also has a validator is one error, in Kafka Connect two.",
    "exactly once": "A connector whose own options are wrong is not asked whether it supports exactly once; Kafka Connect "
    "counts its failure as a further error.",
    "strings": "Millrace says in other words what a Java library says of a regular expression or a type.",
    "blanks": "Blanks around class names don't matter; Kafka Connect looks for a class of that very name.",
    "other classes": "Classes of a JVM that are no plugins, interfaces included, can't be found.",
}

#: What holds for all answers, or can't be shown by a story on a healthy cluster.
GENERAL = {
    "the content type of errors": "It is always application/json; Kafka Connect names none where no resource was asked for.",
    "parameters of Accept": "The content type of an answer has none; Kafka Connect repeats those that were asked for.",
    "405": "It has the Allow header that RFC 9110 asks for.",
    "while a worker starts": "All but /health, /metrics and /admin answers 503 with Retry-After until the worker has "
    "read the cluster's state; Kafka Connect answers from an incomplete one.",
    "no known leader": "409 with the text of every other conflict, which clients know to retry on.",
    "unforeseen errors": "500 names the kind of error; its text, which may quote a configuration, is in the worker's log only.",
    "large bodies": "Beyond rest.request.max.bytes they are refused with 413.",
    "authentication": "`rest.authentication`. Of `rest.extension.classes` only BasicAuthSecurityRestExtension works, others "
    "stop the worker; an empty credentials file lets no one in. /health asks no one.",
    "internal requests": "They carry a signature of Millrace's own in addition to KIP-507's, for one request and taken once; "
    "KIP-507's alone can be replayed.",
    "limits": "408, 429 and 503 answer slow, frequent or too many requests; idle connections close after 30 s.",
    "cross-origin": "With authentication on, `*` gives no Access-Control-Allow-Credentials, and changes with a password or "
    "certificate from pages of origins that are not named get 403.",
    "a class that isn't there": "For transforms and predicates the message names those that there are. For connectors it is "
    "the same every time; Kafka Connect puts the name of an exception before it from the second "
    "time on.",
    "the trace of a failed task": "It begins with the error and its causes, as in Kafka Connect, but they and the lines of "
    "code are Python's.",
    "connector-plugins": "A connector is listed under its Java name and under its Python path; either can be configured.",
}

#: Options whose declaration differs: name -> attribute -> (Kafka Connect's, Millrace's), with the reason.
OPTIONS: Mapping[str, tuple[str, Mapping[str, tuple[Any, Any]]]] = {
    "errors.retry.timeout": (_RETRY, {"default_value": ("0", None), "value": ("0", None)}),
    "converter.type": (
        "The worker says what a converter is used for; it need not be configured.",
        {"default_value": (None, "value"), "required": (True, False)},
    ),
}


def differs(name: str, golden: Mapping[str, Any], answer: Mapping[str, Any]) -> str | None:
    """The complaint if an answer is neither Kafka Connect's nor the one the table promises, else None."""
    difference = DIFFERENCES.get(name)
    golden = with_our_options(golden)
    if "type" not in golden and "body" in golden:
        # Kafka Connect names no content type for errors that no resource is asked for; Millrace always does.
        answer = {key: value for key, value in answer.items() if key != "type"}
    if difference is None:
        return None if golden == answer else "is not Kafka Connect's"
    if golden == answer:
        return "is Kafka Connect's by now: take the step out of the table of differences"
    if answer["status"] != difference.status:
        return f"has not the status {difference.status} that the table of differences promises"
    if difference.changes:
        expected = {key: value for key, value in golden.items() if key not in difference.changes}
        expected |= {key: new for key, (_, new) in difference.changes.items()}
        return (
            None
            if {key: answer.get(key) for key in expected} == expected
            else "is not the one in the table of differences"
        )
    if difference.message and not re.match(difference.message, answer["body"]["message"], re.DOTALL):
        return f"has not the message {difference.message!r}"
    return None


def with_our_options(golden: Any) -> Any:
    """Kafka Connect's answer with Millrace's declarations of the options in ``OPTIONS``."""
    if isinstance(golden, list):
        return [with_our_options(item) for item in golden]
    if not isinstance(golden, dict):
        return golden
    result = {key: with_our_options(value) for key, value in golden.items()}
    option = str(golden.get("name", ""))
    for declared, (_, attributes) in OPTIONS.items():
        if option == declared or option.endswith(f".converter.{declared}"):
            for attribute, (theirs, ours) in attributes.items():
                if attribute in result and result[attribute] == theirs:
                    result[attribute] = ours
    return result


def page() -> str:
    """The table as Markdown, by reason; ``docs/connect-compatibility.md`` holds it word for word."""
    by_reason: dict[str, list[str]] = {}
    for name, difference in DIFFERENCES.items():
        by_reason.setdefault(difference.reason, []).append(name)
    rows = [f"| {', '.join(f'`{name}`' for name in names)} | {reason} |" for reason, names in by_reason.items()]
    rows += [f"| validation: {case} | {reason} |" for case, reason in VALIDATION.items()]
    rows += [f"| {subject} | {reason} |" for subject, reason in GENERAL.items()]
    rows += [f"| option `{option}` | {reason} |" for option, (reason, _) in OPTIONS.items()]
    return "\n".join(["| conformance step | how and why Millrace answers otherwise |", "| -- | -- |", *rows]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
