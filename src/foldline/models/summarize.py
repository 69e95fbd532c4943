"""Asks models for the narrative of a fold and verifies their answers.

    prefix    one question after the conversation itself, which the provider has in its cache
    pieces    fenced events in as many questions as the model's own window needs

The cheaper way is chosen. The caller gives the events and a place to keep finished pieces, and
always gets an outcome: nothing that a model says is an error here.
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
from foldline.core.edits.fold.ask import TEMPLATE, render_fenced_event
from foldline.core.edits.fold.verify import (
    Accepted,
    Rejected,
    Repair,
    Verdict,
    choose_better_answer,
    verify_answer,
)
from foldline.core.log import Logged, ModelSaid, UsageReported
from foldline.core.parts import Line, calls_of, spoken_text_of
from foldline.core.prices import Prices
from foldline.core.tokens import count_tokens
from foldline.dialects import base
from foldline.dialects.base import Dialect
from foldline.errors import BadInput, FoldlineError, ModelFailed, Spent
from foldline.models.catalog import resolve_model
from foldline.models.port import Json, Model
from foldline.models.redact import redact_event, redact_text
from foldline.models.retries import PATIENT, Patience, call_with_retries

Outcome: TypeAlias = Literal["told", "rejected", "failed", "skipped"]
Stands: TypeAlias = Callable[[], bool]
"""Whether the events are still shown as they were when the narrative was asked for."""
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of answered questions and of all questions."""
NOTHING = UsageReported()
_STREAMED = ("stream", "stream_options")
# Parameters of a turn that would spoil the answer to another question.
_OWN = {
    *("tool_choice", "stop", "stop_sequences", "thinking"),
    *("response_format", "output_config", "n"),
}
_THINKS = re.compile(r"(?:^|/)(?:gpt-[5-9]|o\d|gemini-(?:2\.5|[3-9]))")
_THOUGHT = 4_000
_LONGER = 1.5  # an answer may be this many times longer than asked for
_LONGEST_REASON = 200  # characters
_WINDOW = 128_000  # assumed for an unknown model


class Piece(msgspec.Struct, frozen=True):
    """The verified lines of one piece, and the model they are from."""

    lines: tuple[Line, ...]
    by: str
    left_out: tuple[str, ...] = ()
    """Why each of the answer's other lines is not among them."""


class Kept(Protocol):
    """Keeps verified pieces until the others are done."""

    async def get(self, key: str) -> Piece | None:
        """Return a finished piece, if there is one."""
        ...

    async def put(self, key: str, piece: Piece) -> None:
        """Keep a piece."""
        ...


class Purse(Protocol):
    """Accounts for calls; raises `Spent` before a call that would pass a cap."""

    async def before(self, model: str, tokens_in: int, tokens_out: int) -> Any:
        """Reserve a call of that size; return what to settle it with."""
        ...

    async def after(self, held: Any, used: UsageReported | None) -> None:
        """Settle a call with its usage; None if unknown."""
        ...

    async def release(self, held: Any) -> None:
        """Release a call that was refused and cost nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Tellers:
    """The models to ask, in order, and how patiently."""

    models: tuple[Model, ...]
    """The first is asked; the next if it fails."""
    patience: Patience = PATIENT
    seconds: float = 120.0
    """For the whole narrative; after that, the fold is made without it."""
    template: str = TEMPLATE
    """The question, or a file's address: `file:///…`, `file://~/…`.

    `%s` or `{conversation}` is replaced by the conversation, which else follows the question.
    `{words}`, `{focus}`, `{sections}`, `{form}` and `{where}` are filled in."""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Sent with every question, besides its text and its limit."""
    window: int | None = None
    """The models' window, if their names are unknown."""


@dataclass(frozen=True, slots=True)
class SentPrefix:
    """The part of the last request that the narrative covers, and what it would cost."""

    request: Json
    """With all its parameters; the question is added to its messages."""
    model: str
    tokens: int
    window: int
    prices: Prices
    warm: bool


