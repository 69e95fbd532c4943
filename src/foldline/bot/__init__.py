"""Telegram: the agent that lives in a chat.

    places     which session a chat, a topic or a person is                 bot/places.py
    reading    a message, a photo or a file, as parts for the log           bot/reading.py
    marks      Markdown as the HTML that Telegram takes; split, footer      bot/marks.py
    line       calls of the Bot API: paced, tried again, plain if refused   bot/line.py
    track      what was answered, and what was delivered                    bot/track.py
    inbox      commands and buttons, each worked off once                   bot/inbox.py
    chat       one chat: its worker, its turns, its answers                 bot/chat.py
    pen        words shown while they are said                              bot/pen.py
    asking     tools approved by buttons                                    bot/asking.py
    commands   what begins with a slash                                     bot/commands.py
    cards      what is said beside answers, and its buttons                 bot/cards.py
    rules      who may talk, what they are told                             bot/rules.py
    serving    updates in, by polling; webhook: brought by Telegram         bot/serving.py

Knows chats, messages and buttons. Refuses to decide: a chat is a session, its agent is the loop of
`foldline chat`.
"""
