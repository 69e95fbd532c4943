"""Telegram: the agent that lives in a chat.

Knows chats, messages and buttons. Refuses to decide: a chat is a session, its agent is the loop of
`foldline chat`.
"""
