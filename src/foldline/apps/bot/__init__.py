"""Telegram: the agent that lives in a chat.

    approval       Tools approved by buttons: once, always by a rule, or not at all; by admins only
    bot_api        The line to Telegram: every call of the Bot API that is made for a chat
    cards          What is said beside answers
    chat           One chat: what comes in, turn after turn, and every answer delivered once
    commands       What begins with a slash, and what buttons say: one table
    delivery       What of a log was answered, and what of its answers was delivered
    html           Words as Telegram shows them
    inbox          Commands and buttons that came in
    live_message   Words shown while they are said
    message        A message from Telegram, as the parts that go into the log
    rules          Who may talk with the bot, what they are told, and how long things may take
    server         Updates in
    session_names  Which session a message belongs to: a stated policy, and its way back
    webhook        Updates that Telegram brings

Knows chats, messages and buttons. Refuses to decide: a chat is a session, its agent is the loop of
`foldline chat`.
"""
