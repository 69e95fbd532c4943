"""A scripted model: the port without HTTP, for tests of whatever asks a model.

    model = ScriptedModel(["first answer", Fault("rate", "slow down"), "second answer"])
    await model.say(request)        # and model.requests is what was asked

Knows what a script may say: words, an OpenAI message, trouble, a fault, or an error to raise. It
answers in the dialect of its name. For the same over a real port there is `provider.Provider`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import TypeAlias, cast

import msgspec

from foldline.core.tokens import count_tokens
from foldline.dialects import base
from foldline.dialects.provider_errors import Fault
from foldline.errors import ModelFailed
from foldline.models.port import Heard, Json
from foldline.testing.provider import HALF, Answer, Trouble, overflow, write_trouble, written

Line: TypeAlias = "Answer | Fault | Exception"
"""One answer of a script, or what is raised instead."""
Lines: TypeAlias = "Iterable[Line] | Callable[[Json], Line]"


class ScriptedModel:
    """A model that answers by a script: words, an OpenAI message, `Trouble`, an error.

    The script is a list, or a function of the request. It answers in the dialect of its name.
    """

    def __init__(
        self,
        script: Lines = ("ok",),
        *,
        name: str = "scripted",
        window: int | None = None,
        delay: float = 0.0,
    ) -> None:
        self._name = name
        self._dialect = base.choose_model_dialect(name)
        self._answers: Iterator[Line] = iter(()) if callable(script) else iter(script)
        self._script = script if callable(script) else None
        self.window = window
        """What a request may take, in tokens of our own estimate; more is refused."""
        self.delay = delay
        """Seconds before each answer."""
        self.requests: list[Json] = []
        """What was asked, in order, also what was refused."""
        self.closed = False

    @property
    def name(self) -> str:
        """As the catalogue knows it."""
        return self._name

    async def say(self, request: Json, *, heard: Heard | None = None) -> Json:
        """The next answer of the script."""
        self.requests.append(deepcopy(request))
        tokens = count_tokens(msgspec.json.encode(request).decode())
        if self.window is not None and tokens > self.window:
            words = overflow(tokens, self.window)
            raise self._failed(Fault("tokens", words, limit=self.window, count=tokens))
        said = self._next(request)
        await asyncio.sleep(self.delay)
        match said:
            case Fault():
                raise self._failed(said)
            case Exception():
                raise said
            case Trouble():
                message = await self._troubled(said, request, heard)
            case str():
                message: Json = {"content": said}
            case _:
                message = said
        if heard is not None and (words := message.get("content") or message.get("refusal")):
            for piece in _pieces(str(words)):
                heard(piece)
                await asyncio.sleep(0)
        return written(self._dialect.name, {"model": self._name, **request}, message, tokens)[0]

    async def close(self) -> None:
        """Note that it was let go of."""
        self.closed = True

    def _next(self, request: Json) -> Line:
        if self._script is not None:
            return self._script(request)
        try:
            return next(self._answers)
        except StopIteration:
            raise AssertionError("the script has no answer left; give it one more") from None

    async def _troubled(self, trouble: Trouble, request: Json, heard: Heard | None) -> Json:
        match trouble:
            case Trouble.TIMEOUT:
                await asyncio.Event().wait()
            case Trouble.RATE:
                raise self._failed(Fault("rate", "Rate limit reached", retry_after=0.05))
            case Trouble.ERROR:
                raise self._failed(Fault("overloaded", "The server had an error"))
            case Trouble.CUT:
                for piece in _pieces(HALF[: len(HALF) // 2]) if heard else ():
                    cast("Heard", heard)(piece)
                words = "the stream ended before the answer did"
                raise self._failed(Fault("overloaded", words), begun=heard is not None)
            case Trouble.STALE:
                await asyncio.sleep(1.0)
            case _:
                pass
        return write_trouble(trouble, request)

    def _failed(self, fault: Fault, *, begun: bool = False) -> ModelFailed:
        return ModelFailed(self._name, fault, begun=begun)


def _pieces(words: str) -> Iterator[str]:
    return (words[at : at + 5] for at in range(0, len(words), 5))
