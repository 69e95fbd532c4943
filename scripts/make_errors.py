"""The page docs/reference/errors.md: the tree of errors, from src/foldline/errors.py.

Knows where else an error is seen: the command's exit code and the API's status are asked of those
who give them. When it is raised and what to do is each error's own docstring.
"""

import ast
import inspect
import logging
from collections.abc import Iterator

import from_source as source

from foldline import errors
from foldline.apps.cli import exit_codes
from foldline.apps.gateway.api import api_call as faults
from foldline.dialects.provider_errors import Fault

WORDS = """Everything that Foldline raises on purpose is a `FoldlineError`, from `foldline.errors`;
`FoldlineError` and `Overflow` are also names of `foldline` itself. A message names the thing, the
place and the way out; what a program may want to read is an attribute. Whatever else is raised is
a fault of ours, or your tool's or your provider's own.

```text
{tree}
```

## Each of them

*Exit code* is that of the [command line](cli.md), *status* that of the [HTTP API](http.md)."""
MADE = {
    "Overflow": lambda kind: kind({"system": 1}, 1),
    "UndoFirst": lambda kind: kind(1, 2),
    "Conflict": lambda kind: kind("s", 1, 2),
    "Busy": lambda kind: kind("s"),
    "Erased": lambda kind: kind("s", 0.0),
    "ModelFailed": lambda kind: kind("m", Fault("rate", "slow down")),
    "Spent": lambda kind: kind("day", spent=1, would=1, limit=1, unit="tokens"),
}
"""How one is made, where it takes more than words."""


def page() -> str:
    """The whole page."""
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    words = WORDS.format(tree=inspect.cleandoc(tree))
    made = [
        "# Errors",
        "<!-- made by scripts/make_reference.py from src/foldline/errors.py: change that -->",
        words,
        *(part for kind in kinds() for part in _told(kind, words)),
    ]
    return "\n\n".join(made) + "\n"


def kinds() -> list[type[errors.FoldlineError]]:
    """Every error of the module, in its order."""
    body = ast.parse(inspect.getsource(errors)).body
    return [getattr(errors, node.name) for node in body if isinstance(node, ast.ClassDef)]


def _told(kind: type[errors.FoldlineError], words: str) -> Iterator[str]:
    name = kind.__name__
    if f" {name} " not in words.replace("\n", " \n") and name != "FoldlineError":
        raise ValueError(f"{name} is not in the tree at the top of errors.py")
    yield f"### `{name}`"
    yield source.told(kind)
    made = [one for one in source.kept(kind) if one.told]
    if made:
        rows = [(f"`{one.name}`", source.cell(one.told)) for one in made]
        yield source.table(("attribute", "meaning"), rows)
    if name != "FoldlineError":
        one = MADE.get(name, lambda kind: kind("words"))(kind)
        yield f"Exit code {exit_codes.explain_error(one)[0]}; status {_status(one)}."


def _status(fault: errors.FoldlineError) -> int:
    """What the API answers; what nobody expects there goes to its log, and need not here."""
    logging.disable(logging.CRITICAL)
    try:
        return faults.build_error_answer(fault).status
    finally:
        logging.disable(logging.NOTSET)
