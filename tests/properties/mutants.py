"""Broken variants of the real code: one line of a module replaced, for the length of a `with`."""

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType


@contextmanager
def broken(module_name: str, line: str, instead: str) -> Iterator[None]:
    """Run with `line` replaced by `instead` in the functions of a module."""
    module = importlib.import_module(module_name)
    source = inspect.getsource(module)
    assert source.count(line) == 1, f"{line!r} stands {source.count(line)} times in {module_name}"
    wanted = dict(_codes(compile(source.replace(line, instead), inspect.getfile(module), "exec")))
    changed: list[tuple[FunctionType, CodeType]] = []
    for path, code in _codes(compile(source, inspect.getfile(module), "exec")):
        if code != wanted[path]:
            function = module
            for name in path.split("."):
                function = getattr(function, name)
            changed.append((function, function.__code__))
            function.__code__ = wanted[path]
    assert changed, f"replacing {line!r} changes nothing"
    try:
        yield
    finally:
        for function, code in changed:
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and "<" not in inner.co_qualname:
            if inner.co_flags & inspect.CO_NEWLOCALS and inner.co_flags & inspect.CO_OPTIMIZED:
                yield inner.co_qualname, inner
            yield from _codes(inner)
