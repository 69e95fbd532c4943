# pyright: basic, reportMissingImports=false
"""A plugin that plans the requests of Google's ADK; needs `foldline[adk]`.

    app = App(name="desk", root_agent=agent, plugins=[FoldlinePlugin(store="chats.db")])

ADK's session keeps every event. A conversation is one agent in one session of ADK. A refusal is
raised, since a plugin cannot ask again; what it says of the window holds from the next call on.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from foldline import RECALL_TOOL, AsyncFollower
from foldline.adapters.extra import name_extra
from foldline.errors import FoldlineError
from foldline.proxy.follow import NewestPlans, PlannedMessage

with name_extra("adk"):
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models import LlmRequest, LlmResponse
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools import BaseTool, ToolContext
    from google.genai import types

if TYPE_CHECKING:
    from typing import Unpack

    from foldline.proxy.wrap import Options


class FoldlinePlugin(BasePlugin):
    """Plans every request of an app's agents to fit its model's window.

    Takes the options of `foldline.wrap`. The agents get the tool by which their models read what
    was cut, unless `recall=False`. `follower` is the `foldline.AsyncFollower` that plans.
    """

    def __init__(self, **options: "Unpack[Options]") -> None:
        super().__init__("foldline")
        recall = options.pop("recall", True)
        self.follower = AsyncFollower(**options)
        self._tool = _RecallTool(self.follower) if recall else None
        self._plans = NewestPlans()

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Plan a request; ADK's own events stay as they are."""
        if self._tool is not None and self._tool.name not in llm_request.tools_dict:
            llm_request.append_tools([self._tool])
        name = _name_session(callback_context)
        body = _write_request(llm_request)
        plan = await self.follower.plan(body, session=name, dialect="gemini")
        self._plans.put(name, plan)
        if plan.is_edited:
            own = llm_request.contents
            llm_request.contents = [_read_content(own, one) for one in plan.shown]
        return None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Record what the provider counted; of a stream only its end says it."""
        usage = llm_response.usage_metadata
        if usage is None or llm_response.partial:
            return None
        plan = self._plans.take(_name_session(callback_context))
        if plan is not None:
            said = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
            await self.follower.record_usage(
                plan,
                input=usage.prompt_token_count,
                output=said or None,
                cache_read=usage.cached_content_token_count,
            )
        return None

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """Learn what a refusal says of the window; the error is raised all the same."""
        plan = self._plans.take(_name_session(callback_context))
        if plan is not None:
            with suppress(FoldlineError, type(error)):
                await self.follower.heal(plan, error)

    async def close(self) -> None:
        """Close the store; the logs stay."""
        await self.follower.close()


class _RecallTool(BaseTool):
    """The tool `recall`."""

    def __init__(self, follower: AsyncFollower) -> None:
        super().__init__(name=RECALL_TOOL["name"], description=RECALL_TOOL["description"])
        self._follower = follower

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=RECALL_TOOL["parameters"],
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Answer a call from the log."""
        session = _name_session(tool_context)
        return {"result": await self._follower.answer_recall(args, session=session)}


def _name_session(context: Any) -> str:
    """Name the conversation: the session, and the agent that is asked."""
    return f"{context.session.id}/{context.agent_name}"


def _write_request(request: LlmRequest) -> dict[str, Any]:
    """Write a request as Gemini's API has it."""
    config = request.config
    body: dict[str, Any] = {
        "model": request.model or "",
        "contents": [_dump(content) for content in request.contents],
    }
    system = config.system_instruction
    if isinstance(system, str):
        body["systemInstruction"] = {"parts": [{"text": system}]}
    elif isinstance(system, types.Content):
        body["systemInstruction"] = _dump(system)
    if tools := [_dump(tool) for tool in config.tools or () if isinstance(tool, types.Tool)]:
        body["tools"] = tools
    if config.max_output_tokens:
        body["generationConfig"] = {"maxOutputTokens": config.max_output_tokens}
    return body


def _dump(given: Any) -> dict[str, Any]:
    return given.model_dump(mode="json", by_alias=True, exclude_none=True)


def _read_content(own: list[types.Content], shown: PlannedMessage) -> types.Content:
    if shown.same and shown.place is not None:
        return own[shown.place]
    return types.Content.model_validate(shown.message)
