"""The requests to Kafka Connect and to Millrace, as data: one long story about a few connectors.

Placeholders: ``{topic}`` and ``{file}`` are of this run; ``{file}`` has two lines of four bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: The values of ``Step.worker``.
FIRST, LEADER, FOLLOWER = "first", "leader", "follower"


@dataclass(frozen=True, slots=True)
class Step:
    """One request.

    Attributes:
        name: unique; the key of its recorded answer.
        method: HTTP method.
        path: encoded path and query.
        body: JSON, or text that is sent as it is; None for no body.
        headers: added to ``Content-Type: application/json`` (sent with a body) and ``Accept: */*``; "" leaves one out.
        until: ask again until all of these strings are in the answer's body (compact JSON with sorted keys).
        worker: whom to ask.
        fields: of a list of objects or an object of objects, keep only the entries named here (by ``class`` or key).
    """

    name: str
    method: str
    path: str
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    until: tuple[str, ...] = ()
    worker: str = FIRST
    fields: tuple[str, ...] | None = None


SMALL = {"connector.class": "FileStreamSource", "topic": "{topic}", "file": "{file}"}
CONFIG = {**SMALL, "tasks.max": 1, "extra": True, "rate": 1.5}
VALID = {**SMALL, "name": "x"}
FULL_NAME = "org.apache.kafka.connect.file.FileStreamSourceConnector"
_PLUGIN = "/connector-plugins/FileStreamSource/config"


def _get(name: str, path: str, *until: str, **more: Any) -> Step:
    return Step(name, "GET", path, until=until, **more)


def _validate(name: str, *without: str, **change: Any) -> Step:
    body = {key: value for key, value in VALID.items() if key not in without}
    body |= {key.replace("__", "."): value for key, value in change.items()}
    return Step(f"validate-{name}", "PUT", f"{_PLUGIN}/validate", body)


def _changed(name: str, change: dict[str, Any]) -> Step:
    return Step(f"validate-{name}", "PUT", f"{_PLUGIN}/validate", {**VALID, **change})


ROOT = (
    _get("root", "/"),
    _get("health", "/health"),
    _get("health-slash", "/health/"),
    _get("list-empty", "/connectors"),
    _get("list-slash", "/connectors/"),
    Step("list-head", "HEAD", "/connectors"),
    Step("list-options", "OPTIONS", "/connectors"),
    Step("config-options", "OPTIONS", "/connectors/c/config"),
    Step("options-json", "OPTIONS", "/connectors", headers=(("Accept", "application/json"),)),
    Step("options-nosuch", "OPTIONS", "/nosuch"),
    _get("nosuch", "/nosuch"),
    _get("case", "/Connectors"),
    _get("admin", "/admin"),
    Step("not-allowed", "PUT", "/connectors"),
    Step("root-not-allowed", "DELETE", "/"),
    Step("status-not-allowed", "PATCH", "/connectors/a/status"),
    Step("config-not-allowed", "POST", "/connectors/a/config", {}),
    Step("restart-head", "HEAD", "/connectors/x/restart"),
    Step("not-acceptable", "GET", "/connectors", headers=(("Accept", "text/plain"),)),
    Step("acceptable", "GET", "/connectors", headers=(("Accept", "text/html, application/json;q=0.5"),)),
    Step("acceptable-any", "GET", "/connectors", headers=(("Accept", "application/*"),)),
    Step("acceptable-star", "GET", "/connectors", headers=(("Accept", "*"),)),
    Step("unsupported", "POST", "/connectors", "{}", (("Content-Type", "text/plain"),)),
    Step("unsupported-missing", "POST", "/connectors", "{}", (("Content-Type", ""),)),
    Step("unsupported-text-json", "POST", "/connectors", "{}", (("Content-Type", "text/json"),)),
    Step("unsupported-without-body", "PUT", "/connectors/x/pause", None, (("Content-Type", "text/plain"),)),
    Step(
        "unsupported-form",
        "POST",
        "/connectors/x/restart",
        "a=b",
        (("Content-Type", "application/x-www-form-urlencoded"),),
    ),
    Step("not-acceptable-pause", "PUT", "/connectors/x/pause", None, (("Accept", "text/plain"),)),
    Step("charset", "PUT", "/connectors/x/config", "{}", (("Content-Type", "application/json; charset=utf-8"),)),
)

REFUSED = (
    Step("create-empty-object", "POST", "/connectors", {}),
    Step("create-no-body", "POST", "/connectors", ""),
    Step("create-null", "POST", "/connectors", "null"),
    Step("create-list", "POST", "/connectors", []),
    Step("create-malformed", "POST", "/connectors", '{"name":"a"'),
    Step("create-unknown-field", "POST", "/connectors", {"name": "a", "config": {}, "x": 1}),
    Step("create-initial-state", "POST", "/connectors", {"name": "a", "config": {}, "initial_state": "foo"}),
    Step("create-nested", "POST", "/connectors", {"name": "a", "config": {"a": {}}}),
    Step("create-no-config", "POST", "/connectors", {"name": None, "config": None}),
    Step("create-no-class", "POST", "/connectors", {"name": "a", "config": {}}),
    Step("create-no-class-null", "POST", "/connectors", {"name": "a", "config": {"a": None}}),
    Step("create-blank-name-no-class", "POST", "/connectors", {"name": " ", "config": {}}),
    Step("create-other-name", "POST", "/connectors", {"name": "a", "config": {"name": "b"}}),
    Step("create-name-in-config-only", "POST", "/connectors", {"config": {"name": "zz"}}),
    Step("create-unknown-class", "POST", "/connectors", {"name": "a", "config": {"connector.class": "Nope"}}),
    Step(
        "create-missing-topic", "POST", "/connectors", {"name": "a", "config": {"connector.class": "FileStreamSource"}}
    ),
    Step("create-blank-name", "POST", "/connectors", {"name": "  ", "config": SMALL}),
    Step("create-no-name", "POST", "/connectors", {"config": SMALL}),
    Step("create-control-characters", "POST", "/connectors", {"name": "a\nb", "config": SMALL}),
    Step("create-next-line", "POST", "/connectors", {"name": "a\u0085b", "config": SMALL}),
    Step("create-nul-name", "POST", "/connectors", {"name": "\0", "config": SMALL}),
    Step(
        "create-several-errors",
        "POST",
        "/connectors",
        {
            "name": "a",
            "config": {**SMALL, "tasks.max": "abc", "errors.tolerance": "some", "errors.log.enable": "perhaps"},
        },
    ),
    Step("create-null-value", "POST", "/connectors", {"name": "a", "config": {**SMALL, "x": None}}),
    Step("put-blank-name", "PUT", "/connectors/%20/config", SMALL),
    Step("put-empty", "PUT", "/connectors/a/config", {}),
    Step("put-list", "PUT", "/connectors/a/config", []),
    Step("put-null", "PUT", "/connectors/a/config", "null"),
    *(
        _get(f"unknown-{part.strip('/').replace('/', '-') or 'connector'}", f"/connectors/nope{part}")
        for part in (
            "",
            "/config",
            "/status",
            "/tasks",
            "/tasks/0/status",
            "/tasks/x/status",
            "/tasks/-1/status",
            "/topics",
            "/offsets",
            "/restart",
            "/nosuch",
        )
    ),
    *(
        Step(f"unknown-{name}", method, f"/connectors/nope/{path}", body)
        for name, method, path, body in (
            ("pause", "PUT", "pause", None),
            ("resume", "PUT", "resume", None),
            ("stop", "PUT", "stop", None),
            ("restart-post", "POST", "restart", None),
            ("restart-tasks", "POST", "restart?includeTasks=true", None),
            ("task-restart", "POST", "tasks/0/restart", None),
            ("patch", "PATCH", "config", {"x": None}),
            ("offsets-delete", "DELETE", "offsets", None),
            ("topics-reset", "PUT", "topics/reset", None),
            ("offsets-patch", "PATCH", "offsets", {"offsets": [{"partition": {"filename": "q"}, "offset": None}]}),
        )
    ),
    Step("unknown-delete", "DELETE", "/connectors/nope"),
    _get("tasks-config", "/connectors/nope/tasks-config"),
)

LIFE = (
    Step("create", "POST", "/connectors", {"name": "  c1 ", "config": CONFIG}),
    Step("create-again", "POST", "/connectors", {"name": "c1", "config": CONFIG}),
    _get("status-running", "/connectors/c1/status", '"id":0,"state":"RUNNING"', '"connector":{"state":"RUNNING"'),
    _get("info", "/connectors/c1", '"task":0'),
    _get("info-slash", "/connectors/c1/", '"task":0'),
    _get("config", "/connectors/c1/config"),
    _get("tasks", "/connectors/c1/tasks"),
    _get("task-status", "/connectors/c1/tasks/0/status"),
    _get("task-status-unknown", "/connectors/c1/tasks/1/status"),
    _get("topics", "/connectors/c1/topics", "{topic}"),
    _get("offsets", "/connectors/c1/offsets", '"position":8'),
    _get("expand-status", "/connectors?expand=status"),
    _get("expand-info", "/connectors?expand=info"),
    _get("expand-both", "/connectors?expand=info&expand=status"),
    _get("expand-bogus", "/connectors?expand=bogus"),
    _get("expand-empty", "/connectors?expand="),
    _get("list", "/connectors"),
    Step("put-other-name", "PUT", "/connectors/c1/config", {**CONFIG, "name": "zz"}),
    Step("put-untrimmed-name", "PUT", "/connectors/c1/config", {**CONFIG, "name": " c1"}),
    Step("put-null-value", "PUT", "/connectors/c1/config", {**CONFIG, "extra": None}),
    Step("put-invalid", "PUT", "/connectors/c1/config", {**CONFIG, "tasks.max": 0}),
    Step("put-same", "PUT", "/connectors/c1/config", CONFIG),
    Step("put-changed", "PUT", "/connectors/c1/config", {**CONFIG, "extra": False}),
    _get("status-after-put", "/connectors/c1/status", '"id":0,"state":"RUNNING"', '"connector":{"state":"RUNNING"'),
    Step("patch", "PATCH", "/connectors/c1/config", {"extra": None, "more": 1}),
    Step("patch-invalid", "PATCH", "/connectors/c1/config", {"topic": None}),
    Step("patch-null", "PATCH", "/connectors/c1/config", "null"),
    _get("status-after-patch", "/connectors/c1/status", '"id":0,"state":"RUNNING"', '"connector":{"state":"RUNNING"'),
    Step("restart", "POST", "/connectors/c1/restart"),
    _get("status-after-restart", "/connectors/c1/status", '"id":0,"state":"RUNNING"', '"connector":{"state":"RUNNING"'),
    Step("restart-bogus", "POST", "/connectors/c1/restart?includeTasks=bogus"),
    _get("status-before-tasks", "/connectors/c1/status", '"id":0,"state":"RUNNING"', '"connector":{"state":"RUNNING"'),
    Step("restart-tasks", "POST", "/connectors/c1/restart?includeTasks=true"),
    _get("status-after-tasks", "/connectors/c1/status", '"id":0,"state":"RUNNING"', '"connector":{"state":"RUNNING"'),
    Step("task-restart", "POST", "/connectors/c1/tasks/0/restart"),
    Step("task-restart-unknown", "POST", "/connectors/c1/tasks/9/restart"),
    Step("task-restart-bogus", "POST", "/connectors/c1/tasks/x/restart"),
    _get("status-after-task", "/connectors/c1/status", '"id":0,"state":"RUNNING"', '"connector":{"state":"RUNNING"'),
    Step("pause", "PUT", "/connectors/c1/pause"),
    Step("pause-again", "PUT", "/connectors/c1/pause/"),
    _get("status-paused", "/connectors/c1/status", '"id":0,"state":"PAUSED"', '"connector":{"state":"PAUSED"'),
    Step("resume", "PUT", "/connectors/c1/resume"),
    _get("status-resumed", "/connectors/c1/status", '"id":0,"state":"RUNNING"', '"connector":{"state":"RUNNING"'),
    Step(
        "offsets-patch-running",
        "PATCH",
        "/connectors/c1/offsets",
        {"offsets": [{"partition": {"filename": "{file}"}, "offset": {"position": 4}}]},
    ),
    Step("offsets-delete-running", "DELETE", "/connectors/c1/offsets"),
    Step("stop", "PUT", "/connectors/c1/stop"),
    _get("status-stopped", "/connectors/c1/status", '"connector":{"state":"STOPPED"', '"tasks":[]'),
    _get("tasks-stopped", "/connectors/c1/tasks"),
    Step("task-restart-stopped", "POST", "/connectors/c1/tasks/0/restart"),
    Step("task-restart-stopped-unknown", "POST", "/connectors/c1/tasks/9/restart"),
    Step("restart-stopped", "POST", "/connectors/c1/restart"),
    _get("status-stopped-restarted", "/connectors/c1/status", '"connector":{"state":"STOPPED"', '"tasks":[]'),
    Step("restart-stopped-tasks", "POST", "/connectors/c1/restart?includeTasks=true"),
    _get("status-stopped-restarted-tasks", "/connectors/c1/status", '"connector":{"state":"STOPPED"', '"tasks":[]'),
    Step("restart-stopped-failed", "POST", "/connectors/c1/restart?includeTasks=true&onlyFailed=true"),
    Step(
        "offsets-patch",
        "PATCH",
        "/connectors/c1/offsets",
        {"offsets": [{"partition": {"filename": "{file}"}, "offset": {"position": 4}}]},
    ),
    _get("offsets-patched", "/connectors/c1/offsets", '"position":4'),
    Step(
        "offsets-patch-partition",
        "PATCH",
        "/connectors/c1/offsets",
        {"offsets": [{"partition": {"nope": "{file}"}, "offset": {"position": 4}}]},
    ),
    Step(
        "offsets-patch-position",
        "PATCH",
        "/connectors/c1/offsets",
        {"offsets": [{"partition": {"filename": "{file}"}, "offset": {"position": "x"}}]},
    ),
    Step("offsets-patch-empty", "PATCH", "/connectors/c1/offsets", {"offsets": []}),
    Step("offsets-patch-missing", "PATCH", "/connectors/c1/offsets", {}),
    Step("offsets-patch-null", "PATCH", "/connectors/c1/offsets", "null"),
    Step("offsets-patch-shape", "PATCH", "/connectors/c1/offsets", {"offsets": "x"}),
    Step("offsets-patch-unknown-field", "PATCH", "/connectors/c1/offsets", {"offsets": [{"x": 1}]}),
    Step(
        "offsets-patch-null-partition",
        "PATCH",
        "/connectors/c1/offsets",
        {"offsets": [{"partition": None, "offset": None}]},
    ),
    Step(
        "offsets-patch-no-filename",
        "PATCH",
        "/connectors/c1/offsets",
        {"offsets": [{"partition": {}, "offset": {"position": 4}}]},
    ),
    Step("offsets-delete", "DELETE", "/connectors/c1/offsets"),
    _get("offsets-deleted", "/connectors/c1/offsets", '{"offsets":[]}'),
    Step("topics-reset", "PUT", "/connectors/c1/topics/reset"),
    _get("topics-after-reset", "/connectors/c1/topics", '"topics":[]'),
    Step("create-paused", "POST", "/connectors", {"name": "c2", "config": SMALL, "initial_state": "paused"}),
    _get("status-created-paused", "/connectors/c2/status", '"connector":{"state":"PAUSED"'),
    _get("info-created-paused", "/connectors/c2"),
    Step("create-stopped", "POST", "/connectors", {"name": "c3", "config": SMALL, "initial_state": "STOPPED"}),
    _get("status-created-stopped", "/connectors/c3/status", '"connector":{"state":"STOPPED"'),
    Step("create-by-put", "PUT", "/connectors/c4/config", {**SMALL, "connector.class": FULL_NAME}),
    *(Step(f"delete-{name}", "DELETE", f"/connectors/{name}") for name in ("c1", "c2", "c3", "c4")),
    Step("delete-again", "DELETE", "/connectors/c1"),
    Step("create-odd-name", "POST", "/connectors", {"name": "a b+ü;?#&=", "config": SMALL, "initial_state": "STOPPED"}),
    _get("odd-name", "/connectors/a%20b+%C3%BC%3B%3F%23&=/config", '"name":"a b'),
    Step("delete-odd-name", "DELETE", "/connectors/a%20b%2B%C3%BC%3B%3F%23%26%3D"),
    # Blanks are those of Java: not all that Unicode calls white space.
    Step(
        "create-blank", "POST", "/connectors", {"name": "\t\u00a0b\u3000 ", "config": SMALL, "initial_state": "STOPPED"}
    ),
    _get("blank", "/connectors/%C2%A0b%E3%80%80/config", '"name":'),
    Step("patch-name", "PATCH", "/connectors/%C2%A0b%E3%80%80/config", {"name": "other"}),
    Step("patch-no-name", "PATCH", "/connectors/%C2%A0b%E3%80%80/config", {"name": None}),
    Step("delete-blank", "DELETE", "/connectors/%C2%A0b%E3%80%80"),
    Step("create-slash-name", "POST", "/connectors", {"name": "a/b%", "config": SMALL, "initial_state": "STOPPED"}),
    _get("slash-name", "/connectors/a%2Fb%25/config"),
    Step("delete-slash-name", "DELETE", "/connectors/a%2Fb%25"),
)

LOGGERS = (
    _get("loggers", "/admin/loggers", fields=("root",)),
    _get("logger-root", "/admin/loggers/root"),
    _get("logger-unknown", "/admin/loggers/conformance.x"),
    Step("logger-set", "PUT", "/admin/loggers/conformance.x", {"level": "debug"}),
    _get("logger-get", "/admin/loggers/conformance.x"),
    Step("logger-set-again", "PUT", "/admin/loggers/conformance.x", {"level": "DEBUG"}),
    Step("logger-set-other", "PUT", "/admin/loggers/conformance.y", {"level": "WARN"}),
    Step("logger-set-parent", "PUT", "/admin/loggers/conformance", {"level": "ERROR"}),
    Step("logger-set-some", "PUT", "/admin/loggers/conformance.y", {"level": "WARN"}),
    Step("logger-set-parent-again", "PUT", "/admin/loggers/conformance", {"level": "ERROR"}),
    _get("logger-child", "/admin/loggers/conformance.x"),
    _get("loggers-set", "/admin/loggers/", fields=("conformance", "conformance.x", "conformance.y")),
    *(
        Step(f"logger-level-{level.strip()}", "PUT", "/admin/loggers/conformance.z", {"level": level})
        for level in ("TRACE", "FATAL", "OFF", " info ", "bogus", "warning")
    ),
    Step("logger-set-off", "PUT", "/admin/loggers/conformance.z", {"level": "OFF"}),
    _get("logger-off", "/admin/loggers/conformance.z"),
    _get("loggers-off", "/admin/loggers", fields=("conformance.y", "conformance.z")),
    Step("logger-number", "PUT", "/admin/loggers/conformance.x", {"level": 5}),
    Step("logger-no-level", "PUT", "/admin/loggers/conformance.x", {}),
    Step("logger-null-level", "PUT", "/admin/loggers/conformance.x", {"level": None}),
    Step("logger-null", "PUT", "/admin/loggers/conformance.x", "null"),
    Step("logger-scope-worker", "PUT", "/admin/loggers/conformance.x?scope=worker", {"level": "WARN"}),
    Step("logger-scope-bogus", "PUT", "/admin/loggers/conformance.x?scope=bogus", {"level": "INFO"}),
    Step("logger-scope-cluster", "PUT", "/admin/loggers/conformance.x?scope=CLUSTER", {"level": "ERROR"}),
    _get("logger-after-cluster", "/admin/loggers/conformance.x", '"level":"ERROR"'),
    Step("logger-post", "POST", "/admin/loggers/conformance.x", {}),
)

PLUGINS = (
    _get("plugins", "/connector-plugins", fields=(FULL_NAME,)),
    _get("plugins-slash", "/connector-plugins/", fields=(FULL_NAME,)),
    _get(
        "plugins-all",
        "/connector-plugins?connectorsOnly=false",
        fields=(
            FULL_NAME,
            "org.apache.kafka.connect.json.JsonConverter",
            "org.apache.kafka.connect.storage.StringConverter",
            "org.apache.kafka.connect.converters.ByteArrayConverter",
            "org.apache.kafka.connect.storage.SimpleHeaderConverter",
            "org.apache.kafka.connect.transforms.InsertField$Key",
            "org.apache.kafka.connect.transforms.InsertField$Value",
            "org.apache.kafka.connect.transforms.RegexRouter",
            "org.apache.kafka.connect.transforms.Filter",
            "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        ),
    ),
    _get(
        "plugins-bogus",
        "/connector-plugins?connectorsOnly=bogus",
        fields=("org.apache.kafka.connect.json.JsonConverter",),
    ),
    _get(
        "plugins-empty",
        "/connector-plugins?connectorsOnly=",
        fields=("org.apache.kafka.connect.json.JsonConverter",),
    ),
    _get("plugin", "/connector-plugins/FileStreamSource"),
    _get("plugin-config", _PLUGIN),
    _get("plugin-config-full-name", f"/connector-plugins/{FULL_NAME}/config"),
    _get("plugin-config-version", f"{_PLUGIN}?version=9.9"),
    _get("plugin-config-version-range", f"{_PLUGIN}?version=%5B8,9)"),
    _get("plugin-config-unknown", "/connector-plugins/Nope/config"),
    _get("plugin-config-converter", "/connector-plugins/JsonConverter/config"),
    _get("plugin-config-transform", "/connector-plugins/RegexRouter/config"),
    _get("plugin-config-sided", "/connector-plugins/org.apache.kafka.connect.transforms.ReplaceField$Value/config"),
    _get("plugin-config-abstract", "/connector-plugins/InsertField/config"),
    _get("plugin-config-predicate", "/connector-plugins/TopicNameMatches/config"),
    _get("plugin-config-provider", "/connector-plugins/FileConfigProvider/config"),
)

VALIDATION = (
    _validate("minimal"),
    Step(
        "validate-slash",
        "PUT",
        f"/connector-plugins/{FULL_NAME}/config/validate/",
        {**VALID, "connector.class": FULL_NAME},
    ),
    Step("validate-null", "PUT", f"{_PLUGIN}/validate", "null"),
    Step("validate-unknown", "PUT", "/connector-plugins/Nope/config/validate", {"connector.class": "Nope"}),
    Step("validate-mismatch", "PUT", f"{_PLUGIN}/validate", {"connector.class": "FileStreamSink"}),
    _validate("no-class", "connector.class"),
    _validate("missing", "name", "topic"),
    _changed("tasks-max", {"tasks.max": "abc"}),
    _changed("tasks-max-zero", {"tasks.max": 0}),
    _changed("tasks-max-empty", {"tasks.max": ""}),
    _changed("nulls", {"topic": None, "zz": None, "tasks.max": None}),
    _changed("name-empty", {"name": ""}),
    _changed("name-control", {"name": "a\tb\x7f"}),
    _changed(
        "enumerations",
        {
            "errors.tolerance": "some",
            "config.action.reload": "x",
            "errors.log.enable": "perhaps",
            "errors.retry.timeout": "1.5",
        },
    ),
    _changed("transaction", {"transaction.boundary": "Interval", "transaction.boundary.interval.ms": "-1"}),
    _changed("exactly-once", {"exactly.once.support": "required"}),
    _changed("exactly-once-bogus", {"exactly.once.support": "bogus", "transaction.boundary": "connector"}),
    _changed("boundary-bogus", {"transaction.boundary": "x"}),
    _validate("exactly-once-without-file", "file", exactly__once__support="REQUIRED"),
    _changed("offsets-topic", {"offsets.storage.topic": ""}),
    _changed("topic-groups", {"topic.creation.groups": "a,a"}),
    _changed("version", {"connector.plugin.version": "9.9"}),
    _changed("version-range", {"connector.plugin.version": "[0.0.1,99)"}),
    _changed("version-bogus", {"connector.plugin.version": "bogus["}),
    _changed("batch-size", {"batch.size": "x"}),
    _changed(
        "blanks", {"name": "\u00a0", "tasks.max": "5\u00a0", "batch.size": "\u20037", "errors.log.enable": "true\u00a0"}
    ),
    _changed(
        "converter",
        {
            "key.converter": "JsonConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "header.converter": "StringConverter",
        },
    ),
    _changed("converter-short", {"key.converter": "Json"}),
    _changed("converter-options", {"value.converter": "JsonConverter", "value.converter.schemas.enable": "maybe"}),
    _changed("converter-unknown", {"key.converter": "nope"}),
    _changed("converter-empty", {"key.converter": ""}),
    _changed("converter-no-converter", {"key.converter": "org.apache.kafka.connect.transforms.RegexRouter"}),
    _changed(
        "converter-version", {"header.converter": "SimpleHeaderConverter", "header.converter.plugin.version": "9"}
    ),
    _changed(
        "transform",
        {
            "transforms": "a",
            "transforms.a.type": "RegexRouter",
            "transforms.a.regex": ".*",
            "transforms.a.replacement": "x",
        },
    ),
    _changed(
        "transform-negate",
        {
            "transforms": "a",
            "transforms.a.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.a.regex": ".*",
            "transforms.a.replacement": "x",
            "transforms.a.negate": "true",
        },
    ),
    _changed(
        "transform-predicate",
        {
            "transforms": "a",
            "transforms.a.type": "org.apache.kafka.connect.transforms.Filter",
            "transforms.a.predicate": "p",
            "predicates": "p",
            "predicates.p.type": "TopicNameMatches",
            "predicates.p.pattern": "x",
        },
    ),
    _changed("transform-missing", {"transforms": "a", "transforms.a.type": "RegexRouter", "transforms.a.regex": ".*"}),
    _changed("transform-unknown", {"transforms": "a", "transforms.a.type": "nope"}),
    _changed("transform-no-type", {"transforms": "a", "predicates": "p"}),
    _changed("transform-twice", {"transforms": "a,a"}),
    _changed(
        "transform-is-predicate",
        {"transforms": "a", "transforms.a.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"},
    ),
    # Classes of the wrong kind, or of none that can be made.
    _changed(
        "transform-is-converter",
        {"transforms": "a", "transforms.a.type": "org.apache.kafka.connect.json.JsonConverter"},
    ),
    _changed(
        "transform-abstract", {"transforms": "a", "transforms.a.type": "org.apache.kafka.connect.transforms.Cast"}
    ),
    _changed(
        "predicate-is-converter",
        {"predicates": "p", "predicates.p.type": "org.apache.kafka.connect.json.JsonConverter"},
    ),
    # Aliases: dots, spaces, one the beginning of another, empty ones; a predicate and a transform that nothing names.
    _changed(
        "transform-odd-aliases",
        {
            "transforms": "a, a.b ,c d",
            "transforms.a.type": "RegexRouter",
            "transforms.a.regex": "x",
            "transforms.a.replacement": "",
            "transforms.a.b.type": "org.apache.kafka.connect.transforms.Filter",
            "transforms.c d.type": "org.apache.kafka.connect.transforms.HoistField$Key",
            "transforms.c d.field": "",
            "transforms.e.type": "nope",
            "predicates.q.type": "nope",
        },
    ),
    _changed(
        "transform-empty-alias",
        {"transforms": "a,,b", "transforms.a.type": "TimestampRouter", "transforms.b.type": "DropHeaders"},
    ),
    # Every option of a converter is wrong, and one does not exist.
    _changed(
        "converter-all-wrong",
        {
            "header.converter": "JsonConverter",
            "header.converter.schemas.enable": "maybe",
            "header.converter.schemas.cache.size": "x",
            "header.converter.decimal.format": "hex",
            "header.converter.converter.type": "both",
            "header.converter.nosuch": "x",
            "key.converter": "LongConverter",
            "value.converter": "SimpleHeaderConverter",
        },
    ),
    _changed(
        "retries-wrong", {"errors.retry.delay.max.ms": "x", "errors.retry.timeout": "-2", "batch.size": "2147483648"}
    ),
    # What Kafka Connect finds later.
    _changed(
        "later-transform",
        {
            "transforms": "a",
            "transforms.a.type": "RegexRouter",
            "transforms.a.regex": "a(b)",
            "transforms.a.replacement": "$2",
        },
    ),
    _changed(
        "later-predicate",
        {
            "transforms": "a",
            "transforms.a.type": "org.apache.kafka.connect.transforms.Filter",
            "transforms.a.predicate": "q",
        },
    ),
    _changed(
        "later-converter",
        {
            "key.converter": "JsonConverter",
            "key.converter.schemas.cache.size": "-1",
            "value.converter": "StringConverter",
            "value.converter.converter.encoding": "klingon",
        },
    ),
    _changed("later-retries", {"errors.retry.delay.max.ms": "0"}),
    _changed("overrides", {"producer.override.linger.ms": "5", "producer.override.nosuch": "7"}),
    _changed("override-bogus", {"producer.override.linger.ms": "x"}),
)

INTERNAL = (
    Step("fence-unsigned", "PUT", "/connectors/x/fence", {}),
    Step("tasks-unsigned", "POST", "/connectors/x/tasks", []),
    *(
        Step(
            f"fence-{name}",
            "PUT",
            "/connectors/x/fence",
            {},
            (("X-Connect-Authorization", signature), ("X-Connect-Request-Signature-Algorithm", algorithm)),
        )
        for name, signature, algorithm in (
            ("forged", "abcd", "HmacSHA256"),
            ("algorithm", "abcd", "HmacMD5"),
            ("no-algorithm", "abcd", "nope"),
        )
    ),
)

#: Asked of one worker.
STEPS = (*ROOT, *REFUSED, *LIFE, *LOGGERS, *PLUGINS, *VALIDATION, *INTERNAL)

#: Asked of a cluster of two.
FORWARDED = (
    *(
        Step(f"{worker}-{name}", method, path.replace("NAME", f"f-{worker}"), body, worker=worker)
        for worker in (LEADER, FOLLOWER)
        for name, method, path, body in (
            (
                "create-forward-false",
                "POST",
                "/connectors?forward=false",
                {"name": f"f-{worker}", "config": SMALL, "initial_state": "STOPPED"},
            ),
            ("delete-forward-bogus", "DELETE", "/connectors/NAME?forward=bogus", None),
            (
                "create-forward-empty",
                "POST",
                "/connectors?forward=",
                {"name": f"f-{worker}", "config": SMALL, "initial_state": "STOPPED"},
            ),
            (
                "create-forward-true",
                "POST",
                "/connectors?forward=true",
                {"name": f"f-{worker}", "config": SMALL, "initial_state": "STOPPED"},
            ),
            ("put", "PUT", "/connectors/NAME/config", {**SMALL, "x": 1}),
            ("put-invalid", "PUT", "/connectors/NAME/config", {}),
            ("patch", "PATCH", "/connectors/NAME/config", {"x": None}),
            ("stop", "PUT", "/connectors/NAME/stop", None),
            ("restart-tasks-unknown", "POST", "/connectors/nope/restart?includeTasks=true", None),
            ("delete-unknown", "DELETE", "/connectors/nope", None),
            ("delete", "DELETE", "/connectors/NAME", None),
        )
    ),
)
