# pyright: basic, reportMissingImports=false
"""A callback that plans the requests of litellm; needs `foldline[litellm]`.

    litellm.callbacks = [FoldlineLogger(store="chats.db")]
    await litellm.acompletion(model=…, messages=…, metadata={"session_id": "ada"})

In litellm's proxy, name an instance in `litellm_settings: callbacks`. `session_id` in the metadata
names the conversation; a call without it is sent as it came. The program's list of messages stays
whole. litellm asks callbacks only in async calls, and shows them only what is given by name: for
`completion()`, give a wrapped client.
"""

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from foldline import RECALL_TOOL, AsyncFollower
from foldline.adapters.extra import name_extra
from foldline.proxy.follow import NewestPlans

with name_extra("litellm"):
    from litellm.integrations.custom_logger import CustomLogger

if TYPE_CHECKING:
    from typing import Unpack

    from foldline.proxy.wrap import Options

_log = logging.getLogger("foldline.litellm")
_MOST = 1_000  # calls whose answer is awaited


class FoldlineLogger(CustomLogger):
    """Plans the requests of every call that names its session.

    Takes the options of `foldline.wrap`. `recall_tool` is the tool by which a model reads what was
    cut, to be given with `tools=`; its calls are answered by
    `await follower.answer_recall(arguments, session=…)`. `follower` is the
    `foldline.AsyncFollower` that plans.
    """

    recall_tool: ClassVar[dict[str, Any]] = {"type": "function", "function": RECALL_TOOL}

    def __init__(self, **options: "Unpack[Options]") -> None:
        super().__init__()
        self.follower = AsyncFollower(**options)
        self._plans = NewestPlans(_MOST)

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: Any
    ) -> dict[str, Any] | None:
        """Plan a call, after litellm has chosen who serves it."""
        session, messages = _find_session(kwargs), kwargs.get("messages")
        if not session:
            return None
        if not isinstance(messages, list):
            _log.warning(
                "%s: a call is sent as it came: give model= and messages= by name", session
            )
            return None
        names = ("model", "messages", "tools", "max_tokens", "max_completion_tokens")
        body = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
        body["messages"] = [_write_message(one) for one in messages]
        plan = await self.follower.plan(body, session=session)
        self._plans.put(kwargs.get("litellm_call_id"), plan)
        if not plan.is_edited:
            return None
        sent = [
            messages[one.place] if one.same and one.place is not None else one.message
            for one in plan.shown
        ]
        return {**kwargs, "messages": sent}

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        """Record what the provider counted, before the caller has the answer."""
        await self._record_usage(request_data, response)

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Record what the provider counted, of streams: litellm calls this a while later."""
        await self._record_usage(kwargs, response_obj)

    async def _record_usage(self, kwargs: dict[str, Any], response: Any) -> None:
        usage = getattr(response, "usage", None)
        if usage is None:
            return
        plan = self._plans.take(kwargs.get("litellm_call_id"))
        if plan is None:
            return
        details = getattr(usage, "prompt_tokens_details", None)
        await self.follower.record_usage(
            plan,
            input=usage.prompt_tokens,
            output=usage.completion_tokens,
            cache_read=getattr(details, "cached_tokens", None),
        )


def _find_session(kwargs: dict[str, Any]) -> str:
    """Find the name of a call's conversation, where litellm's callers and proxy give it."""
    metadata = kwargs.get("metadata") or kwargs.get("litellm_metadata") or {}
    return str(metadata.get("session_id") or kwargs.get("litellm_session_id") or "")


def _write_message(message: Any) -> dict[str, Any]:
    """Write a message as a dict; litellm also takes the objects that it returns."""
    return message if isinstance(message, dict) else message.model_dump(exclude_none=True)
