# pyright: basic, reportMissingImports=false
"""A capability that plans the requests of pydantic-ai's agents; needs `foldline[pydantic-ai]`.

    agent = Agent(model, capabilities=[FoldlineCapability(store="chats.db")])

The run's messages stay whole: only what goes to the model is planned. A conversation is what
pydantic-ai calls one: it is named by `conversation_id`, which later runs take from the history.
"""

from dataclasses import replace
from itertools import groupby
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

from foldline import RECALL_TOOL, AsyncFollower
from foldline.adapters.extra import name_extra
from foldline.proxy.follow import FollowPlan, NewestPlans, PlannedMessage

with name_extra("pydantic-ai"):
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import RetryModelRequest
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        TextPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import Tool
    from pydantic_ai.toolsets import FunctionToolset

if TYPE_CHECKING:
    from typing import Unpack

    from foldline.proxy.wrap import Options


class FoldlineCapability(AbstractCapability[Any]):
    """Plans every request of an agent to fit its model's window.

    Takes the options of `foldline.wrap`. With `recall` the agent gets the tool by which its model
    reads what was cut. `follower` is the `foldline.AsyncFollower` that plans.
    """

    def __init__(self, *, recall: bool = True, **options: "Unpack[Options]") -> None:
        self.follower = AsyncFollower(**options)
        self._recall = recall
        self._plans, self._smaller = NewestPlans(), NewestPlans()
        """What each run has sent, and what it sends after a refusal."""

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Plan one attempt; pydantic-ai's own history stays as it is."""
        places = _list_places(request_context)
        plan = self._smaller.take(ctx.run_id)
        if plan is None:
            body = _write_request(request_context, places)
            plan = await self.follower.plan(body, session=_name_session(ctx))
        self._plans.put(ctx.run_id, plan)
        if not plan.is_edited:
            return request_context
        given = request_context.messages
        return replace(request_context, messages=_read_messages(given, places, plan))

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Record what the provider counted."""
        plan, usage = self._plans.take(ctx.run_id), response.usage
        if plan is not None:
            await self.follower.record_usage(
                plan,
                input=usage.input_tokens or None,
                output=usage.output_tokens or None,
                cache_read=usage.cache_read_tokens or None,
                cache_write=usage.cache_write_tokens or None,
            )
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Try once more with a smaller request if the provider refused one as too long."""
        plan = self._plans.take(ctx.run_id)
        if plan is None or request_context.attempt > 1:
            raise error
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        try:
            smaller = await self.follower.heal(plan, cause)
        except Exception:  # noqa: BLE001 - it is about something else: the framework's own is raised
            raise error from cause
        self._smaller.put(ctx.run_id, smaller)
        raise RetryModelRequest from error

    def get_toolset(self) -> FunctionToolset[Any] | None:
        """Offer the tool `recall`."""
        if not self._recall:
            return None

        async def recall(ctx: RunContext[Any], **arguments: Any) -> str:
            return await self.follower.answer_recall(arguments, session=_name_session(ctx))

        tool = Tool.from_schema(
            recall,
            name=RECALL_TOOL["name"],
            description=RECALL_TOOL["description"],
            json_schema=RECALL_TOOL["parameters"],
            takes_ctx=True,
            sequential=True,
        )
        return FunctionToolset([tool])


class _Place(NamedTuple):
    """Where one message of a request comes from: a response, a part of a request, or neither."""

    message: int | None
    part: int | None
    written: dict[str, Any]


def _name_session(ctx: RunContext[Any]) -> str:
    return str(ctx.conversation_id or ctx.run_id)


def _write_request(context: ModelRequestContext, places: list[_Place]) -> dict[str, Any]:
    """Write a request as OpenAI's chat has it."""
    parameters = context.model_request_parameters
    body = {"model": context.model.model_name, "messages": [one.written for one in places]}
    if tools := [*parameters.function_tools, *parameters.output_tools]:
        body["tools"] = [
            _write_function(one.name, one.description or "", one.parameters_json_schema)
            for one in tools
        ]
    most = (context.model_settings or {}).get("max_tokens")
    return {**body, "max_tokens": most} if most else body


def _write_function(name: str, description: str, parameters: Any) -> dict[str, Any]:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _list_places(context: ModelRequestContext) -> list[_Place]:
    """List the messages of a request, the instructions first."""
    told = context.model_request_parameters.instruction_parts or ()
    words = "\n\n".join(part.content for part in told)
    places = [_Place(None, None, {"role": "system", "content": words})] if words else []
    for at, message in enumerate(context.messages):
        if isinstance(message, ModelResponse):
            places.append(_Place(at, None, _write_response(message)))
        else:
            parts = enumerate(message.parts)
            places += [_Place(at, n, _write_part(part)) for n, part in parts]
    return places


def _write_response(response: ModelResponse) -> dict[str, Any]:
    written: dict[str, Any] = {"role": "assistant", "content": response.text}
    for call in response.tool_calls:
        function = {"name": call.tool_name, "arguments": call.args_as_json_str()}
        made = {"id": call.tool_call_id, "type": "function", "function": function}
        written.setdefault("tool_calls", []).append(made)
    return written


def _write_part(part: Any) -> dict[str, Any]:
    match part.part_kind:
        case "user-prompt":
            return {"role": "user", "content": _write_content(part.content)}
        case "tool-return" | "retry-prompt" | "retry-feedback":
            is_return = part.part_kind == "tool-return"
            text = part.model_response_str() if is_return else part.model_response()
            if is_return or getattr(part, "tool_name", None):
                return {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}
            return {"role": "user", "content": text}
        case kind:  # what it says, if anything, is an instruction
            text = getattr(part, "content", None)
            return {"role": "system", "content": text if isinstance(text, str) else f"[{kind}]"}


def _write_content(content: Any) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else [_write_block(one) for one in content]


def _write_block(one: Any) -> dict[str, Any]:
    text = one if isinstance(one, str) else getattr(one, "content", None)
    address = getattr(one, "url", None) or getattr(one, "data_uri", None)
    if not isinstance(text, str) and address and one.kind in ("image-url", "binary"):
        return {"type": "image_url", "image_url": {"url": address}}
    return {"type": "text", "text": text if isinstance(text, str) else f"[{type(one).__name__}]"}


def _read_messages(given: list[Any], places: list[_Place], plan: FollowPlan) -> list[ModelMessage]:
    """Build what is sent: pydantic-ai's own messages wherever nothing was edited."""

    def find_message(shown: PlannedMessage) -> int | None:
        return None if shown.place is None else places[shown.place].message

    messages: list[ModelMessage] = []
    for at, run in groupby(plan.shown, key=find_message):
        if at is None:  # the instructions are sent by pydantic-ai itself
            messages += [_read_written(one.message) for one in run if one.place is None]
            continue
        own, parts = given[at], list[Any]()
        for shown in run if isinstance(own, ModelRequest) else ():
            part = own.parts[places[shown.place or 0].part or 0]
            parts.append(part if shown.same else replace(part, content=shown.message["content"]))
        is_whole = all(map(is_, parts, own.parts)) and len(parts) in (0, len(own.parts))
        messages.append(own if is_whole else replace(own, parts=parts))
    return messages


def _read_written(written: dict[str, Any]) -> ModelMessage:
    """Read a message that Foldline wrote: a handoff, or the model's word that it has read it."""
    words = str(written.get("content") or "")
    is_said = written["role"] == "assistant"
    return ModelResponse([TextPart(words)]) if is_said else ModelRequest([UserPromptPart(words)])
