"""The pages docs/reference/api*.md: the public names, as the source tells of them.

Knows which names are public and in which order they are read. Everything that is said of them is
their own docstrings': what is poor here is mended there.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any

import from_source as source
from from_source import cell, code, table

NOTE = "<!-- made by scripts/make_reference.py from the docstrings in src: change those -->\n"


@dataclass(frozen=True)
class Page:
    """One page: its title, the words before its names, and the names."""

    title: str
    words: str
    names: tuple[str, ...]
    """`module:name`; `module:name as other` where it is reached by another name; `# words` for a
    heading between them; `> module` for how that module's docstring says it is used."""


PAGES = {
    "api.md": Page(
        "Sessions",
        "What `import foldline` gives: a session for a loop of your own, and a wrapped client for "
        "a loop that stays as it is. [What each error means](errors.md) is a page of its own.",
        (
            "# Opening",
            "foldline.session.open:open as foldline.open",
            "foldline.session.open:aopen as foldline.aopen",
            "foldline.proxy.wrap:wrap as foldline.wrap",
            "foldline.proxy.identity:conversation as foldline.conversation",
            "foldline.proxy.wrap:session_of as foldline.session_of",
            "foldline.proxy.wrap:http_client as foldline.http_client",
            "foldline.proxy.wrap:async_http_client as foldline.async_http_client",
            "foldline.proxy.wrap:Options",
            "foldline.proxy.wrap:Wrapped",
            "# A history of your own",
            "foldline.proxy.follow:Follower as foldline.Follower",
            "foldline.proxy.follow:AsyncFollower as foldline.AsyncFollower",
            "foldline.proxy.follow:FollowPlan",
            "foldline.proxy.follow:PlannedMessage",
            "foldline.session.recall_tool:RECALL_TOOL as foldline.RECALL_TOOL",
            "# A session",
            "foldline.session.session:Session as foldline.Session",
            "foldline.session.session:AsyncSession as foldline.AsyncSession",
            "foldline.session.session:Given",
            "foldline.core.request:Report as foldline.Report",
            "foldline.core.edits.fold.loss:Loss",
            "foldline.core.edits.fold.loss:Left",
            "# The past: `s.history`",
            "foldline.session.history:History",
            "foldline.session.history:AsyncHistory",
            "foldline.session.history:Turn",
            "foldline.session.history:FoundMessage",
            "# Watching folds",
            "foldline.session.hooks:watch as foldline.watch",
            "foldline.session.hooks:Pass",
            "foldline.session.metrics:prometheus",
            "foldline.session.metrics:spans",
            "# Sessions that others left on disk",
            "foldline.importers:read",
            "foldline.importers.source:Imported",
        ),
    ),
    "api-core.md": Page(
        "plan()",
        "The expert's door: a pure function from a view and facts to what to send. It reads no "
        "clock, no file and no setting, and `foldline.open` is built on it. "
        "[The events](events.md) are a page of their own.",
        (
            "# Deciding",
            "foldline.core.plan:plan",
            "foldline.core.plan:Ready",
            "foldline.core.fold_selection:Need",
            "foldline.core.plan:Blocked",
            "foldline.core.plan:admit",
            "foldline.core.plan:take_back",
            "foldline.core.plan:lost",
            "foldline.core.plan:after",
            "# What a decision rests on",
            "foldline.core.fold_selection:Facts",
            "foldline.core.budget:limits",
            "foldline.core.budget:Limits",
            "foldline.core.prices:Prices",
            "foldline.core.policy:named",
            "foldline.core.policy:Policy",
            "foldline.core.policy:Priced",
            "foldline.core.policy:Tail",
            "foldline.core.policy:Clipping",
            "foldline.core.policy:Masking",
            "# The view, and what is sent of it",
            "foldline.core.view:load",
            "foldline.core.view:shape",
            "foldline.core.request:render",
            "foldline.core.request:Request",
        ),
    ),
    "api-store.md": Page(
        "Store",
        "",
        (
            "# Where it is",
            "foldline.stores.open_store:store_at",
            "foldline.stores.encryption:CryptStore",
            "> foldline.stores.encryption",
            "# The port",
            "foldline.stores.base:Store",
            "# What it is given and gives",
            *(
                f"foldline.stores.base:{name}"
                for name in ("Name", "Draft", "Row", "Head", "Lease", "Listed", "Found")
            ),
            *(f"foldline.stores.base:{name}" for name in ("Entry", "Retention", "Receipt")),
        ),
    ),
    "api-models.md": Page(
        "Models",
        "Who answers, how long it is waited for, and what it may cost. A session needs none of "
        "this: it gives keyword arguments for an SDK, and the SDK asks.",
        (
            "# The port",
            "foldline.models.port:Model",
            "foldline.models.port:Heard",
            "foldline.models.port:AnswerListener",
            "foldline.models.clients:client",
            "> foldline.models.clients",
            "# Asking",
            "> foldline.session.turn",
            "foldline.session.turn:reply",
            "foldline.models.retries:Patience",
            "foldline.dialects.provider_errors:Fault",
            "# What is known of a model",
            "foldline.models.catalog:find",
            "foldline.models.catalog:ModelEntry as catalog.Model",
            "foldline.models.servers:ask",
            "foldline.models.servers:Reported",
            "# Narratives",
            "foldline.models.summarize:Tellers",
            "# Caps",
            "foldline.session.spending:Caps",
            "foldline.session.spending:Cap",
            "# Watching folds",
            "foldline.session.hooks:Pass",
            "foldline.session.metrics:prometheus",
            "foldline.session.metrics:spans",
        ),
    ),
    "api-agent.md": Page(
        "Agent",
        "A session that works: a model, tools, and hooks that are told what happens. The terminal, "
        "the bot, the scheduler and the HTTP API are all this one loop.",
        (
            "# The loop",
            "> foldline.agent.loop",
            "foldline.agent.loop:Agent",
            "foldline.agent.loop:Ended",
            "foldline.agent.loop:Approve",
            "# Tools",
            "> foldline.agent.tool",
            "foldline.agent.tool:Tool",
            "foldline.agent.tool:Result",
            "foldline.agent.tool:Intent",
            "foldline.agent.tool:said",
            "foldline.agent.tool:report_output",
            "foldline.agent.tools:own",
            "# Hooks",
            "> foldline.agent.events",
            "foldline.agent.events:Hook",
            *(
                f"foldline.agent.events:{name}"
                for name in (
                    *("Asking", "Thinking", "Speaking", "Retrying", "Answered"),
                    *("Calling", "Printing", "Called", "Folding"),
                )
            ),
            "foldline.agent.events:Passed",
        ),
    ),
    "api-testing.md": Page(
        "Testing",
        "Fakes stand only where the world begins: at the model, the provider, Telegram. "
        "Conversations, views and plans are the real ones.",
        (
            "# Models and providers",
            "> foldline.testing.models",
            "> foldline.testing.provider",
            "foldline.testing:ScriptedModel",
            "foldline.testing:Provider",
            "foldline.testing:Trouble",
            "# Logs by hand",
            *(
                f"foldline.testing:{name}"
                for name in ("user", "model", "calls", "result", "view_of", "Conversation", "Sent")
            ),
            "foldline.testing:Planned",
            "# Logs at random",
            *(f"foldline.testing:{name}" for name in ("steps", "Step", "play")),
            "foldline.testing.strategies:conversations",
            "foldline.testing.strategies:scripts",
            "# Suites",
            "> foldline.testing.stores",
            "foldline.testing.stores:Conformance",
        ),
    ),
}
SAME = {"AsyncSession": "Session", "AsyncHistory": "History"}
"""What has the verbs of another, awaited."""
ONLY = {"CryptStore": ("rekey",)}
"""What has the verbs of a port, and a few of its own."""
CALLED = {"Session": "s.", "History": "s.history."}
"""What stands before a verb where it is called."""
OPENED = ("foldline.open", "foldline.aopen")
"""Two faces of one function: the second is told by the first."""


