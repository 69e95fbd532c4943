"""Instructions from files: AGENTS.md, nearest first, and the memory file.

    finding      roots, and the folders between them and the work           instructions/finding.py
    reading      one file, no symlink, no pipe, no more than is needed      instructions/reading.py
    imports      a file with what it imports                                instructions/imports.py
    trust        agreed to by path and hash                                 instructions/trust.py
    budget       how much of each is told                                   instructions/budget.py
    memory       what the user wants known in every session                 instructions/memory.py
    standing     all of it: what is told now, and what is listed            instructions/standing.py

    instructions = Instructions(cwd, trust=Trust(store), base="You are a careful engineer.")
    await instructions.look()
    agent = Agent(session, model, instructions=instructions.texts, hooks=[instructions.notice])

Rules and order are in docs/how-to/instructions.md.
"""

from foldline.agent.instructions.standing import Answer, Entry, Instructions, State
from foldline.agent.instructions.trust import Trust, Trusted

__all__ = ["Answer", "Entry", "Instructions", "State", "Trust", "Trusted"]
