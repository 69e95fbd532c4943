"""LangChain's agent with Foldline's middleware, for the checks of adapters."""

import base64
import sys

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from foldline.adapters.langchain import FoldlineMiddleware
from foldline.testing.adapter_checks import SYSTEM, AdapterHost, main, read_log


class LangChainHost(AdapterHost):
    """An agent of `create_agent`, with its state in a checkpointer."""

    def __init__(self, url, options, saver=None):
        super().__init__(url, options)
        self.saver = saver or InMemorySaver()
        self.middleware = FoldlineMiddleware(**options)
        self.instruct(SYSTEM)

    def instruct(self, words):
        """Make the same agent with another system prompt."""
        model = ChatOpenAI(
            model="gpt-5",
            base_url=f"{self.url}/v1",
            api_key="none",
            max_retries=0,
            stream_usage=True,
        )
        self.agent = create_agent(
            model,
            [tool(read_log)],
            system_prompt=words,
            middleware=[self.middleware],
            checkpointer=self.saver,
        )

    async def ask(self, thread, words, *, streams=False, picture=b""):
        """Ask as a graph is asked; sync for every second thread."""
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
        import asyncio  # noqa: PLC0415

        if streams or picture:
            return await super().ask(thread, words, streams=streams, picture=picture)
        config = {"configurable": {"thread_id": thread}, "recursion_limit": 200}
        asked = {"messages": [HumanMessage(words)]}
        done = await asyncio.to_thread(self.agent.invoke, asked, config)
        return done["messages"][-1].text


if __name__ == "__main__":
    is_sync = "sync" in sys.argv
    sys.argv = [one for one in sys.argv if one != "sync"]
    sys.exit(main(SyncLangChainHost if is_sync else LangChainHost))
