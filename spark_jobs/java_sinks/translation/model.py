"""Options of Java sinks and what they become: the words in which the tables of the single sinks are written. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from connectors.options import ConfigDef, ConfigKey, ConfigProblem, ConfigType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: The forms in which a job reads records: Debezium's envelopes, flat rows, and values as they are.
ENVELOPE: Final = "debezium"
FLAT: Final = "plain"
AS_IS: Final = "records"
_TRUE: Final = "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaOption:
    """One option of a Java sink. It has exactly one of ``to``, ``without`` and ``refused``.

    Attributes:
        name: the option.
        doc: what it says, in one sentence.
        default: the value that Java takes where the configuration has no value; with it nothing is said of ``without`` and
            ``refused``.
        secret: whether its value must be masked.
        aliases: former names.
        to: the options of the job that it becomes.
        copied: whether the value goes to the single option ``to`` as it is.
        values: Java's values in lower case -> the single option's; others are refused.
        without: what follows from there being no counterpart. The job runs.
        refused: why the job can't run with it, and what to do.
        same: further values in lower case that mean the default.
    """

    name: str
    doc: str
    default: str = ""
    secret: bool = False
    aliases: tuple[str, ...] = ()
    to: tuple[str, ...] = ()
    copied: bool = False
    values: Mapping[str, str] | None = None
    without: str = ""
    refused: str = ""
    same: tuple[str, ...] = ()

    @property
    def effect(self) -> str:
        """Return its translation, for the reference."""
        if self.to:
            return ", ".join(f"`{name}`" for name in self.to)
        return f"no counterpart: {self.without}" if self.without else f"refused: {self.refused}"


@dataclass(frozen=True)
class JavaSink:
    """A Java sink connector.

    Attributes:
        title: its name for people.
        class_names: values of ``connector.class`` that mean it.
        sink_type: the job's ``sink.type``.
        form: the form of its records where neither transforms nor options say one.
        options: all its options, without those that every sink connector has.
        prefixes: prefix of options without a declaration each -> what follows from there being no counterpart; empty where
            ``translate`` says it.
        json_as_text: whether Java's sink takes JSON as text, by a converter for strings or bytes.
        translate: translates the options that are neither copied nor without a counterpart.
    """

    title: str
    class_names: tuple[str, ...]
    sink_type: str
    form: str
    options: tuple[JavaOption, ...]
    translate: Callable[[TranslationRequest, TranslatedJob], None]
    prefixes: Mapping[str, str] = field(default_factory=dict)
    json_as_text: bool = False

    @cached_property
    def by_name(self) -> dict[str, JavaOption]:
        """Its options by name."""
        return {option.name: option for option in self.options}

    @cached_property
    def config_def(self) -> ConfigDef:
        """Its options as declarations: for lists of options, validation's answer, and to mask secrets."""
        return ConfigDef(
            [
                ConfigKey(
                    name=option.name,
                    type=ConfigType.PASSWORD if option.secret else ConfigType.STRING,
                    default=None if option.secret or not option.default else option.default,
                    doc=f"{option.doc} Here: {option.effect}",
                    group=self.title,
                    aliases=option.aliases,
                )
                for option in self.options
            ]
        )


@dataclass(slots=True)
class TranslationRequest:
    """A configuration to translate.

    Attributes:
        sink: whose it is.
        config: as it was written, with the worker's converters; options under their present names.
        form: the form of the records; transforms may change it.
        routes: topics that transforms rename -> their new names.
        renames_topics: whether there is a transform that renames topics, also where the topics are not known.
        drops_deletes: whether transforms drop deletes.
        drops_tombstones: whether transforms drop tombstones.
    """

    sink: JavaSink
    config: Mapping[str, str]
    form: str = ""
    routes: dict[str, str] = field(default_factory=dict)
    renames_topics: bool = False
    drops_deletes: bool = False
    drops_tombstones: bool = False

    def text(self, name: str) -> str:
        """The value of an option, or Java's default."""
        value = self.config.get(name, "").strip()
        option = self.sink.by_name.get(name)
        return value or (option.default if option is not None else "")

    def has(self, name: str) -> bool:
        """Whether the configuration gives a value."""
        return bool(self.config.get(name, "").strip())

    def flag(self, name: str) -> bool:
        """Whether an option is true."""
        return self.text(name).lower() == _TRUE

    def items(self, name: str) -> list[str]:
        """The items of a list."""
        return [item.strip() for item in self.text(name).split(",") if item.strip()]

    @property
    def topics(self) -> list[str]:
        """The topics by name; empty with ``topics.regex``."""
        return list(dict.fromkeys(self.items("topics")))

    def routed(self, topic: str) -> str:
        """The topic as the transforms rename it."""
        return self.routes.get(topic, topic)


@dataclass(slots=True)
class TranslatedJob:
    """The translation as it grows.

    Attributes:
        properties: the job's.
        origins: option of the job -> option as written.
        problems: complaints and warnings about options as written.
        steps: names of the job's steps, in order.
    """

    properties: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def put(self, option: str, value: str, origin: str = "") -> None:
        """Set an option of the job."""
        self.properties[option] = value
        if origin:
            self.origins[option] = origin

    def note(self, option: str, note_text: str) -> None:
        """Say what follows from an option that has no counterpart."""
        self.problems.append(ConfigProblem(option, note_text, warning=True))

    def refuse(self, option: str, reason: str) -> None:
        """Say why the job can't run with an option."""
        self.problems.append(ConfigProblem(option, reason))

    def add_step(self, name: str, kind: str, options: Mapping[str, str], origin: str = "") -> None:
        """Add a step to the job."""
        self.steps.append(name)
        prefix = f"transform.step.{name}."
        self.put(f"{prefix}type", kind, origin)
        for option, value in options.items():
            self.put(f"{prefix}{option}", value, origin)
