"""A reader of PromQL, as far as rules and dashboards here need it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

AGGREGATIONS = {"sum", "max", "min", "avg", "count", "topk", "quantile"}
# From what binds least to what binds most.
PRECEDENCE = (
    {"or"},
    {"and", "unless"},
    {"==", "!=", "<=", "<", ">=", ">"},
    {"+", "-"},
    {"*", "/", "%"},
    {"^"},
)
TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![a-z]))
    | (?P<name>[a-zA-Z_:][\w:]*)
    | "(?P<string>(?:[^"\\]|\\.)*)"
    | (?P<window>\[[^\]]+\])
    | (?P<mark>[=!]~|[=!<>]=|[-+*/%^<>(){},=])
    )""",
    re.VERBOSE,
)


class BadExpression(ValueError):
    """Not PromQL, or a form of it that nothing here uses."""


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Text:
    value: str


@dataclass(frozen=True)
class Series:
    """A metric; its matchers are (label, mark, value), its window what stands in brackets."""

    name: str
    matchers: tuple[tuple[str, str, str], ...] = ()
    window: str = ""


@dataclass(frozen=True)
class Call:
    """A function or an aggregation; `by` are the labels that an aggregation keeps."""

    name: str
    arguments: tuple["Node", ...]
    by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Binary:
    mark: str
    left: "Node"
    right: "Node"


Node: TypeAlias = Number | Text | Series | Call | Binary


def parse(expression: str) -> Node:
    """Return the tree of an expression.

    Raises:
        BadExpression: it cannot be read.
    """
    reader = _Reader(expression)
    tree = reader.binary(0)
    reader.take("end")
    return tree


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all below it."""
    yield node
    match node:
        case Call(arguments=arguments):
            below: tuple[Node, ...] = arguments
        case Binary(left=left, right=right):
            below = (left, right)
        case _:
            below = ()
    for each in below:
        yield from walk(each)


def series(expression: str) -> list[Series]:
    """Return the series that an expression asks for."""
    return [node for node in walk(parse(expression)) if isinstance(node, Series)]


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._tokens, at = text, [], 0
        while at < len(text.rstrip()):
            found = TOKEN.match(text, at)
            if found is None:
                raise BadExpression(f"{text!r}: cannot be read from {text[at:]!r} on")
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        self._tokens.append(("end", ""))

    def peek(self) -> tuple[str, str]:
        return self._tokens[0]

    def take(self, kind: str, value: str | None = None) -> str:
        if self.peek()[0] != kind or value not in (None, self.peek()[1]):
            raise BadExpression(f"{self._text!r}: {value or kind} must come; got {self.peek()}")
        return self._tokens.pop(0)[1]

    def may(self, value: str) -> bool:
        """Whether this mark is next; then it is taken."""
        there = self.peek() == ("mark", value)
        if there:
            self._tokens.pop(0)
        return there

    def binary(self, level: int) -> Node:
        if level == len(PRECEDENCE):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek()[0] in ("mark", "name") and self.peek()[1] in PRECEDENCE[level]:
            left = Binary(self._tokens.pop(0)[1], left, self.binary(level + 1))
        return left

    def unary(self) -> Node:
        if self.may("("):
            inside = self.binary(0)
            self.take("mark", ")")
            return inside
        kind, value = self._tokens.pop(0)
        if kind == "number":
            return Number(float(value))
        if kind == "string":
            return Text(value)
        if kind != "name":
            raise BadExpression(f"{self._text!r}: a value must come; got {value or kind!r}")
        by = self.labels() if value in AGGREGATIONS else ()
        if not self.may("("):
            return self.selector(value)
        arguments = []
        while not self.may(")"):
            arguments.append(self.binary(0))
            if self.peek() != ("mark", ")"):
                self.take("mark", ",")
        return Call(value, tuple(arguments), by)

    def labels(self) -> tuple[str, ...]:
        if self.peek() != ("name", "by"):
            return ()
        self.take("name", "by")
        self.take("mark", "(")
        found = [self.take("name")]
        while self.may(","):
            found.append(self.take("name"))
        self.take("mark", ")")
        return tuple(found)

    def selector(self, name: str) -> Series:
        matchers = []
        if self.may("{"):
            while not self.may("}"):
                label, mark = self.take("name"), self.take("mark")
                matchers.append((label, mark, self.take("string")))
                self.may(",")
        window = self.take("window")[1:-1] if self.peek()[0] == "window" else ""
        return Series(name, tuple(matchers), window)
