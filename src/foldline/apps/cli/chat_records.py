"""What `foldline chat --output json` and `stream-json` print: one record per line, all documented.

docs/reference/chat-output.md is made from these classes. Fields are added, never renamed, removed
or given another meaning; if that must ever happen, `VERSION` goes up.
"""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

VERSION = 1
Outcome: TypeAlias = Literal[
    "answered",
    "length",
    "refused",
    "rounds",
    "spent",
    "vetoed",
    "overflow",
    "unanswered",
    "interrupted",
    "failed",
]
OUTCOMES: dict[Outcome, str] = {
    "answered": "the model has answered",
    "length": "the answer ended at its length limit",
    "refused": "the model refused to answer",
    "rounds": "the limit of tool rounds in one turn was reached",
    "spent": "a cap on tokens or money was reached",
    "vetoed": "a hook or the session's address forbade the call",
    "overflow": "the message cannot be made to fit the window",
    "unanswered": "no answer came: key, network, the provider's own error, or no words",
    "interrupted": "a signal ended it; what was said so far is kept",
    "failed": "anything else: `error` says what",
}


class _Record(Struct, frozen=True, tag_field="type", kw_only=True):
    version: Annotated[int, Meta(description="of this format: 1")] = VERSION


class RunBegun(_Record, frozen=True, kw_only=True, tag="begun"):
    """The session is open; nothing was sent yet."""

    session: Annotated[str, Meta(description="the session's name; `--continue NAME` goes on")]
    model: Annotated[str, Meta(description="the model that is asked")]
    window: Annotated[int, Meta(description="the model's window, in tokens")]


class WordsHeard(_Record, frozen=True, kw_only=True, tag="words"):
    """A piece of text, as it comes."""

    text: Annotated[str, Meta(description="the piece")]


class MessageEnded(_Record, frozen=True, kw_only=True, tag="message"):
    """A message of the model is complete; those with calls are not the answer yet."""

    text: Annotated[str, Meta(description="its whole text")]
    calls: Annotated[list[str], Meta(description="the ids of its tool calls")]


class CallBegun(_Record, frozen=True, kw_only=True, tag="call"):
    """A tool is about to run."""

    id: Annotated[str, Meta(description="the call's id")]
    tool: Annotated[str, Meta(description="the tool's name")]
    arguments: Annotated[Any, Meta(description="an object; the model's text if it is no JSON")]


class CallEnded(_Record, frozen=True, kw_only=True, tag="returned"):
    """A call's result is in the log."""

    id: Annotated[str, Meta(description="the call's id")]
    tool: Annotated[str, Meta(description="the tool's name")]
    ok: Annotated[bool, Meta(description="whether it did what it was asked")]
    seconds: Annotated[float, Meta(description="how long it took")]
    tokens: Annotated[int, Meta(description="the whole result, in tokens")]
    text: Annotated[str, Meta(description="its first 2,000 characters")]
    handle: Annotated[str, Meta(description="`foldline show SESSION HANDLE` prints all of it")]


class FoldMade(_Record, frozen=True, kw_only=True, tag="fold"):
    """The oldest part was folded."""

    before: Annotated[int, Meta(description="tokens before")]
    after: Annotated[int, Meta(description="tokens after")]
    why: Annotated[str, Meta(description="forced, full, pays, cold or due")]


class RunNote(_Record, frozen=True, kw_only=True, tag="remark"):
    """A remark for a person."""

    text: Annotated[str, Meta(description="the remark")]


class RunUsage(Struct, frozen=True, kw_only=True):
    """What the turn used, by the provider's counts."""

    calls: Annotated[int, Meta(description="calls of the model")]
    input: Annotated[int, Meta(description="input tokens, cached ones included")]
    cached: Annotated[int, Meta(description="of these, read from the provider's cache")]
    output: Annotated[int, Meta(description="output tokens")]
    dollars: Annotated[float | None, Meta(description="null if no price is known")]


class WindowUse(Struct, frozen=True, kw_only=True):
    """How full the window is now."""

    used: Annotated[int, Meta(description="tokens of the next request")]
    total: Annotated[int, Meta(description="the window")]


class SentAlong(Struct, frozen=True, kw_only=True):
    """What went along with the message."""

    name: Annotated[str, Meta(description="`standard input`, or the file's path")]
    bytes: Annotated[int, Meta(description="its size")]
    whole: Annotated[bool, Meta(description="false if the message was cut to fit the budget")]
    handle: Annotated[str, Meta(description="`foldline show SESSION HANDLE` prints all of it")]
    note: Annotated[str, Meta(description="what was changed: bytes that are not UTF-8")]


class RunError(Struct, frozen=True, kw_only=True):
    """What went wrong."""

    kind: Annotated[str, Meta(description="the error's class, as in the reference of errors")]
    message: Annotated[str, Meta(description="one line, with the way out")]


class RunResult(_Record, frozen=True, kw_only=True, tag="result"):
    """How it ended: the last line, and all that `json` prints."""

    outcome: Annotated[Outcome, Meta(description="see below")]
    code: Annotated[int, Meta(description="the exit code")]
    answer: Annotated[str, Meta(description="the text of the last message, as far as it came")]
    session: Annotated[str, Meta(description="the session's name; empty if none was opened")]
    model: Annotated[str, Meta(description="the model that was asked; empty if none was")]
    seconds: Annotated[float, Meta(description="from start to end")]
    calls: Annotated[list[CallEnded], Meta(description="every tool call, in order")]
    taken: Annotated[list[SentAlong], Meta(description="what went along with the message")]
    usage: Annotated[RunUsage | None, Meta(description="null if no model was asked")]
    window: Annotated[WindowUse | None, Meta(description="null if no session was opened")]
    remarks: Annotated[list[str], Meta(description="what text output says on stderr")]
    error: Annotated[RunError | None, Meta(description="null if there was none")]


Record: TypeAlias = (
    RunBegun | WordsHeard | MessageEnded | CallBegun | CallEnded | FoldMade | RunNote | RunResult
)


def encode_record(record: Record) -> bytes:
    """Encode a record as one line of JSON."""
    return msgspec.json.encode(record) + b"\n"
