"""What another reader, ruamel.yaml by YAML 1.2, makes of a document that `strict_yaml` accepts.

Both readers see the same structure and the same text of every value.  They may differ in whether a
plain word is text, as listed here: `strict_yaml` reads decimal numbers alone.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.scanner import ScannerError

_TAG: Final = "tag:yaml.org,2002:"
# Plain words that ruamel.yaml reads as something else than text, by the type it gives them.
LISTED: Final = {
    # Leading zeros, other bases, and underscores.
    "int": re.compile(r"[-+]?(0[0-9_]+|0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)"),
    "float": re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9_]+|[0-9][0-9_]*)([eE][-+]?[0-9]+)?"),
    "timestamp": re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?", re.DOTALL),
    "merge": re.compile(r"<<"),
    "value": re.compile(r"="),
}
# The head of a block scalar that states no indentation, and the empty lines that begin it.
_BEGINNING: Final = re.compile(r"([|>][-+]?[ \t]*(?:#[^\n]*)?\r?\n)((?: *\r?\n)+)")


def require_same(data: bytes, value: Any) -> None:
    """Raise AssertionError where the other reader sees something else than `value` in `data`."""
    node = _composed(data.decode("utf-8"))
    if node is None:
        assert value is None
        return
    _compare(node, value)


def _composed(text: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).compose(text)
    except ScannerError as error:
        if "more indented follow up line" not in str(error):
            raise
    # It refuses spaces in the empty lines that begin a block scalar.  Up to its indentation they
    # are none of its text (YAML 1.2.2, 8.1.1.1).
    return YAML(typ="safe", pure=True).compose(_BEGINNING.sub(_without_spaces, text))


def _without_spaces(found: re.Match[str]) -> str:
    return found[1] + found[2].replace(" ", "")


def _compare(node: Any, value: Any) -> None:
    if isinstance(node, MappingNode):
        assert isinstance(value, dict), (node, value)
        # Keys are text here, whatever the word would be elsewhere.
        assert [key.value for key, _ in node.value] == list(value)
        assert all(isinstance(key, ScalarNode) for key, _ in node.value)
        for key, below in node.value:
            _compare(below, value[key.value])
    elif isinstance(node, SequenceNode):
        assert isinstance(value, list), (node, value)
        assert len(node.value) == len(value)
        for below, item in zip(node.value, value, strict=True):
            _compare(below, item)
    else:
        assert isinstance(node, ScalarNode), node
        _compare_words(node, value)


def _compare_words(node: Any, value: Any) -> None:
    word, kind = node.value, str(node.tag).removeprefix(_TAG)
    if isinstance(value, str):
        assert word == value, (word, value)
        assert kind == "str" or (kind in LISTED and LISTED[kind].fullmatch(word)), (kind, word)
        return
    # What is a number here is one there, even if `1e3` is text for some.
    assert not node.style, (word, value)
    if value is None or isinstance(value, bool):
        assert kind == ("null" if value is None else "bool"), (kind, word)
        assert value is None or value == (word.lower() == "true"), word
    elif isinstance(value, int):
        assert kind == "int" and int(word) == value, (kind, word)
    else:
        assert isinstance(value, float)
        # An integer of more than 19 digits is a float here.
        assert kind == "float" or (kind == "int" and len(word) > 19), (kind, word)
        special = word.lower().lstrip("+-") in (".inf", ".nan")
        other = float(word.lower().replace(".inf", "inf").replace(".nan", "nan"))
        assert other == value or (special and math.isnan(other) and math.isnan(value)), word
