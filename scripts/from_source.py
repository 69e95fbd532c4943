"""What the source says of a name: its signature, its fields and its docstring, as written there.

Knows Python's own parser. Refuses to know pages. Types and defaults are shown as the source spells
them, and a text below a field is what that field means.
"""

import ast
import html
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

_WIDE = 88
_NUMBERS = re.compile(
    r"\s*\((?:[AR]-\d+(?:, | and | to )?)+\)|:(?: [AR]-\d+(?:,| and| to)?)+(?=\.|$)"
)
_NUMBER = re.compile(r"\b[AR]-\d+\b")


class Field(NamedTuple):
    """One field of a class, as its source has it."""

    name: str
    type: str
    default: str | None
    told: str


def told(thing: Any) -> str:
    """A docstring as a page may show it: the numbers of requirements are our own business."""
    return plain(inspect.getdoc(inspect.unwrap(thing)) or "")


def plain(text: str) -> str:
    """Words without the numbers of requirements."""
    made = re.sub(r":\n(?=- )", ":\n\n", _NUMBERS.sub("", text))
    if left := _NUMBER.search(made):
        raise ValueError(f"a requirement's number inside a sentence: {left[0]} in {text!r}")
    return made


def signature(thing: Any, name: str) -> str:
    """How a function is called, by another name where it has one."""
    node = _node(thing)
    if isinstance(node, ast.ClassDef):
        made: Any = next((one for one in node.body if _is(one, "__init__")), None)
        return _call("", name, made.args, None) if made else f"{name}()"
    shared = _node(getattr(thing, "parameters_of", thing))
    if not isinstance(shared, ast.FunctionDef | ast.AsyncFunctionDef):
        raise TypeError(f"{name} is neither a function nor a class")
    word = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return _call(word, name, shared.args, getattr(node, "returns", None))


def gives(thing: Any) -> str:
    """The type that a function or a property gives."""
    node = _node(thing.fget if isinstance(thing, property) else thing)
    return _type(node.returns)


def fields(thing: Any) -> list[Field]:
    """The fields of a class with what stands below each of them."""
    return [one for one in _fields(_node(thing).body) if one.type or issubclass(thing, Enum)]


def kept(thing: Any) -> list[Field]:
    """What an object keeps of what it was made with, where its `__init__` says what it means."""
    made = next((one for one in _node(thing).body if _is(one, "__init__")), None)
    return [*_fields(made.body)] if made else []


def alias(module: ModuleType, name: str) -> Field:
    """A name of a module that stands for a type or a value, and the text below it."""
    found = [one for one in _fields(_tree(module.__name__).body) if one.name == name]
    return found[0]._replace(type=found[0].default or "")


def example(module: ModuleType) -> str:
    """What stands indented in a module's docstring: how it is used."""
    found = re.findall(r"(?:^    .*\n)+", f"{inspect.getdoc(module)}\n", re.MULTILINE)
    return textwrap.dedent(found[0]).rstrip()


def code(text: str) -> str:
    """Source inside a table's cell, where a bar would end the cell."""
    if "|" not in text and "`" not in text:
        return f"`{text}`"
    return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>"


def cell(text: str) -> str:
    """Words inside a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown, without the columns that would be empty."""
    full = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    lines = [heads, tuple("---" for _ in heads), *rows]
    lines = [tuple(line[at] for at in full) for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _node(thing: Any) -> Any:
    found = inspect.unwrap(thing)
    names = found.__qualname__.split(".")
    if "<locals>" in names:
        return ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]
    node: Any = _tree(found.__module__)
    for name in names:
        node = next(one for one in node.body if getattr(one, "name", None) == name)
    return node


@cache
def _tree(module: str) -> ast.Module:
    """A module's source, read once: `inspect` would read it again for every class."""
    return ast.parse(inspect.getsource(sys.modules[module]))


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _fields(body: list[ast.stmt]) -> Iterator[Field]:
    for at, node in enumerate(body):
        below = body[at + 1] if at + 1 < len(body) else None
        match node:
            case ast.AnnAssign(ast.Name(name) | ast.Attribute(attr=name), kind, value):
                pass
            case ast.Assign([ast.Name(name) | ast.Attribute(attr=name)], value):
                kind = None
            case _:
                continue
        if not name.startswith("_"):
            default = None if value is None else _spelled(value)
            yield Field(name, _type(kind), default, _text(below))


def _text(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(ast.Constant(str(text))):
            return plain(inspect.cleandoc(text))
        case _:
            return ""


def _call(word: str, name: str, given: ast.arguments, back: ast.expr | None) -> str:
    parameters = [*_parameters(given)]
    end = f" -> {_type(back)}" if back is not None else ""
    line = f"{word}{name}({', '.join(parameters)}){end}"
    if len(line) <= _WIDE:
        return line
    return "\n".join((f"{word}{name}(", *(f"    {one}," for one in parameters), f"){end}"))


def _parameters(given: ast.arguments) -> Iterator[str]:
    placed = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(placed) - len(given.defaults)) + [*given.defaults]
    for one, default in zip(placed, defaults, strict=True):
        if one.arg not in ("self", "cls"):
            yield _parameter(one, default)
    if given.vararg:
        yield f"*{_parameter(given.vararg, None)}"
    elif given.kwonlyargs:
        yield "*"
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(one, default)
    if given.kwarg:
        yield f"**{_parameter(given.kwarg, None)}"


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    words = f"{one.arg}: {_type(one.annotation)}" if one.annotation else one.arg
    return words if default is None else f"{words} = {_spelled(default)}"


def _type(node: ast.expr | None) -> str:
    match node:
        case None:
            return ""
        case ast.Constant(str(text)):
            return text
        case _:
            return _spelled(node)


def _spelled(node: ast.expr) -> str:
    """Source as our formatter would write it; what makes a new value is shown by that value."""
    match node:
        case ast.Call(ast.Name("field"), keywords=[ast.keyword("default_factory", made), *_]):
            return "{}" if ast.unparse(made).startswith("dict") else "[]"
        case _:
            text = re.sub(r"\b\d{5,}\b", lambda found: f"{int(found[0]):_}", ast.unparse(node))
            return text if '"' in text else text.replace("'", '"')