@dataclass(frozen=True, slots=True)
class Narrative:
    """The outcome of asking for a narrative."""

    outcome: Outcome
    reason: str = ""
    """The reason if there is none; "" otherwise."""
    prepared: fold.Prepared | None = None
    form: Literal["", "prefix", "pieces"] = ""
    asked: int = 0
    """How many questions were asked."""
    reused: int = 0
    """How many pieces were already there."""
    used: UsageReported = NOTHING
    """The usage of all calls, as far as the provider reports it."""
    fault: str = ""
    """What failed, in a word: a kind of provider's error, or an exception's class.

    Unlike `reason` it quotes no message, so it may be logged."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Why each line of the answers that was left out is not proven."""
        return self.prepared.left_out if self.prepared else ()


async def request_narrative(  # noqa: PLR0913 - a narrative's sources, and its observers
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
    """Ask for a narrative; returns an outcome in every case, raises only if cancelled."""
    asked = replace(ask, focus=redact_text(ask.focus).text)
    telling = _Telling(asked, events, tellers, kept, purse, progress, stands)
    try:
        async with asyncio.timeout(tellers.seconds):
            return await telling.ask_for_narrative(prefix)
    except TimeoutError:
        words = f"not done after {tellers.seconds:g} s"
        return replace(telling.build_narrative("failed", words), fault="timeout")
    except Spent as fault:
        return telling.build_narrative("skipped", str(fault))
    except _Moved:
        return telling.build_narrative("skipped", "the session was edited meanwhile")
    except Exception as fault:  # noqa: BLE001 - models and progress callbacks may be the user's own
        words = str(fault) if isinstance(fault, FoldlineError) else repr(fault)
        kind = fault.fault.kind if isinstance(fault, ModelFailed) else type(fault).__name__
        return replace(telling.build_narrative("failed", words), fault=kind)


class _Moved(Exception):  # noqa: N818
    """The events were edited while the narrative was being made."""


@dataclass(slots=True)
class _Telling:
    """A narrative in the making."""

    ask: fold.Ask
    events: Sequence[Logged]
    tellers: Tellers
    kept: Kept | None
    purse: Purse | None
    progress: Progress | None
    stands: Stands | None
    form: Literal["", "prefix", "pieces"] = ""
    bound: int = 0
    """Maximum tokens of an answer."""
    asked: int = 0
    reused: int = 0
    used: UsageReported = NOTHING

    def build_narrative(
        self, outcome: Outcome, reason: str, prepared: fold.Prepared | None = None
    ) -> Narrative:
        """Build the outcome, with the usage so far."""
        reason = redact_text(reason).text  # a provider may quote a key
        return Narrative(outcome, reason, prepared, self.form, self.asked, self.reused, self.used)

    async def ask_for_narrative(self, prefix: SentPrefix | None) -> Narrative:
        """Ask in the cheaper way, and by pieces if the prefix proves too large."""
        if not self.tellers.models:
            return self.build_narrative("skipped", "there is nobody to ask")
        template = await asyncio.to_thread(_read_template, self.tellers.template)
        self.ask = replace(self.ask, template=template)
        question = await asyncio.to_thread(self._find_prefix_prompt, prefix) if prefix else None
        if prefix is not None and question is not None:
            self.form, self.bound = "prefix", int(question.tokens * _LONGER)
            try:
                verdict, by = await self._ask_and_verify(question, prefix)
            except ModelFailed as failed:
                if failed.fault.kind not in ("tokens", "bytes"):
                    raise
            else:
                return self._apply_verdict(verdict, by)
        self.form = "pieces"
        # Redact before cutting, so that no part of a key is left; in a thread, because it is slow.
        self.events = await asyncio.to_thread(lambda: [*map(redact_event, self.events)])
        window = self.tellers.window or resolve_model(self.tellers.models[0].name).window or _WINDOW
        self.bound = min(int(self.ask.tokens * _LONGER), window // 4)
        prompts = await asyncio.to_thread(
            fold.build_prompts, self.ask, self.events, window=window, reserve=self.bound
        )
        if not prompts:
            return self.build_narrative(
                "skipped", f"a window of {window:,} tokens cannot hold the question"
            )
        lines: list[Line] = []
        left_out: list[str] = []
        by = ""
        for at, prompt in enumerate(prompts):
            verdict, name = await self._ask_piece(prompt)
            if isinstance(verdict, Accepted):
                lines += verdict.lines
                left_out += verdict.left_out
                by = name
            elif not lines:  # a model that cannot do it is not asked for every piece
                return self._apply_verdict(verdict, name)
            else:
                left_out += verdict.faults
            if self.progress:
                self.progress(at + 1, len(prompts))
        return self._apply_verdict(Accepted(tuple(lines), tuple(left_out)), by)

    def _apply_verdict(self, verdict: Accepted | Rejected, by: str) -> Narrative:
        if isinstance(verdict, Rejected):
            return self.build_narrative("rejected", "; ".join([*dict.fromkeys(verdict.faults)][:3]))
        used = None if self.used == NOTHING else self.used
        left_out = tuple(one[:_LONGEST_REASON] for one in verdict.left_out)
        prepared = fold.Prepared(self.ask.base, self.ask.range, verdict.lines, by, used, left_out)
        return self.build_narrative("told", "", prepared)

    def _find_prefix_prompt(self, prefix: SentPrefix) -> fold.Prompt | None:
        """Return the question to ask after the conversation, if allowed and cheaper."""
        if self.tellers.models[0].name != prefix.model or _OWN & {*prefix.request}:
            return None
        most = prefix.window - prefix.tokens - int(self.ask.tokens * _LONGER)
        question = fold.build_suffix_prompt(self.ask, self.events, most=most)
        if question is None:
            return None
        whole = f"{msgspec.json.encode(prefix.request).decode()}\n{question.text}"
        if redact_text(whole).found:
            return None  # secrets: ask by pieces, which are redacted
        size, p = count_tokens(question.text), prefix.prices
        first = prefix.tokens * (p.read if prefix.warm else p.write) + size * p.input
        pieces = (
            sum(count_tokens(render_fenced_event(seq, event)) for seq, event in self.events) + size
        )
        return question if first < pieces * p.input else None

    async def _ask_piece(self, prompt: fold.Prompt) -> tuple[Accepted | Rejected, str]:
        """Return the verdict on one piece, asked now or kept from before."""
        key = hashlib.sha256(prompt.text.encode()).hexdigest()[:32]
        before = await self.kept.get(key) if self.kept else None
        if before is not None:
            self.reused += 1
            return Accepted(before.lines, before.left_out), before.by
        verdict, by = await self._ask_and_verify(prompt)
        if self.kept and isinstance(verdict, Accepted):
            await self.kept.put(key, Piece(verdict.lines, by, verdict.left_out))
        return verdict, by

    async def _ask_and_verify(
        self, prompt: fold.Prompt, prefix: SentPrefix | None = None
    ) -> tuple[Accepted | Rejected, str]:
        """Return the verdict on an answer, after at most one repair, and its model."""
        said, by = await self._ask_models(prompt, prefix)
        verdict = await asyncio.to_thread(self._verify_answer, prompt, said, again=False)
        if not isinstance(verdict, Repair):
            return verdict, by
        said, other = await self._ask_models(verdict.prompt, prefix)
        second = await asyncio.to_thread(self._verify_answer, verdict.prompt, said, again=True)
        better = choose_better_answer(verdict, cast("Accepted | Rejected", second))
        return better, by if better is verdict.proven else other

    def _verify_answer(self, prompt: fold.Prompt, said: ModelSaid, *, again: bool) -> Verdict:
        """Verify an answer; call it in a thread, because a long span takes a while."""
        return verify_answer(prompt, _extract_text(said), self.events, stop=said.stop, again=again)

    async def _ask_models(
        self, prompt: fold.Prompt, prefix: SentPrefix | None
    ) -> tuple[ModelSaid, str]:
        """Return the first answer of the models in order, and the name of its model."""
        *others, last = self.tellers.models[: 1 if prefix else None]
        for model in others:
            try:
                return await self._call_model(model, prompt, prefix), model.name
            except ModelFailed:
                continue
        return await self._call_model(last, prompt, prefix), last.name

    async def _call_model(
        self, model: Model, prompt: fold.Prompt, prefix: SentPrefix | None
    ) -> ModelSaid:
        dialect = base.find_client_dialect(model)
        most = min(int(prompt.tokens * _LONGER), self.bound) + estimate_thinking_tokens(model.name)
        request = {**_build_request(prompt, prefix, dialect), **self.tellers.parameters}
        request = dialect.replace_bounds(request, most)
        request.setdefault("model", model.name)
        if self.stands is not None and not self.stands():
            raise _Moved
        size = count_tokens(prompt.text) + (prefix.tokens if prefix else 0)
        used: UsageReported | None = None
        refused = False
        held = self.purse and await self.purse.before(model.name, size, most)
        try:
            self.asked += 1
            body = await call_with_retries(model, request, patience=self._patience)
            said, used = _parse_response(body, dialect)
            self.used = _sum_usage(self.used, used)
        except ModelFailed as fault:
            refused = not fault.silent
            raise
        finally:
            if self.purse:
                await (self.purse.release(held) if refused else self.purse.after(held, used))
        return said

    @property
    def _patience(self) -> Patience:
        """Share the time, so that a model that never answers leaves some for the next."""
        each = self.tellers.seconds / len(self.tellers.models)
        own = self.tellers.patience
        return replace(own, call=min(own.call, each), whole=min(own.whole, each))


def _build_request(prompt: fold.Prompt, prefix: SentPrefix | None, dialect: Dialect) -> Json:
    """Build a request, not streamed, of the question alone or after the last request."""
    question = dialect.write_question(prompt.text)
    if prefix is None:
        return {dialect.messages: [question]}
    kept = {key: value for key, value in prefix.request.items() if key not in _STREAMED}
    return {**kept, dialect.messages: [*prefix.request[dialect.messages], question]}


def _read_template(template: str) -> str:
    if not template.startswith("file://"):
        return template
    path = Path(url2pathname(template.removeprefix("file://")))
    try:
        path = path.expanduser()
        return path.read_text(encoding="utf-8")
    except (OSError, RuntimeError) as fault:  # also a home of nobody
        raise BadInput(f"the template {path} cannot be read: {fault}") from fault


def estimate_thinking_tokens(name: str) -> int:
    """Return the tokens to add to the limit for a model that thinks before it answers."""
    return _THOUGHT if _THINKS.search(name.lower()) else 0


def _extract_text(said: ModelSaid) -> str:
    """Return the answer's text without secrets; "" if it makes a call instead."""
    return "" if calls_of(said.parts) else redact_text(spoken_text_of(said.parts)).text


def _parse_response(body: Json, dialect: Dialect) -> tuple[ModelSaid, UsageReported]:
    events = base.parse_any_message(body, own=dialect, saw=None, asked=None)
    said = next((one for one in events if isinstance(one, ModelSaid)), ModelSaid(()))
    used = next((one for one in events if isinstance(one, UsageReported)), UsageReported())
    return said, used


def _sum_usage(one: UsageReported, other: UsageReported) -> UsageReported:
    counts = ("input", "cache_read", "cache_write", "output", "reasoning")
    both = {name: (getattr(one, name), getattr(other, name)) for name in counts}
    sums = {name: sum(filter(None, two)) for name, two in both.items() if any(two)}
    return msgspec.structs.replace(one, **sums)
