"""The terminal of `foldline chat`: a line to write on, and what is shown above it.

    approving     What a person is asked before something is changed, and what they may answer
    bar           The bar below the line, and the line after each answer: where the window stands
    commands      What begins with a slash
    conversation  A person and an agent, one turn after the other, until the person leaves
    door          The way in: the line is there before the rest of foldline is imported
    faults        Errors as a person at a terminal is told of them: what happened, and the way out
    line          The line that a person writes on
    live_output   A turn as it happens, shown to whoever sits there
    markdown      An answer as it comes
    plain         The line where the terminal can do nothing, or there is none: words in, words out
    safe          Text of many lines that strangers wrote, made safe for a terminal
    startup       What a talk works with

Knows a person at a terminal. Refuses to decide: every command is a few calls of the session API.
"""
