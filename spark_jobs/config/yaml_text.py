"""YAML job files: values as they are written (no guessing at types), with lines, duplicates refused."""

from __future__ import annotations

from typing import Any, Final

import yaml

from connectors.errors import ConfigInvalid
from spark_jobs.config.json_text import list_item
from spark_jobs.config.keys import NAMED_LISTS

_NULL: Final = "tag:yaml.org,2002:null"
_BOOLEAN: Final = "tag:yaml.org,2002:bool"
_MERGE: Final = "tag:yaml.org,2002:merge"
_BINARY: Final = "tag:yaml.org,2002:binary"


def flatten_yaml(yaml_text: str, path: str = "") -> tuple[dict[str, str], dict[str, int]]:
    """The dotted properties of a YAML document, and the line of each.

    Scalars are taken as they are written, so that 007 or 1_0 keep their digits; true and false in any case become Java's. A
    null is the same as leaving the option out.

    Raises:
        ConfigInvalid: it is not YAML, not a mapping, names an option twice, or holds a list of anything but scalars.
    """
    try:
        documents = list(yaml.compose_all(yaml_text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigInvalid(f"{path}:{line}: is not YAML: {error.problem or error}") from None
    except yaml.YAMLError as error:
        raise ConfigInvalid(f"{path}: is not YAML: {error}") from None
    if not documents or documents[0] is None:
        return {}, {}
    if len(documents) > 1:
        raise ConfigInvalid(
            f"{path}:{documents[1].start_mark.line + 1}: a job file holds one document; put the "
            "other job into a file of its own"
        )
    if not isinstance(documents[0], yaml.MappingNode):
        raise ConfigInvalid(f"{path}:1: must be a mapping of the job's options")
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    _visit_node("", documents[0], values, lines, path, 0)
    return values, lines


def _visit_node(prefix: str, node: Any, values: dict[str, str], lines: dict[str, int], path: str, depth: int) -> None:
    if depth > 30:
        raise ConfigInvalid(
            f"{path}:{node.start_mark.line + 1}: is nested more than 30 deep (or an anchor holds itself)"
        )
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            raise ConfigInvalid(f"{path}:{line}: option names must be plain strings (merge keys are not supported)")
        name = f"{prefix}{_join_surrogates(str(key.value), line, path)}"
        if isinstance(value, yaml.MappingNode):
            _visit_node(f"{name}.", value, values, lines, path, depth + 1)
            continue
        if name in lines:
            raise ConfigInvalid(f"{path}:{line}: {name} is given twice, first on line {lines[name]}; remove one")
        lines[name] = line
        if name in NAMED_LISTS and isinstance(value, yaml.SequenceNode) and _are_mappings(value):
            values[name] = ",".join(_add_item_options(name, item, values, lines, path, depth) for item in value.value)
        elif isinstance(value, yaml.SequenceNode):
            values[name] = ",".join(_list_item_value(name, item, path) for item in value.value)
        elif value.tag != _NULL:
            values[name] = _read_scalar(value, path)


def _are_mappings(node: Any) -> bool:
    return bool(node.value) and all(isinstance(item, yaml.MappingNode) for item in node.value)


def _add_item_options(
    option: str, node: Any, values: dict[str, str], lines: dict[str, int], path: str, depth: int
) -> str:
    """Add the options of one item of a list of steps or sinks; returns its name."""
    prefix, noun = NAMED_LISTS[option]
    names = [value for key, value in node.value if isinstance(key, yaml.ScalarNode) and key.value == "name"]
    if len(names) != 1 or not isinstance(names[0], yaml.ScalarNode) or names[0].tag == _NULL:
        raise ConfigInvalid(
            f"{path}:{node.start_mark.line + 1}: {option}: each {noun} of the list needs a name: `- name: ...`"
        )
    options = yaml.MappingNode(node.tag, [(key, value) for key, value in node.value if key.value != "name"])
    options.start_mark = node.start_mark
    name = _read_scalar(names[0], path)
    _visit_node(f"{prefix}{name}.", options, values, lines, path, depth + 1)
    return list_item(option, name, f"{path}:{node.start_mark.line + 1}: ")


def _read_scalar(node: Any, path: str) -> str:
    scalar_text = _join_surrogates(str(node.value), node.start_mark.line + 1, path)
    if node.tag == _BOOLEAN and scalar_text.lower() in ("true", "false"):
        return scalar_text.lower()
    return scalar_text


def _join_surrogates(scalar_text: str, line: int, path: str) -> str:
    """``scalar_text`` with pairs of surrogates joined: JSON writes characters beyond 16 bits so, YAML leaves them apart."""
    try:
        return scalar_text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigInvalid(f"{path}:{line}: holds half of a surrogate pair") from None


def _list_item_value(name: str, node: Any, path: str) -> str:
    where = f"{path}:{node.start_mark.line + 1}: "
    if not isinstance(node, yaml.ScalarNode) or node.tag in (_NULL, _BINARY):
        raise ConfigInvalid(f"{where}{name}: a list may hold strings, numbers and booleans only")
    return list_item(name, _read_scalar(node, path), where)
