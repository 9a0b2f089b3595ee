"""Operators of rules, a module for each family; ``OPERATORS`` has them all by the name that rules use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.logs.rules.operators.arranging import ExcludeField, Rename, Select, ToIndex
from connectors.logs.rules.operators.conditions import Drop, Filter, KeyFilter
from connectors.logs.rules.operators.documents import Csv, Json, JsonPath, KeyValue, Logfmt, Url
from connectors.logs.rules.operators.extracting import Dissect, Grok, RegexExtract, Split
from connectors.logs.rules.operators.repeating import Deduplicate, FlattenJsonArray, FlattenUms
from connectors.logs.rules.operators.saving import SaveAs
from connectors.logs.rules.operators.values import Convert, Date, Mask
from connectors.logs.rules.operators.writing import Concat, PrefixOrAppend, Replace, Set, SubString, Trim

if TYPE_CHECKING:
    from connectors.logs.rules.options import Operator

_ALL: Final[tuple[type[Operator], ...]] = (
    Filter,
    KeyFilter,
    FlattenUms,
    FlattenJsonArray,
    JsonPath,
    RegexExtract,
    Split,
    SubString,
    Trim,
    Replace,
    Concat,
    Select,
    ExcludeField,
    PrefixOrAppend,
    ToIndex,
    SaveAs,
    Grok,
    Dissect,
    Date,
    Json,
    Logfmt,
    KeyValue,
    Csv,
    Url,
    Convert,
    Rename,
    Set,
    Deduplicate,
    Drop,
    Mask,
)
#: By the name that rules use: the class name with a small first letter.
OPERATORS: Final[dict[str, type[Operator]]] = {
    operator.__name__[0].lower() + operator.__name__[1:]: operator for operator in _ALL
}
