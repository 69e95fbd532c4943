"""JSON as odd clients write it: key order, whitespace, escapes, numbers."""

import json

from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20).filter(
    lambda text: not text.lstrip().startswith(("[human", "[notice", "[heartbeat", "[cron"))
)
numbers = st.sampled_from(
    ["1.0", "1e5", "12345678901234567890", "-0.0", "0.10", "1E+2", "7", "1" + "0" * 30]
)
spaces = st.sampled_from(["", "", "", " ", "\n\t", "  "])


@st.composite
def quoted(draw, text):
    """A string, escaped in one of the ways that are allowed."""
    how = draw(st.integers(0, 2))
    made = json.dumps(text, ensure_ascii=how == 1)
    return made.replace("/", "\\/").replace("é", r"\u00e9") if how == 2 else made


@st.composite
def written(draw, value):
    """A value as JSON that an odd client might have written; a tuple is a number's own text."""
    if isinstance(value, tuple):
        return value[0]
    if isinstance(value, str):
        return draw(quoted(value))
    space = draw(spaces)
    if isinstance(value, list):
        return "[" + ",".join(space + draw(written(one)) + space for one in value) + "]"
    if isinstance(value, dict):
        pairs = draw(st.permutations(list(value.items()))) if draw(st.booleans()) else value.items()
        made = [draw(quoted(key)) + space + ":" + draw(written(one)) for key, one in pairs]
        return "{" + space + f",{space}".join(made) + space + "}"
    return json.dumps(value)
