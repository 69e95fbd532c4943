"""The terminal of `foldline chat`: a line to write on, and what is shown above it.

    door      the line is there before the rest is      talk       turns, commands, what ends
    line      keys, history, completion                 seat       what a talk works with
    plain     the same where the terminal can do less   hearing    a turn, shown as it happens
    markdown  an answer, block by block, as it comes    bar        the line below, A-42
    safe      nothing drives the terminal but us        approving  what a person is asked first
    faults    errors in a line or two                   commands/  what begins with a slash

Knows a person at a terminal. Refuses to decide: every command is a few calls of the session API.
"""
