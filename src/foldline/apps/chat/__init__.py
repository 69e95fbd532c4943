"""The terminal of `foldline chat`: a line to write on, and what is shown above it.

    attachments      what goes along with a message: pipes, files, and those it names by `@`
    approval_prompt  questions before something is changed or trusted; errors with their remedies
    chat_parts       the agent and the face that a chat works with
    chat_loop        a person and an agent, turn by turn, until the person leaves
    input_line       the input line, with keys, history and completion
    live_output      a turn as it happens: words, tools, folds
    look_commands    the commands that only look
    markdown         an answer rendered block by block, as it comes
    plain            input and output without a capable terminal
    safe             text that others wrote, made safe for a terminal
    slash_commands   the commands that begin with a slash
    startup          the start: an input line before the rest is imported
    status_bar       the bar below the line, and the usage line after each answer

Every command is a few calls of the session API.
"""
