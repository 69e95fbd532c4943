"""Words for people that several rooms say alike.

Knows English. Refuses to know what is counted.
"""


def many(count: int, name: str) -> str:
    """A number of things."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"
