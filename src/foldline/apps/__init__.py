"""Programs for people: the command line, the terminal chat, the gateway, the Telegram bot.

    cli  chat  gateway  bot

An app may use every other room. No room uses an app.
"""
