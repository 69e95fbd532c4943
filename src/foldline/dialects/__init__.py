"""Provider JSON ↔ events and requests, pure: one room a dialect, none knows another.

    anthropic        Anthropic messages, also as llama.cpp and others speak them
    base             Which dialect
    client_messages  What every dialect says of a client's own messages
    json_reader      Foreign JSON, made safe to look at
    json_slices      Where the parts of a JSON text are, by their bytes
    media            Pictures, sounds and files
    openai_chat      OpenAI chat completions, also as llama.cpp, vLLM and Ollama speak them
    provider_errors  A provider's error → its meaning
    signatures       Requests whose headers vouch for their body
    sse              Server-sent events out of bytes that were cut anywhere
    tools            The tools of a request: each once, under a name that its dialect takes

Knows what providers write. Refuses to know sessions.
"""
