"""Provider JSON ↔ events and requests, pure: one room a dialect, none knows another.

    dialects   which dialect, and what each can do  anthropic/  openai_chat/
    reading    foreign JSON, made safe              sse         events out of bytes
    media      kinds of pictures and files          tools       tools and their names
    client     what a client's message is known by  slices      where the parts of a JSON text are
    signed     bodies that nobody may change        faults/     what a provider's error means

Knows what providers write. Refuses to know sessions.
"""
