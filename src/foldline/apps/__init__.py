"""Programs for people: `cli` the command line, `chat` the terminal chat, `pages`, `gateway`, `bot`.

An app may import every other package; no other package imports an app.
"""