def page(name: str) -> str:
    """One page of the API."""
    told = PAGES[name]
    words = told.words or source.told(import_module("foldline.stores.base"))
    return "\n\n".join((f"# {told.title}", NOTE + "\n" + words, *_names(told.names))) + "\n"


def _names(names: tuple[str, ...]) -> Iterator[str]:
    for one in names:
        if one.startswith("# "):
            yield f"## {one.removeprefix('# ')}"
            continue
        if one.startswith("> "):
            yield _block(source.example(import_module(one.removeprefix("> "))))
            continue
        path, _, other = one.partition(" as ")
        module, _, name = path.partition(":")
        thing = getattr(import_module(module), name)
        yield from _thing(import_module(module), name, thing, shown=other or name)


def _thing(module: Any, name: str, thing: Any, *, shown: str) -> Iterator[str]:
    yield f"### `{shown}`"
    if not shown.startswith("foldline."):
        yield f"`from {module.__name__} import {name}`"
    if not inspect.isclass(thing) and not inspect.isfunction(thing):
        found = source.alias(module, name)
        yield from (_block(f"{name} = {found.type}"), found.told)
    elif shown == OPENED[0]:
        call = source.signature(thing, shown).removeprefix("async ")
        yield from (_block(call.replace("-> AsyncSession", "-> Session")), _told(thing, shown))
    elif shown == OPENED[1]:
        yield _block("async with foldline.aopen(...) as s:  # an AsyncSession\n    ...")
        yield "The same with `await`: its arguments are those of [`foldline.open`](#foldlineopen)."
    elif not inspect.isclass(thing):
        yield from (_block(source.signature(thing, shown)), _told(thing, shown))
    elif name in SAME:
        yield _same(thing, SAME[name])
    else:
        yield from _class(thing, shown)


