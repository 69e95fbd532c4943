"""M-2: `foldline fold` shows the summary that now stands; `test_repl` has /compact."""

import asyncio

from summary_prompts import FALSE, PROMPTS, TRUE, prose, talked

import foldline
from foldline.apps.cli.fold import summary_lines
from foldline.core.edits.fold import Loss
from foldline.core.edits.fold.handoff import PROSE
from foldline.testing import Provider

ANSWER = f"Here is the summary:\n\n{prose(*TRUE, FALSE[0])}"


def flat(text):
    """Without the breaks of a terminal's lines."""
    return " ".join(text.split())


def lost(**more):
    return Loss({}, (), (), 0, {}, 0, 0, 0, None, **more)


def test_a_long_summary_is_bounded_and_says_how_to_see_the_rest():
    long = "\n".join(f"- line {n}" for n in range(60))
    lines = summary_lines(lost(summary=long), rest="/recall log:9")
    assert lines[:2] == ["- line 0", "- line 1"]
    assert lines[39:] == ["- line 39", "… 20 more lines: /recall log:9"]
    assert summary_lines(lost(summary="- a\n- b"), rest="x") == ["- a", "- b"]
    assert summary_lines(lost(), rest="x") == []
    assert "\x1b" not in "".join(summary_lines(lost(summary="- \x1b[2Jx"), rest="x"))


def test_fold_prints_the_summary(cli, tmp_path, monkeypatch):
    """P5-21, P3-21: also as JSON, with the lines left out and why."""
    store = str(tmp_path / "talks.db")
    monkeypatch.setenv("FOLDLINE_STORE", store)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "ask.txt").write_text(PROMPTS["bullets"])

    async def make():
        for name in ("one", "two"):
            async with foldline.aopen(store, session=name, model="m", window=20_000) as s:
                await talked(s)

    asyncio.run(make())
    with Provider(lambda _: ANSWER) as there:
        given = ("--summarizer", f"openai/m@{there.url}/v1")
        given = (*given, "--template", (tmp_path / "ask.txt").as_uri())
        shown = cli("fold", "one", *given)
        body = cli("fold", "two", *given, "--json").json
        asked = next(one for one in there.asked if "messages" in one)
    assert shown.code == 0, shown.err
    text = flat(shown.out)
    places = [text.index(words) for words in (PROSE, *TRUE, "1 of 5 lines left out", "tokens became")]  # fmt: skip
    assert places == sorted(places)
    assert str(asked).count("Open questions and tasks") == 1
    assert body["summary"] == body["loss"]["summary"]
    assert all(one in body["summary"] for one in TRUE)
    assert body["loss"]["left_out"] == ["the number 14 does not occur in the events"]
    assert body["narrative"] == {"outcome": "told", "reason": ""}
