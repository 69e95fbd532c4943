"""A loop of our own over litellm with Foldline's callback, for the checks of adapters."""

import base64
import json
import os
import sys
from typing import ClassVar

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would ask for a newer one

import litellm

from foldline.adapters.litellm import FoldlineLogger
from foldline.testing.adapter_checks import SYSTEM, AdapterHost, main, read_log

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
READ = {"name": "read_log", "description": "Read a build's log.", "parameters": NAME}


class LitellmHost(AdapterHost):
    """A loop that keeps its own lists of messages."""

    lacks: ClassVar = {
        "sub-agents": "litellm has no agents; give each loop of yours its own `session_id`"
    }
    limits: ClassVar = {
        "refused call": "raised, since a callback cannot ask again",
        "streamed run": "litellm tells what was counted a while after the stream",
    }

    def __init__(self, url, options, kept=None):
        super().__init__(url, options)
        self.kept = kept or {}
        self.system = SYSTEM
        self.logger = FoldlineLogger(**options)
        litellm.callbacks = [self.logger]

    def instruct(self, words):
        """Use another system prompt."""
        self.system = words

    async def ask(self, thread, words, *, streams=False, picture=b""):
        """Call tools until the model answers, and return the answer."""
        content = words
        if picture:
            url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
            content = [
                {"type": "text", "text": words},
                {"type": "image_url", "image_url": {"url": url}},
            ]
        kept = self.kept.setdefault(thread, [])
        begun = len(kept)
        kept.append({"role": "user", "content": content})
        try:
            while True:
                said = await self._complete(thread, streams=streams)
                kept.append(said.model_dump(exclude_none=True))
                for call in said.tool_calls or ():
                    given = json.loads(call.function.arguments)
                    kept.append(
                        {
                            "role": "tool",
                            "tool_call_id": call.id,
                            "content": await self._run(thread, call.function.name, given),
                        }
                    )
                if not said.tool_calls:
                    return said.content
        except Exception:
            del kept[begun:]
            raise

    async def _run(self, thread, name, given):
        if name == "recall":
            return await self.logger.follower.answer_recall(given, session=thread)
        return read_log(**given)

    async def _complete(self, thread, *, streams):
        answer = await litellm.acompletion(
            model="openai/gpt-5",
            messages=[{"role": "system", "content": self.system}, *self.kept[thread]],
            tools=[{"type": "function", "function": READ}, FoldlineLogger.recall_tool],
            metadata={"session_id": thread},
            api_base=f"{self.url}/v1",
            api_key="none",
            max_retries=0,
            stream=streams,
            **({"stream_options": {"include_usage": True}} if streams else {}),
        )
        if streams:
            answer = litellm.stream_chunk_builder([piece async for piece in answer])
        return answer.choices[0].message

    async def read_history(self, thread):
        """All messages of the list."""
        return "\n".join(map(str, self.kept[thread]))

    async def restart(self):
        """Another logger on the same lists."""
        await self.close()
        return type(self)(self.url, self.options, self.kept)

    async def close(self):
        """Close the store."""
        await self.logger.follower.close()


if __name__ == "__main__":
    sys.exit(main(LitellmHost))
