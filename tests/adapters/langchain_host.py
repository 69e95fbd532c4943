"""LangChain's agent with Foldline's middleware, for the checks of adapters."""

import asyncio
import base64
import sys
from typing import ClassVar

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from foldline.adapters.langchain import FoldlineMiddleware
from foldline.testing.adapter_checks import HELPER, SYSTEM, AdapterHost, choose_host, main, read_log

LONG = {"recursion_limit": 200}


def start(words):
    """Begin a conversation."""
    return {"messages": [HumanMessage(words)]}


class LangChainHost(AdapterHost):
    """An agent of `create_agent`, with its state in a checkpointer."""

    lacks: ClassVar = {"reasoning": "`ChatOpenAI` reads reasoning only over the Responses API"}
    model_options: ClassVar = {"stream_usage": True}

    def __init__(self, url, options, saver=None):
        super().__init__(url, options)
        self.saver = saver or InMemorySaver()
        self.middleware = FoldlineMiddleware(**options)
        self.instruct(SYSTEM)

    def instruct(self, words):
        """Make the same agent with another system prompt."""
        self.agent = self.make_agent(words, [tool(read_log)], checkpointer=self.saver)

    def make_agent(self, words, tools, **options):
        """Make an agent with the middleware."""
        model = ChatOpenAI(
            model="gpt-5",
            base_url=f"{self.url}/v1",
            api_key="none",
            max_retries=0,
            **self.model_options,
        )
        return create_agent(
            model, tools, system_prompt=words, middleware=[self.middleware], **options
        )

    async def ask(self, thread, words, *, streams=False, picture=b""):
        """Ask as a graph is asked."""
        config = {"configurable": {"thread_id": thread}, "recursion_limit": 200}
        content = words
        if picture:
            url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
            content = [
                {"type": "text", "text": words},
                {"type": "image_url", "image_url": {"url": url}},
            ]
        asked = {"messages": [HumanMessage(content)]}
        if streams:
            said = ""
            async for piece, _ in self.agent.astream(asked, config, stream_mode="messages"):
                said += piece.text if piece.type == "AIMessageChunk" else ""
            return said
        done = await self.agent.ainvoke(asked, config)
        return done["messages"][-1].text

    async def delegate(self, thread, words):
        """Ask an agent that runs another one in a tool."""
        helper = self.make_agent(HELPER, [tool(read_log)])

        @tool
        def ask_helper(words: str) -> str:
            """Ask the helper."""
            return helper.invoke(start(words), LONG)["messages"][-1].text

        @tool
        async def ask_helper_async(words: str) -> str:
            """Ask the helper."""
            return (await helper.ainvoke(start(words), LONG))["messages"][-1].text

        ask_helper.coroutine = ask_helper_async.coroutine
        own, self.agent = (
            self.agent,
            self.make_agent(SYSTEM, [tool(read_log), ask_helper], checkpointer=self.saver),
        )
        try:
            return await self.ask(thread, words)
        finally:
            self.agent = own

    async def read_history(self, thread):
        """All messages in the state."""
        state = self.agent.get_state({"configurable": {"thread_id": thread}})
        return "\n".join(str(one.content) for one in state.values["messages"])

    async def restart(self):
        """Another agent on the same checkpoints."""
        await self.close()
        return type(self)(self.url, self.options, self.saver)

    async def close(self):
        """Close the store."""
        self.middleware.follower.close()


class SyncLangChainHost(LangChainHost):
    """The same without `await`."""

    async def ask(self, thread, words, *, streams=False, picture=b""):
        """Ask in a thread."""
        if streams or picture:
            return await super().ask(thread, words, streams=streams, picture=picture)
        config = {"configurable": {"thread_id": thread}, "recursion_limit": 200}
        asked = {"messages": [HumanMessage(words)]}
        done = await asyncio.to_thread(self.agent.invoke, asked, config)
        return done["messages"][-1].text


class ResponsesHost(LangChainHost):
    """The same over the Responses API, which has reasoning."""

    lacks: ClassVar = {}
    model_options: ClassVar = {
        "use_responses_api": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


if __name__ == "__main__":
    sys.exit(
        main(
            choose_host({"": LangChainHost, "sync": SyncLangChainHost, "responses": ResponsesHost})
        )
    )
