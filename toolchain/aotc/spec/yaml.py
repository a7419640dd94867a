"""YAML: a strict reader and a writer, and the line of each value for who says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final

from aotc.base.errors import Place
from aotc.base.records import record, replace
from aotc.base.text import hidden_characters
from aotc.spec.codec import MAX_PROBLEMS, Json, ParseError, Problem, encode
from aotc.spec.json import MAX_INTEGER, check_text

MAX_YAML_BYTES = 1 << 20
# Reading a value takes fifty microseconds.
MAX_YAML_VALUES = 50_000

# Tag, pattern, and the characters that a word of the tag may begin with.
_WORDS = (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,18})", tuple("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
        r"|\.(?:nan|NaN|NAN)",
        tuple("-+.0123456789"),
    ),
)


def strict_yaml(data: bytes) -> Json:
    """The value of one YAML document, made of the types of JSON.

    Plain words are read by the core schema of YAML 1.2 (section 10.3.2), with decimal numbers
    only: `1e-3` is a number, and `no` is text.  Keys are text.  Raises `ParseError` for duplicate
    keys, keys that are not text, anchors, aliases, tags, directives but `%YAML 1.2`, unpaired
    surrogates, integers beyond 2^53 - 1, more than `MAX_YAML_BYTES` bytes or `MAX_YAML_VALUES`
    values, what readers differ about, and as `readable_text` does.
    """
    import yaml

    if len(data) > MAX_YAML_BYTES:
        raise ParseError([Problem("", f"more than {MAX_YAML_BYTES} bytes")])
    try:
        value = yaml.load(readable_text(data), loader())  # noqa: S506 - a SafeLoader
        check_text(value)
        return value
    except ParseError:
        raise
    except RecursionError:
        raise ParseError([Problem("", "nested too deeply")]) from None
    except (yaml.YAMLError, ValueError, KeyError, IndexError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error) or type(error).__name__
        raise ParseError([_problem(mark, "", f"not YAML: {what}")]) from None


def readable_text(data: bytes) -> str:
    """The text of a document in UTF-8 that people review, and that shows what it reads as.

    Raises `ParseError` for every character (up to `MAX_PROBLEMS`) that is not seen, or is seen in
    another place: one that ends a line for some readers alone would put into effect what shows as
    part of a comment.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError([Problem("", f"not UTF-8: {error.reason}")]) from None
    problems = []
    for at, character in islice(hidden_characters(text), MAX_PROBLEMS):
        # A carriage return alone, which is among them, is no end of a line here.
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        code = f"\\u{ord(text[at]):04x}" if ord(text[at]) < 0x10000 else f"\\U{ord(text[at]):08x}"
        what = (
            f"line {line}: {character} is not seen by who reads the file, or shows otherwise than "
            f"it reads: delete it, or write {code} in double quotes"
        )
        problems.append(Problem("", what, line=line, column=column))
    if problems:
        raise ParseError(problems)
    return text


def yaml_text(record: Any, *, full: bool = True) -> str:
    """A record as YAML that `strict_yaml` reads back; with all defaults, if `full`.

    Lists of plain values stay on one line each.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes text that the loader would read as another type."""

    def text(dumper: Any, value: str) -> Any:
        """Writes text of several lines, such as a PEM key, as these lines."""
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    Dumper.yaml_implicit_resolvers = loader().yaml_implicit_resolvers
    return str(
        yaml.dump(
            encode(record, full=full),
            Dumper=Dumper,
            sort_keys=False,
            default_flow_style=None,
            # Long names are not wrapped: their second lines would look like names of fields.
            width=float("inf"),
        )
    )


