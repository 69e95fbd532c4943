"""Provider JSON ↔ events and requests, pure: one room a dialect, none knows another.

    dialects   which dialect, and what each can do  anthropic/  openai_chat/
    reading    foreign JSON, made safe              sse         events out of bytes
    media      kinds of pictures and files          tools       tools and their names
    chain      whether a history goes on            faults/     what a provider's error means

Knows what providers write. Refuses to know sessions.
"""