def _class(thing: type, shown: str) -> Iterator[str]:
    short = shown.rpartition(".")[2]
    makes = "__init__" in vars(thing) and not source.fields(thing) and not _is_protocol(thing)
    if makes and short not in ("Session", "History", "Wrapped"):
        yield _block(source.signature(thing, short))
    yield _told(thing, shown)
    if issubclass(thing, Enum):
        rows = [(f"`{short}.{one.name}`", cell(one.told)) for one in source.fields(thing)]
        yield table(("member", "meaning"), rows)
    elif found := source.fields(thing):
        yield _fields(found)
    elif makes and any(one.told for one in source.kept(thing)):
        kept = [one for one in source.kept(thing) if one.told]
        rows = [(f"`{one.name}`", cell(one.told)) for one in kept]
        yield table(("attribute", "meaning"), rows)
    for name in ONLY.get(short) or _verbs(thing):
        one = inspect.getattr_static(thing, name)
        if isinstance(one, property):
            yield f"#### `{short}.{name}`"
            yield _block(f"{CALLED.get(short, '')}{name}: {source.gives(one)}")
            yield _told(one.fget, f"{short}.{name}")
            continue
        yield f"#### `{short}.{name}()`"
        call = source.signature(getattr(thing, name), f"{CALLED.get(short, '')}{name}")
        if short in SAME.values():  # made by the portal of what is awaited
            call = call.removeprefix("async ").replace("Self", short)
        yield from (_block(call), _told(getattr(thing, name), f"{short}.{name}"))


def _verbs(thing: type) -> list[str]:
    """Public methods and properties, in the order in which they are written."""
    found = [
        name
        for name, one in vars(thing).items()
        if not name.startswith(("_", "test_")) and (callable(one) or isinstance(one, property))
    ]
    return [name for name in found if not inspect.isclass(inspect.getattr_static(thing, name))]


def _is_protocol(thing: type) -> bool:
    return getattr(thing, "_is_protocol", False)


def _same(thing: type, other: str) -> str:
    """A class whose verbs are another's: said once, and held to it here."""
    module = import_module(thing.__module__)
    theirs = {*_verbs(getattr(module, other))}
    if {*_verbs(thing)} != theirs:
        raise ValueError(
            f"{thing.__name__} and {other} have other verbs: {theirs ^ {*_verbs(thing)}}"
        )
    text = source.told(thing)
    like = f"Its verbs and properties are those of [`{other}`](#{_anchor(other)})"
    return f"{text}\n\n{like}, each verb awaited."


def _fields(found: list[source.Field]) -> str:
    rows = [
        (
            f"`{one.name}`",
            code(one.type) if one.type else "",
            "" if one.default is None else code(_default(one.default)),
            cell(one.told),
        )
        for one in found
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _default(text: str) -> str:
    return "..." if text.startswith(("_", "lambda")) else text


def _told(thing: Any, name: str) -> str:
    text = source.told(thing)
    if not text:
        raise ValueError(f"{name} has no docstring, and is public")
    return text


def _block(text: str) -> str:
    """A signature or how something is used: nothing that a page's blocks are run by."""
    return f"```text\n{text}\n```"


def _anchor(name: str) -> str:
    """Where the site has a heading that is a name."""
    return {"Session": "foldlinesession"}.get(name, name.lower())


def check() -> None:
    """Every public name of `foldline` and of `foldline.testing` has its place."""
    told = " ".join(name for one in PAGES.values() for name in one.names)
    import foldline.testing  # noqa: PLC0415

    for name in foldline.__all__:
        kept = f"foldline.{name}" in told or issubclass(getattr(foldline, name), Exception)
        assert kept, f"foldline.{name} is on no page"  # noqa: S101
    for name in foldline.testing.__all__:
        assert f":{name} " in f"{told} ", f"foldline.testing.{name} is on no page"  # noqa: S101
