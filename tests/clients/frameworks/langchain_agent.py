"""LangChain's agent with ChatOpenAI: `langchain_agent.py [stream]`; streamed it is also async."""

import sys
from typing import Any

from job import CLIENT, GPT, SYSTEM, make_http_client, run_bash, take_turns
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

model = ChatOpenAI(
    model=GPT,
    http_client=make_http_client(),
    http_async_client=make_http_client(is_async=True),
    **CLIENT,
)
agent = create_agent(
    model, [tool("bash")(run_bash)], system_prompt=SYSTEM, checkpointer=InMemorySaver()
)
CONFIG: Any = {"configurable": {"thread_id": "ledger"}, "recursion_limit": 100}


def take_turn(prompt: str) -> str:
    """Ask the agent, which keeps the conversation."""
    done = agent.invoke({"messages": [{"role": "user", "content": prompt}]}, CONFIG)
    return done["messages"][-1].text


async def stream_turn(prompt: str) -> str:
    """The same by pieces."""
    asked = {"messages": [{"role": "user", "content": prompt}]}
    said = ""
    async for piece, _ in agent.astream(asked, CONFIG, stream_mode="messages"):
        said += piece.text if piece.type == "AIMessageChunk" else ""
    return said


take_turns(stream_turn if "stream" in sys.argv else take_turn)
