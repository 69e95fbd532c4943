# pyright: basic, reportMissingImports=false
"""A capability that plans the requests of pydantic-ai's agents; needs `foldline[pydantic-ai]`.

    agent = Agent(model, capabilities=[FoldlineCapability(store="chats.db")])

The run's messages stay whole: only what goes to the model is planned. A conversation is what
pydantic-ai calls one: it is named by `conversation_id`, which later runs take from the history.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foldline import RECALL_TOOL, AsyncFollower
from foldline.adapters.extra import name_extra
from foldline.proxy.follow import NewestPlans

with name_extra("pydantic-ai"):
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import RetryModelRequest
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import Tool
    from pydantic_ai.toolsets import FunctionToolset

    from foldline.adapters.pydantic_ai_messages import list_pieces, read_messages, write_request

if TYPE_CHECKING:
    from typing import Unpack

    from foldline.proxy.wrap import Options


class FoldlineCapability(AbstractCapability[Any]):
    """Plans every request of an agent to fit its model's window.

    Takes the options of `foldline.wrap`. The agent gets the tool by which its model reads what was
    cut, unless `recall=False`. `follower` is the `foldline.AsyncFollower` that plans.
    """

    def __init__(self, **options: "Unpack[Options]") -> None:
        self._recall = options.pop("recall", True)
        self.follower = AsyncFollower(**options)
        self._plans, self._healed = NewestPlans(), NewestPlans()
        """What each run has sent, and what it sends after a refusal."""

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Plan one attempt; pydantic-ai's own history stays as it is."""
        pieces = list_pieces(request_context)
        plan = self._healed.take(ctx.run_id)
        if plan is None:
            body = write_request(request_context, pieces)
            plan = await self.follower.plan(body, session=_name_session(ctx))
        self._plans.put(ctx.run_id, plan)
        if not plan.is_edited:
            return request_context
        given = request_context.messages
        return replace(request_context, messages=read_messages(given, pieces, plan))

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
        self._healed.put(ctx.run_id, smaller)
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


def _name_session(ctx: RunContext[Any]) -> str:
    return str(ctx.conversation_id or ctx.run_id)
