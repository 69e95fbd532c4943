"""A narrative asked of a model, and proven before anybody sees it.

    prefix    one question behind the conversation itself, which the provider has in its cache
    pieces    fenced events in as many questions as the teller's own window needs

Knows which of the two is cheaper, what to ask again, and when to stop. Refuses to know sessions and
stores: whoever wants a narrative gives the events and a place to keep finished pieces, and gets an
outcome in any case. Nothing that a model says is an error here, it is an outcome (R-31).
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast
from urllib.request import url2pathname

import msgspec

from foldline.core.edits import fold
from foldline.core.edits.fold.ask import TEMPLATE, fence
from foldline.core.edits.fold.verify import Accepted, Rejected, Repair, Verdict, judge
from foldline.core.log import Logged, ModelSaid, UsageReported
from foldline.core.parts import Line, calls_of, spoken
from foldline.core.prices import Prices
from foldline.core.tokens import count
from foldline.dialects import base
from foldline.dialects.base import Dialect
from foldline.errors import BadInput, FoldlineError, ModelFailed, Spent
from foldline.models.overrides import believed
from foldline.models.port import Json, Model
from foldline.models.redact import redact
from foldline.models.redact_events import struck
from foldline.models.retries import PATIENT, Patience, call

Outcome: TypeAlias = Literal["told", "rejected", "failed", "skipped"]
Stands: TypeAlias = Callable[[], bool]
"""Whether what is told of is still shown so."""
Progress: TypeAlias = Callable[[int, int], None]
"""Told how many of the questions are answered, and of how many."""
NOTHING = UsageReported()
_STREAMED = ("stream", "stream_options")
# Parameters of a turn that would spoil the answer to another question.
_OWN = {
    "tool_choice",
    "stop",
    "stop_sequences",
    "thinking",
    "response_format",
    "output_config",
    "n",
}
_THINKS = re.compile(r"(?:^|/)(?:gpt-[5-9]|o\d)")
_THOUGHT = 4_000
_LONGER = 1.5  # times what a narrative may take: so much is still believed
_WINDOW = 128_000  # of a teller that nobody knows


class Piece(msgspec.Struct, frozen=True):
    """The proven lines of one piece, and whose they are."""

    lines: tuple[Line, ...]
    by: str


class Kept(Protocol):
    """Where proven pieces wait for the others: R-51."""

    async def get(self, key: str) -> Piece | None:
        """A piece that was told before."""
        ...

    async def put(self, key: str, piece: Piece) -> None:
        """Keep a piece."""
        ...


class Purse(Protocol):
    """Who pays: raises `Spent` before a call that would pass a cap."""

    async def before(self, model: str, tokens_in: int, tokens_out: int) -> Any:
        """Whether a call of that size may be made; what to settle it with."""
        ...

    async def after(self, held: Any, used: UsageReported | None) -> None:
        """What it really took; None where nobody says."""
        ...

    async def release(self, held: Any) -> None:
        """It was refused: nothing was taken."""
        ...


@dataclass(frozen=True, slots=True)
class Tellers:
    """Who is asked, in order, and how patiently."""

    models: tuple[Model, ...]
    """The first is asked; the next where it fails."""
    patience: Patience = PATIENT
    seconds: float = 120.0
    """For the whole narrative; what is not told by then is folded without (R-51)."""
    template: str = TEMPLATE
    """The question, or a file's address: `file:///…`; what stands in braces is put in (A-34)."""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What every question is asked with, besides its words and their bound."""
    window: int | None = None
    """The tellers' own, where nobody knows their names."""


@dataclass(frozen=True, slots=True)
class SentPrefix:
    """The request that was sent last, as far as it is to be told of, and what it would cost."""

    request: Json
    """With all its parameters; the question is added to its messages."""
    model: str
    tokens: int
    window: int
    prices: Prices
    warm: bool


@dataclass(frozen=True, slots=True)
class Narrative:
    """What became of a wish for a narrative."""

    outcome: Outcome
    reason: str = ""
    prepared: fold.Prepared | None = None
    form: Literal["", "prefix", "pieces"] = ""
    asked: int = 0
    """How many questions were asked."""
    reused: int = 0
    """How many pieces had been told before."""
    used: UsageReported = NOTHING
    """What all of it took, as far as the provider says."""


