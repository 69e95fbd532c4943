# pyright: basic, reportMissingImports=false
"""A middleware that plans the requests of LangChain's agents; needs `foldline[langchain]`.

    agent = create_agent(model, tools, middleware=[FoldlineMiddleware(store="chats.db")])

The graph's state keeps every message. A conversation is a thread of the graph: it is named by
`thread_id` in the run's configuration. An agent that runs inside a tool of another has its own.
"""

from asyncio import to_thread
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from foldline import RECALL_TOOL, Follower
from foldline.adapters.extra import name_extra
from foldline.proxy.follow import FollowPlan, PlannedMessage

with name_extra("langchain"):
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.messages import AIMessage, AnyMessage, convert_to_messages
    from langchain_core.messages import convert_to_openai_messages as write_messages
    from langchain_core.tools import StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config

if TYPE_CHECKING:
    from typing import Unpack

    from foldline.proxy.wrap import Options

_Handler = Callable[[ModelRequest], ModelResponse]
_AsyncHandler = Callable[[ModelRequest], Awaitable[ModelResponse]]


class FoldlineMiddleware(AgentMiddleware):
    """Plans every request of an agent to fit its model's window.

    Takes the options of `foldline.wrap`; `session` names the conversation of runs that have no
    `thread_id`. The agent gets the tool by which its model reads what was cut, unless
    `recall=False`. `follower` is the `foldline.Follower` that plans.
    """

    def __init__(self, **options: "Unpack[Options]") -> None:
        super().__init__()
        self._session = options.pop("session", "langchain")
        recall = options.pop("recall", True)
        self.follower = Follower(**options)
        self.tools = [self._build_recall_tool()] if recall else []

    def wrap_model_call(self, request: ModelRequest, handler: _Handler) -> ModelResponse:
        """Plan a request, and once more if the provider refuses it as too long."""
        plan = self._plan(request, self._name_session())
        try:
            response = handler(_apply_plan(request, plan))
        except Exception as error:  # noqa: BLE001 - any but a refusal is raised again
            plan = self.follower.heal(plan, error)
            response = handler(_apply_plan(request, plan))
        self._record_usage(plan, response)
        return response

    async def awrap_model_call(
        self, request: ModelRequest, handler: _AsyncHandler
    ) -> ModelResponse:
        """Plan a request, and once more if the provider refuses it as too long."""
        # One loop for both kinds of calls: a thread may be asked by either.
        plan = await to_thread(self._plan, request, self._name_session())
        try:
            response = await handler(_apply_plan(request, plan))
        except Exception as error:  # noqa: BLE001 - any but a refusal is raised again
            plan = await to_thread(self.follower.heal, plan, error)
            response = await handler(_apply_plan(request, plan))
        await to_thread(self._record_usage, plan, response)
        return response

    def _name_session(self) -> str:
        """Name the conversation of the current run."""
        try:
            configured = get_config().get("configurable") or {}
        except RuntimeError:  # called outside of a graph
            configured = {}
        thread = str(configured.get("thread_id") or self._session)
        return "/".join((thread, *_list_tool_calls(configured)))

    def _plan(self, request: ModelRequest, session: str) -> FollowPlan:
        return self.follower.plan(_write_request(request), session=session)

    def _record_usage(self, plan: FollowPlan, response: ModelResponse) -> None:
        answers = [one for one in response.result if isinstance(one, AIMessage)]
        usage = (answers[-1].usage_metadata if answers else None) or {}
        details = usage.get("input_token_details") or {}
        self.follower.record_usage(
            plan,
            input=usage.get("input_tokens"),
            output=usage.get("output_tokens"),
            cache_read=details.get("cache_read"),
            cache_write=details.get("cache_creation"),
        )

    def _build_recall_tool(self) -> StructuredTool:
        def recall(**arguments: Any) -> str:
            return self.follower.answer_recall(arguments, session=self._name_session())

        async def arecall(**arguments: Any) -> str:
            session = self._name_session()
            return await to_thread(self.follower.answer_recall, arguments, session=session)

        return StructuredTool(
            name=RECALL_TOOL["name"],
            description=RECALL_TOOL["description"],
            args_schema=RECALL_TOOL["parameters"],
            func=recall,
            coroutine=arecall,
        )


def _list_tool_calls(configured: dict[str, Any]) -> list[str]:
    """List the tool calls of other agents that a run is inside of, from the outermost on."""
    *outer, _ = str(configured.get("checkpoint_ns") or "").split("|")
    # "tools:" and the id of a task; without an id the inner agent keeps its state between calls.
    return [one[: len("tools:") + 8] for one in outer if one.partition(":")[0] == "tools"]


def _write_request(request: ModelRequest) -> dict[str, Any]:
    """Write a request as OpenAI's chat has it; the system message is the first one, if any."""
    model = request.model
    system = [request.system_message] if request.system_message is not None else []
    body: dict[str, Any] = {
        "model": str(getattr(model, "model_name", "") or getattr(model, "model", "")),
        "messages": [_write_message(one) for one in (*system, *request.messages)],
    }
    if tools := [convert_to_openai_tool(one) for one in request.tools]:
        body["tools"] = tools
    settings = request.model_settings
    most = settings.get("max_tokens") or getattr(model, "max_tokens", None)
    if isinstance(most, int):
        body["max_tokens"] = most
    return body


def _write_message(message: AnyMessage) -> dict[str, Any]:
    written = write_messages([message])
    # A message of several results, as Anthropic has them, is still one place in the history.
    return written[0] if len(written) == 1 else {"role": "user", "content": str(message.content)}


def _apply_plan(request: ModelRequest, plan: FollowPlan) -> ModelRequest:
    """Put a plan's messages in place of the request's own, which stay where nothing was edited."""
    if not plan.is_edited:
        return request
    before = 0 if request.system_message is None else 1
    shown = [one for one in plan.shown if one.place is None or one.place >= before]
    return request.override(
        messages=[_read_message(request.messages, one, before) for one in shown]
    )


def _read_message(given: list[AnyMessage], shown: PlannedMessage, before: int) -> AnyMessage:
    if shown.place is None:
        return convert_to_messages([shown.message])[0]
    own = given[shown.place - before]
    if shown.same:
        return own
    return own.model_copy(update={"content": shown.message.get("content") or ""})
