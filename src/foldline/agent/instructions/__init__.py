"""Instructions from files: AGENTS.md, nearest first, and the memory file.

    instruction_files  Where instruction files are, what they import, how they are read
    standing           The current instructions: found, trusted and fitted to their budget

    files = Instructions(cwd, trust=Trust(store), base="You are a careful engineer.")
    await files.load_files()
    hooks = [files.track_touched_paths]
    agent = Agent(session, model, instructions=files.render_texts, hooks=hooks)

Rules and order are in docs/how-to/instructions.md.
"""

from foldline.agent.instructions.standing import (
    Answer,
    InstructionFile,
    Instructions,
    State,
    Trust,
    Trusted,
)

__all__ = ["Answer", "InstructionFile", "Instructions", "State", "Trust", "Trusted"]