@cache
def loader() -> Any:
    """PyYAML's class of a loader that reads documents as `strict_yaml` says."""
    import yaml

    class Loader(yaml.SafeLoader):
        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self.values = 0
            self.anchor: Any = None
            # Of each list or mapping in brackets that is open, whether it is a mapping.
            self.braces: list[bool] = []
            self.ended = False

        def compose_document(self) -> Any:
            # Both would change what words and tags mean.
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            if event.tags or event.version not in (None, (1, 2)):
                what = "no directive but '%YAML 1.2' is allowed"
                raise ParseError([_problem(event.start_mark, "", what)])
            document = super().compose_document()
            if self.anchor is not None:
                raise ParseError([_problem(self.anchor, "", "anchors are not allowed")])
            return document

        def fetch_document_end(self) -> None:
            if self.ended:
                raise ParseError([_problem(self.get_mark(), "", "the document has ended before")])
            self.ended = True
            super().fetch_document_end()

        def fetch_flow_collection_start(self, TokenClass: Any) -> None:
            self.braces.append(TokenClass is yaml.FlowMappingStartToken)
            super().fetch_flow_collection_start(TokenClass)

        def fetch_flow_collection_end(self, TokenClass: Any) -> None:
            del self.braces[-1:]
            super().fetch_flow_collection_end(TokenClass)

        def fetch_value(self) -> None:
            # By YAML 1.2 the colon of `{a:, b: 1}` is part of the name, and that of `{"a":1}` not.
            if self.flow_level and self.peek(1) not in " \n\r\0":
                last = self.tokens[-1] if self.tokens and self.braces[-1:] == [True] else None
                if not isinstance(last, yaml.ScalarToken) or last.plain:
                    what = "readers differ about a colon without a blank after it"
                    raise ParseError([_problem(self.get_mark(), "", what)])
            super().fetch_value()

        def compose_node(self, parent: Any, index: Any) -> Any:
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            if isinstance(event, yaml.AliasEvent):
                raise ParseError([_problem(event.start_mark, "", "aliases are not allowed")])
            if getattr(event, "anchor", None) is not None:
                # Told once no alias was found. Readers differ about where its name ends.
                self.anchor = self.anchor or event.start_mark
            if getattr(event, "tag", None) is not None:
                # Some tags make values of any size, and others values of other types.
                raise ParseError([_problem(event.start_mark, "", "tags are not allowed")])
            self.values += 1
            if self.values > MAX_YAML_VALUES:
                raise ParseError([Problem("", f"more than {MAX_YAML_VALUES} values")])
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise ParseError([_problem(key.start_mark, "", "a key is not plain text")])
                if key.value in seen:
                    raise ParseError([_problem(key.start_mark, key.value, "duplicate key")])
                seen.add(key.value)
                key.tag = "tag:yaml.org,2002:str"
            return super().construct_mapping(node, deep=True)

        def construct_yaml_int(self, node: Any) -> int:
            value = int(node.value)
            if abs(value) > MAX_INTEGER:
                what = f"integer {node.value} exceeds 2^53 - 1"
                raise ParseError([_problem(node.start_mark, "", what)])
            return value

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    Loader.yaml_implicit_resolvers = {}
    for name, pattern, first in _WORDS:
        tag = f"tag:yaml.org,2002:{name}"
        Loader.add_implicit_resolver(tag, re.compile(rf"(?:{pattern})\Z"), list(first))
    return Loader


def _problem(mark: Any, path: str, what: str) -> Problem:
    """A problem at a mark of PyYAML, which counts from 0; None: nowhere."""
    if mark is None:
        return Problem(path, what)
    line = int(mark.line) + 1
    return Problem(path, f"line {line}: {what}", line=line, column=int(mark.column) + 1)


# The line and column of each value of a YAML document, for who says what is wrong with it.
#
# Positions are found by a second reading, and only once something is to be told: what is valid is
# read once.


# Line and column, from 1, by the path of a value (`variants[0].inputs[2].shape`); "" is the top.
Positions = Mapping[str, tuple[int, int]]


@cache
def positions(data: bytes) -> Positions:
    """Where each value of a document stands: its key, or in a list the value itself.

    Empty for what is not YAML, or longer than `MAX_YAML_BYTES`.
    """
    import yaml

    if len(data) > MAX_YAML_BYTES:
        return {}
    try:
        # A character that YAML does not allow is refused here already.
        reading = loader()(data.decode("utf-8", "replace"))
    except yaml.YAMLError:
        return {}
    try:
        root = reading.get_single_node()
        return {"": (1, 1)} if root is None else {"": _position(root), **dict(_below(root, ""))}
    except (yaml.YAMLError, ParseError, RecursionError, ValueError):
        return {}
    finally:
        reading.dispose()


def _below(node: Any, path: str) -> Iterator[tuple[str, tuple[int, int]]]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{path}.{key.value}" if path else str(key.value)
            yield name, _position(key)
            yield from _below(value, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            name = f"{path}[{index}]"
            yield name, _position(value)
            yield from _below(value, name)


def _position(node: Any) -> tuple[int, int]:
    return int(node.start_mark.line) + 1, int(node.start_mark.column) + 1


def nearest_position(known: Positions, path: str) -> tuple[int, int]:
    """The position of a value, or of the nearest one around it that the document has."""
    while path and path not in known:
        # A name may hold a dot itself: then what is around is found a step later.
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return known.get(path, (1, 1))


def located(problems: Sequence[Problem], data: bytes) -> tuple[Problem, ...]:
    """Problems of a document, each with its line and column."""
    known = positions(data) if any(not problem.line for problem in problems) else {}
    found = []
    for problem in problems:
        line, column = nearest_position(known, problem.path)
        found.append(problem if problem.line else replace(problem, line=line, column=column))
    return tuple(found)


def place_of(problem: Problem, file: str) -> Place | None:
    """The place of a problem in its file; None where its line is not known."""
    return Place(file=file, line=problem.line, column=problem.column) if problem.line else None


@record
class DocumentPlaces:
    """A YAML file as it was read; without a file, as for a profile made in Python, no places.

    `overridden` are settings of the file that the command line replaces, which have no place.
    """

    file: str = ""
    data: bytes = b""
    overridden: frozenset[str] = frozenset()

    def of(self, setting: str) -> Place | None:
        """Where `setting`, such as `budgets.cpu_share`, stands, or else what is around it."""
        if not self.file or setting in self.overridden:
            return None
        line, column = nearest_position(positions(self.data), setting)
        return Place(file=self.file, line=line, column=column)


NO_PLACES: Final = DocumentPlaces()
