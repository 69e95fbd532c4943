"""Telegram: the agent that lives in a chat.

    approval_cards  Notices about folds, the bot's rules, and questions about tools
    bot_api         Calls of the Bot API, paced and retried; session names
    bot_server      Receives updates by polling or a webhook, and opens chats
    commands        The table of commands and buttons
    delivery        Messages into the log, answers out of it, and commands that wait
    html            Markdown to Telegram's HTML, and splitting of long texts
    telegram_chat   One chat: its turns, and the delivery of its answers

A chat is a session, and its agent runs the loop of `foldline chat`.
"""
