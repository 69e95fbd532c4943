# pyright: basic, reportMissingImports=false
"""A filter and hooks that plan the runs of OpenAI's agents SDK; needs `foldline[openai-agents]`.

    hooks = FoldlineHooks(store="chats.db")
    agent = Agent("helper", tools=[hooks.recall_tool])
    with foldline.conversation("ada"):
        await Runner.run(agent, words, session=kept, hooks=hooks, run_config=hooks.run_config)

The SDK's session keeps every item. `foldline.conversation` names the conversation. An agent that is
a tool of another, `helper.as_tool(…, hooks=hooks)`, has its own. A refusal cannot be healed here,
since the SDK has no hook for it; what it says of the window is not learned.
"""

from asyncio import Task, current_task
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from foldline import RECALL_TOOL, AsyncFollower
from foldline.adapters.extra import name_extra
from foldline.proxy.follow import FollowPlan
from foldline.proxy.identity import current_name
from foldline.session.session import AsyncSession

with name_extra("openai-agents"):
    from agents import FunctionTool, ModelResponse, RunConfig, RunContextWrapper, RunHooks, Tool
    from agents.run import CallModelData, ModelInputData

if TYPE_CHECKING:
    from typing import Unpack

    from foldline.proxy.wrap import Options


@dataclass
class _ModelCall:
    """One request to the model, and the tools that work on its answer."""

    name: str
    """What its program names the conversation."""
    within: str
    """What it is named beside that, where its run is inside of a tool; "" where it is not."""
    plan: FollowPlan
    task: Task[Any] | None
    """What asked; tools work in tasks of their own, which see this call too."""
    tools: int = 0

    def is_outer(self) -> bool:
        """Whether the current task is that of one of its tools."""
        return self.tools > 0 and current_task() is not self.task


_newest: ContextVar[_ModelCall | None] = ContextVar("foldline_call", default=None)


class FoldlineHooks(RunHooks[Any]):
    """Plans every request of a run to fit its model's window.

    Takes the options of `foldline.wrap`; `session` names the conversation outside of
    `foldline.conversation`. `run_config` has the filter that plans, `recall_tool` is the tool by
    which a model reads what was cut, `follower` the `foldline.AsyncFollower` that plans.
    """

    def __init__(self, **options: "Unpack[Options]") -> None:
        self._session = options.pop("session", "openai-agents")
        self.follower = AsyncFollower(**options)
        self.run_config = RunConfig(call_model_input_filter=self.plan_call)
        self.recall_tool = FunctionTool(
            name=RECALL_TOOL["name"],
            description=RECALL_TOOL["description"],
            params_json_schema=RECALL_TOOL["parameters"],
            on_invoke_tool=self._answer_recall,
            strict_json_schema=False,
        )

    async def plan_call(self, data: CallModelData[Any]) -> ModelInputData:
        """Plan the input of one call: the SDK's `call_model_input_filter`."""
        name = current_name() or self._session
        within = _find_tool(name)
        plan = await self.follower.plan(
            _write_request(data), session=name + within, dialect="openai-responses"
        )
        _newest.set(_ModelCall(name, within, plan, current_task()))
        if not plan.is_edited:
            return data.model_data
        items: Any = [one.message for one in plan.shown]
        return ModelInputData(input=items, instructions=data.model_data.instructions)

    async def on_llm_end(
        self, context: RunContextWrapper[Any], agent: Any, response: ModelResponse
    ) -> None:
        """Record what the provider counted."""
        call, usage = _newest.get(), response.usage
        if call is not None:
            await self.follower.record_usage(
                call.plan,
                input=usage.input_tokens or None,
                output=usage.output_tokens or None,
                cache_read=usage.input_tokens_details.cached_tokens or None,
            )

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Any, tool: Tool) -> None:
        """Remember that a tool works, which may run an agent of its own."""
        if call := _newest.get():
            call.tools += 1

    async def on_tool_end(
        self, context: RunContextWrapper[Any], agent: Any, tool: Tool, result: object
    ) -> None:
        """Remember that a tool is done."""
        if call := _newest.get():
            call.tools -= 1

    async def _answer_recall(self, _: Any, arguments: str) -> str:
        try:
            given = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
        except msgspec.DecodeError as fault:
            return f"these arguments are no JSON object: {fault}"
        call = _newest.get()
        if call is None or call.plan.call is None:
            return "nothing was cut yet"
        # By the log and not by its name: agents that work at once for one request share that.
        return await AsyncSession(call.plan.call.exchange.live).answer_recall(given)


def _find_tool(name: str) -> str:
    """Find what distinguishes a run inside of a tool from that of the tool's caller, or ""."""
    call = _newest.get()
    if call is None or call.name != name or call.plan.call is None:
        return ""
    return f"{call.within}/{call.plan.call.exchange.asked}" if call.is_outer() else call.within


def _write_request(data: CallModelData[Any]) -> dict[str, Any]:
    """Write a call as the Responses API has it."""
    model: Any = data.agent.model
    name = model if isinstance(model, str) else getattr(model, "model", "")
    body: dict[str, Any] = {"model": str(name), "input": [*data.model_data.input]}
    if data.model_data.instructions:
        body["instructions"] = data.model_data.instructions
    tools = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
        }
        for tool in data.agent.tools
        if isinstance(tool, FunctionTool)
    ]
    return {**body, "tools": tools} if tools else body