async def tell(  # noqa: PLR0913 - what a narrative is made of, and who is told of it
    ask: fold.Ask,
    events: Sequence[Logged],
    tellers: Tellers,
    *,
    prefix: SentPrefix | None = None,
    kept: Kept | None = None,
    purse: Purse | None = None,
    progress: Progress | None = None,
    stands: Stands | None = None,
) -> Narrative:
    """Ask for a narrative; always an outcome, never an error but a cancellation."""
    asked = replace(ask, focus=redact(ask.focus).text)
    telling = _Telling(asked, events, tellers, kept, purse, progress, stands)
    try:
        async with asyncio.timeout(tellers.seconds):
            return await telling.told(prefix)
    except TimeoutError:
        return telling.ended("failed", f"not done after {tellers.seconds:g} s")
    except Spent as fault:
        return telling.ended("skipped", str(fault))
    except _Moved:
        return telling.ended("skipped", "the session was edited meanwhile")
    except Exception as fault:  # noqa: BLE001 - a model, or a watcher of progress, of a user's own
        words = str(fault) if isinstance(fault, FoldlineError) else repr(fault)
        return telling.ended("failed", words)


class _Moved(Exception):  # noqa: N818
    """What is told of is no longer shown so."""


@dataclass(slots=True)
class _Telling:
    """One narrative under way."""

    ask: fold.Ask
    events: Sequence[Logged]
    tellers: Tellers
    kept: Kept | None
    purse: Purse | None
    progress: Progress | None
    stands: Stands | None
    form: Literal["", "prefix", "pieces"] = ""
    bound: int = 0
    """The most that an answer may take."""
    asked: int = 0
    reused: int = 0
    used: UsageReported = NOTHING

    def ended(self, outcome: Outcome, reason: str, told: fold.Prepared | None = None) -> Narrative:
        """How it ended, with what it took."""
        reason = redact(reason).text  # a provider may quote a key
        return Narrative(outcome, reason, told, self.form, self.asked, self.reused, self.used)

    async def told(self, prefix: SentPrefix | None) -> Narrative:
        """By the cheaper way; by pieces, too, where the other proves too large."""
        if not self.tellers.models:
            return self.ended("skipped", "there is nobody to ask")
        template = await asyncio.to_thread(_read_template, self.tellers.template)
        self.ask = replace(self.ask, template=template)
        question = await asyncio.to_thread(self._behind, prefix) if prefix else None
        if prefix is not None and question is not None:
            self.form, self.bound = "prefix", int(question.tokens * _LONGER)
            try:
                verdict, by = await self._settled(question, prefix)
            except ModelFailed as failed:
                if failed.fault.kind not in ("tokens", "bytes"):
                    raise
            else:
                return self._ended(verdict, by)
        self.form = "pieces"
        # struck before anything is cut, so that no piece of a key is left; and in a thread.
        self.events = await asyncio.to_thread(lambda: [*map(struck, self.events)])
        window = self.tellers.window or believed(self.tellers.models[0].name).window or _WINDOW
        self.bound = min(int(self.ask.tokens * _LONGER), window // 4)
        prompts = await asyncio.to_thread(
            fold.prompts, self.ask, self.events, window=window, reserve=self.bound
        )
        if not prompts:
            return self.ended("skipped", f"a window of {window:,} tokens cannot hold the question")
        lines: list[Line] = []
        by = ""
        for at, prompt in enumerate(prompts):
            verdict, by = await self._piece(prompt)
            if isinstance(verdict, Rejected):
                return self._ended(verdict, by)
            lines += verdict.lines
            if self.progress:
                self.progress(at + 1, len(prompts))
        return self._ended(Accepted(tuple(lines)), by)

    def _ended(self, verdict: Accepted | Rejected, by: str) -> Narrative:
        if isinstance(verdict, Rejected):
            return self.ended("rejected", "; ".join(verdict.faults[:3]))
        return self.ended(
            "told", "", fold.Prepared(self.ask.base, self.ask.range, verdict.lines, by)
        )

    def _behind(self, prefix: SentPrefix) -> fold.Prompt | None:
        """The question behind the conversation, where that may be asked and is the cheaper way."""
        if self.tellers.models[0].name != prefix.model or _OWN & {*prefix.request}:
            return None
        most = prefix.window - prefix.tokens - int(self.ask.tokens * _LONGER)
        question = fold.behind(self.ask, self.events, most=most)
        if question is None:
            return None
        whole = f"{msgspec.json.encode(prefix.request).decode()}\n{question.text}"
        if redact(whole).found:
            return None  # what is secret goes to a teller only in pieces, where it is struck
        size, p = count(question.text), prefix.prices
        first = prefix.tokens * (p.read if prefix.warm else p.write) + size * p.input
        pieces = sum(count(fence(seq, event)) for seq, event in self.events) + size
        return question if first < pieces * p.input else None

    async def _piece(self, prompt: fold.Prompt) -> tuple[Accepted | Rejected, str]:
        """What one piece comes to, told now or before."""
        key = hashlib.sha256(prompt.text.encode()).hexdigest()[:32]
        before = await self.kept.get(key) if self.kept else None
        if before is not None:
            self.reused += 1
            return Accepted(before.lines), before.by
        verdict, by = await self._settled(prompt)
        if self.kept and isinstance(verdict, Accepted):
            await self.kept.put(key, Piece(verdict.lines, by))
        return verdict, by

    async def _settled(
        self, prompt: fold.Prompt, prefix: SentPrefix | None = None
    ) -> tuple[Accepted | Rejected, str]:
        """What an answer comes to, after one repair; and whose it was."""
        said, by = await self._answer(prompt, prefix)
        verdict = await asyncio.to_thread(self._judged, prompt, said, again=False)
        if isinstance(verdict, Repair):
            prompt = verdict.prompt
            said, by = await self._answer(prompt, prefix)
            verdict = await asyncio.to_thread(self._judged, prompt, said, again=True)
        return cast("Accepted | Rejected", verdict), by

    def _judged(self, prompt: fold.Prompt, said: ModelSaid, *, again: bool) -> Verdict:
        """In a thread: to hold an answer against a long span takes a while (R-44)."""
        return judge(prompt, _words(said), self.events, stop=said.stop, again=again)

    async def _answer(
        self, prompt: fold.Prompt, prefix: SentPrefix | None
    ) -> tuple[ModelSaid, str]:
        """What the first teller says that answers, and which that was: R-52."""
        *others, last = self.tellers.models[: 1 if prefix else None]
        for model in others:
            try:
                return await self._call(model, prompt, prefix), model.name
            except ModelFailed:
                continue
        return await self._call(last, prompt, prefix), last.name

    async def _call(
        self, model: Model, prompt: fold.Prompt, prefix: SentPrefix | None
    ) -> ModelSaid:
        dialect = base.speaking(model.name)
        request = {**_request(prompt, prefix), **self.tellers.parameters}
        request = {key: value for key, value in request.items() if key not in dialect.bounds}
        most = min(int(prompt.tokens * _LONGER), self.bound) + _thought(model.name)
        request[dialect.bounds[0]] = most
        request.setdefault("model", model.name)
        if self.stands is not None and not self.stands():
            raise _Moved
        size = count(prompt.text) + (prefix.tokens if prefix else 0)
        used: UsageReported | None = None
        refused = False
        held = self.purse and await self.purse.before(model.name, size, most)
        try:
            self.asked += 1
            body = await call(model, request, patience=self._patience)
            said, used = _read(body, dialect)
            self.used = _sum(self.used, used)
        except ModelFailed as fault:
            refused = not fault.silent
            raise
        finally:
            if self.purse:
                await (self.purse.release(held) if refused else self.purse.after(held, used))
        return said

    @property
    def _patience(self) -> Patience:
        """So that one who never answers leaves time for the next: R-52."""
        each = self.tellers.seconds / len(self.tellers.models)
        own = self.tellers.patience
        return replace(own, call=min(own.call, each), whole=min(own.whole, each))


def _request(prompt: fold.Prompt, prefix: SentPrefix | None) -> Json:
    """A question alone, or behind the request that was sent last; whole, not as a stream."""
    question = {"role": "user", "content": prompt.text}
    if prefix is None:
        return {"messages": [question]}
    kept = {key: value for key, value in prefix.request.items() if key not in _STREAMED}
    return {**kept, "messages": [*prefix.request["messages"], question]}


def _read_template(given: str) -> str:
    if not given.startswith("file://"):
        return given
    path = Path(url2pathname(given.removeprefix("file://")))
    try:
        return path.read_text(encoding="utf-8")
    except OSError as fault:
        raise BadInput(f"the template {path} cannot be read: {fault}") from fault


def _thought(name: str) -> int:
    """What a model that thinks before it answers may take for that, out of the same bound."""
    return _THOUGHT if _THINKS.search(name.lower()) else 0


def _words(said: ModelSaid) -> str:
    """What was told, without secrets; a call instead of words is nothing."""
    return "" if calls_of(said.parts) else redact(spoken(said.parts)).text


def _read(body: Json, dialect: Dialect) -> tuple[ModelSaid, UsageReported]:
    """An answer's words, and what it took."""
    events = base.events(body, own=dialect, saw=None, asked=None)
    said = next((one for one in events if isinstance(one, ModelSaid)), ModelSaid(()))
    used = next((one for one in events if isinstance(one, UsageReported)), UsageReported())
    return said, used


def _sum(one: UsageReported, other: UsageReported) -> UsageReported:
    counts = ("input", "cache_read", "cache_write", "output", "reasoning")
    both = {name: (getattr(one, name), getattr(other, name)) for name in counts}
    told = {name: sum(filter(None, two)) for name, two in both.items() if any(two)}
    return msgspec.structs.replace(one, **told)
