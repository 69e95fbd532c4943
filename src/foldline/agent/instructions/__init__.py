"""Instructions from files: AGENTS.md, nearest first, and the memory file.

    budget    How much of each file is told: R-59
    finding   Where instructions may lie
    imports   A file of instructions with what it imports: one unit, agreed to as a whole
    memory    The memory file: what the user wants known in every session (A-06)
    reading   Reading one file of instructions, and nothing but that file
    standing  The instructions that stand: found, agreed to, fitted, and told piece by piece
    trust     Whose instructions are followed: agreed to by path and hash, R-61

    instructions = Instructions(cwd, trust=Trust(store), base="You are a careful engineer.")
    await instructions.look()
    agent = Agent(session, model, instructions=instructions.texts, hooks=[instructions.notice])

Rules and order are in docs/how-to/instructions.md.
"""

from foldline.agent.instructions.standing import (
    Answer,
    InstructionFile,
    Instructions,
    State,
)
from foldline.agent.instructions.trust import Trust, Trusted

__all__ = ["Answer", "InstructionFile", "Instructions", "State", "Trust", "Trusted"]
