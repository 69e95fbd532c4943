# pyright: basic, reportMissingImports=false
"""A filter and hooks that plan the runs of OpenAI's agents SDK; needs `foldline[openai-agents]`.

    hooks = FoldlineHooks(store="chats.db")
    agent = Agent("helper", tools=[hooks.recall_tool])
    with foldline.conversation("ada"):
        await Runner.run(agent, words, session=kept, hooks=hooks, run_config=hooks.run_config)

The SDK's session keeps every item. `foldline.conversation` names the conversation. A refusal
cannot be healed here, since the SDK has no hook for it; what it says of the window is not learned.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from foldline import RECALL_TOOL, AsyncFollower
from foldline.adapters.extra import name_extra
from foldline.proxy.follow import FollowPlan
from foldline.proxy.identity import current_name

with name_extra("openai-agents"):
    from agents import FunctionTool, ModelResponse, RunConfig, RunContextWrapper, RunHooks
    from agents.run import CallModelData, ModelInputData

if TYPE_CHECKING:
    from typing import Unpack

    from foldline.proxy.wrap import Options

_newest: ContextVar[FollowPlan | None] = ContextVar("foldline_plan", default=None)


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
        plan = await self.follower.plan(
            _write_request(data), session=self._name_session(), dialect="openai-responses"
        )
        _newest.set(plan)
        if not plan.is_edited:
            return data.model_data
        items: Any = [one.message for one in plan.shown]
        return ModelInputData(input=items, instructions=data.model_data.instructions)

    async def on_llm_end(
        self, context: RunContextWrapper[Any], agent: Any, response: ModelResponse
    ) -> None:
        """Record what the provider counted."""
        plan, usage = _newest.get(), response.usage
        if plan is not None:
            await self.follower.record_usage(
                plan,
                input=usage.input_tokens or None,
                output=usage.output_tokens or None,
                cache_read=usage.input_tokens_details.cached_tokens or None,
            )

    def _name_session(self) -> str:
        return current_name() or self._session

    async def _answer_recall(self, _: Any, arguments: str) -> str:
        try:
            given = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
        except msgspec.DecodeError as fault:
            return f"these arguments are no JSON object: {fault}"
        return await self.follower.answer_recall(given, session=self._name_session())


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
