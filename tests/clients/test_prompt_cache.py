"""The scripted provider caches as the real ones do: else a gateway's bill would look better than it is."""

import pytest
from upstream import Job, Upstream, read_anthropic, read_chat

LONG = " ".join(f"entry {n} is open," for n in range(400))


def mark(text):
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


@pytest.fixture
def upstream():
    return Upstream(Job(1, (100, 200)))


def ask(upstream, *blocks, **more):
    """One request with these blocks of the user: what was read and written, and all of it."""
    texts = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": texts}], **more}
    asked = read_anthropic(body)
    use = upstream.use_cache(asked)
    return use.read, use.written, asked.tokens


def test_anthropic_keeps_only_what_stands_before_a_mark(upstream):
    for _ in range(2):
        assert ask(upstream, LONG)[:2] == (0, 0), "without a mark nothing is kept"
    _, written, first = ask(upstream, mark(LONG), "Go on.")
    assert 0 < written < first, "what stands behind the mark is not written"
    assert ask(upstream, LONG, "Go on.")[:2] == (0, 0), "no mark looks for it"
    _, more, whole = ask(upstream, LONG, "Go on.", mark("Now."))
    assert written + more == whole, "and the mark may move"
    assert ask(upstream, LONG, "Go on.", mark("Now."))[:2] == (whole, 0)
    assert ask(upstream, LONG, mark("Another."))[0] == written
    upstream.marked.clear()
    assert ask(upstream, LONG, "Go on.", mark("Now."))[:2] == (0, whole)


@pytest.mark.parametrize(("between", "is_found"), [(18, True), (19, False)])
def test_a_mark_looks_back_twenty_blocks(upstream, between, is_found):
    _, written, _ = ask(upstream, mark(LONG))
    read, _, _ = ask(upstream, LONG, *["Yes."] * between, mark("Now."))
    assert read == (written if is_found else 0)


def test_a_second_mark_finds_what_the_last_does_not_see(upstream):
    _, written, _ = ask(upstream, mark(LONG))
    assert ask(upstream, mark(LONG), *["Yes."] * 40, mark("Now."))[0] == written


def test_neither_a_deferred_tool_nor_a_message_of_the_system_loses_what_was_kept(upstream):
    late = {"name": "late", "input_schema": {}, "defer_loading": True}
    said = {"role": "user", "content": [mark(LONG)]}
    again = [
        said,
        {"role": "system", "content": "Go on."},
        {"role": "user", "content": [mark("Now.")]},
    ]
    reads = [
        upstream.use_cache(read_anthropic({"max_tokens": 9, "messages": messages, "tools": tools}))
        for messages, tools in (([said], []), (again, [late]), (again, []))
    ]
    assert reads[1].read == reads[0].written > 0
    assert (reads[2].read, reads[2].written) == (reads[1].read + reads[1].written, 0)


def test_a_short_beginning_is_not_kept(upstream):
    for _ in range(2):
        assert ask(upstream, mark("Begin."))[:2] == (0, 0)


def test_what_changes_a_cache(upstream):
    """Another model loses all of it, other thinking what follows the system prompt."""
    system = [mark(LONG)]
    _, written, _ = ask(upstream, mark("Now."), system=system, model="a")
    read, _, _ = ask(upstream, mark("Now."), system=system, model="a", thinking={"type": "enabled"})
    assert 1_024 < read < written
    assert ask(upstream, mark("Now."), system=system, model="a")[:2] == (written, 0)
    assert ask(upstream, mark("Now."), system=system, model="b")[0] == 0
    tools = [{"name": "bash", "input_schema": {}, "cache_control": {"type": "ephemeral"}}]
    assert ask(upstream, mark("Now."), system=system, model="a", tools=tools)[0] == 0


def test_a_result_is_marked_outside_or_inside(upstream):
    for result in (
        {"type": "tool_result", "content": LONG, "cache_control": {"type": "ephemeral"}},
        {"type": "tool_result", "content": [mark(LONG)]},
    ):
        _, written, whole = ask(upstream, result)
        assert written == whole


def test_openai_keeps_any_beginning(upstream):
    asked = read_chat({"messages": [{"role": "user", "content": LONG}]})
    assert upstream.use_cache(asked).read == 0
    read = upstream.use_cache(asked).read
    assert read > 1_024
    assert read % 128 == 0
