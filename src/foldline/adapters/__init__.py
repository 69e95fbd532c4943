"""Adapters: Foldline inside the frameworks, on their own hooks.

    adk             A plugin for Google's ADK
    extra           Names the extra that an adapter needs
    langchain       A middleware for agents of LangChain and LangGraph
    litellm         A callback for litellm, in a program or in its proxy
    openai_agents   A filter and hooks for runs of OpenAI's agents SDK
    pydantic_ai     A capability for agents of pydantic-ai
    pydantic_ai_messages  Its messages as a chat's, and back

Each plans the framework's requests with a `foldline.Follower`. The framework's own objects go back
untouched where nothing was edited, and its history stays whole.
"""
