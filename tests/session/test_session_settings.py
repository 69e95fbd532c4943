"""The settings of one session: who wins, per provider and per profile, and who narrates."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from foldline.core.policy import PRESETS
from foldline.errors import BadInput
from foldline.session.session_settings import (
    GIVEN,
    make_facts_of,
    make_preparation,
    resolve_session_settings,
)
from foldline.settings import read
from foldline.settings.layers import load_settings
from foldline.testing import ScriptedModel


@pytest.fixture
def load(tmp_path):
    """What is in force in a folder with a settings file of the user."""

    def loaded(text="", **given):
        (tmp_path / "foldline").mkdir(exist_ok=True)
        (tmp_path / "foldline" / "foldline.toml").write_text(text)
        return load_settings(tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path)}, **given)

    return loaded


def policy_of(settings, model="m", **recorded):
    return resolve_session_settings(settings, model, recorded).policy


def test_the_policy_is_the_command_line_s_then_the_maker_s_then_the_file_s(load):
    file = 'policy = "sliding"'
    said = load(file)
    assert policy_of(said).name == "sliding"
    assert policy_of(said, policy="window").name == "sliding"  # a session's record is no wish
    assert policy_of(said, policy="window", **{GIVEN: True}).name == "window"
    line = load(file, flags={"policy": "classic"})
    assert policy_of(line, policy="window", **{GIVEN: True}).name == "classic"
    assert policy_of(load(), policy="window").name == "window"
    assert policy_of(load()).name == "steady"
    assert policy_of(load(), policy="a policy of my own").name == "steady"


def test_what_else_is_set_is_on_top_of_whichever_policy_counts(load):
    said = load("compaction.invocation_threshold = 2\nsession.context.max_tool_result_tokens = 77")
    for left in PRESETS:
        found = policy_of(said, policy=left)
        assert (found.name, found.turns, found.clip.tokens) == (left, 2, 77)


def test_a_provider_s_threshold_counts_for_its_models_however_they_are_named(load):
    said = load(
        "compact_threshold = 0.5\n[providers.anthropic]\ncompact_threshold = 0.6\n"
        "[providers.ollama]\ncompact_threshold = 0.7\n[profiles.b]\ncompact_threshold = 0.4"
    )
    names = {"claude-sonnet-5.5": 0.6, "anthropic/x": 0.6, "ollama/llama3": 0.7, "gpt-5": 0.5}
    assert {name: policy_of(said, name).soft for name in names} == names
    by_profile = load(
        "compact_threshold = 0.5\n[providers.anthropic]\ncompact_threshold = 0.6\n"
        "[profiles.b]\ncompact_threshold = 0.4",
        profile="b",
    )
    assert {policy_of(by_profile, name).soft for name in names} == {0.4}


def test_the_window_is_the_line_s_then_the_session_s_then_the_file_s(load):
    file = "model.max_input_tokens = 9000\nmodel.max_output_tokens = 900"
    facts_of = make_facts_of(load(file))
    assert facts_of("m", {}).limits.window == 9_000
    assert facts_of("m", {"window": 8_000, "reserve": None}).limits.window == 8_000
    line = make_facts_of(load(file, flags={"model.max_input_tokens": 7_000}))
    assert line("m", {"window": 8_000}).limits.window == 7_000


def test_a_window_is_for_the_model_that_the_file_names(load):
    """A gateway relays other models as well."""
    facts_of = make_facts_of(load('model.name = "mine"\nmodel.max_input_tokens = 9000'))
    assert facts_of("mine", {}).limits.window == 9_000
    assert facts_of("openai/mine", {}).limits.window == 9_000
    assert facts_of("other", {}).limits.window == make_facts_of(load())("other", {}).limits.window


@drawn(
    st.sampled_from(sorted(PRESETS)),
    st.integers(1, 9),
    st.integers(50, 5_000),
    st.sampled_from(["m", "anthropic/c", "gemini-2.5-flash"]),
)
def test_the_facts_are_those_of_open_with_the_same_settings(preset, turns, clip, model):
    """Whatever is set: the rule for stored sessions and that for `open` are one."""
    from foldline.session.use_settings import build_open_arguments  # noqa: PLC0415 - seldom needed

    settings = read({
        "policy": preset, "compaction.invocation_threshold": turns, "model.name": model,
        "session.context.max_tool_result_tokens": clip, "model.max_input_tokens": 50_000,
        "providers.openai.compact_threshold": 0.55,
    })  # fmt: skip
    arguments = build_open_arguments(settings)
    facts = make_facts_of(settings)(model, {"policy": preset, "window": arguments["window"]})
    assert facts.policy == arguments["policy"]
    assert facts.limits.window == arguments["window"]


def narrator_of(settings, client_of, *, model="own"):
    prepare = make_preparation(settings, client_of)
    if prepare is None:
        return None
    live = SimpleNamespace(spending=None, narrator=None, view=SimpleNamespace(model=model))
    asyncio.run(prepare(live))
    return live.narrator._tellers_of(model)


def test_nobody_narrates_unless_a_summarizer_is_set(load):
    """Where a key or a bill is at stake: `wrap`, relay, session API."""
    client = ScriptedModel(lambda _: "ok")
    assert narrator_of(load(), lambda _: client) is None
    assert narrator_of(load('summarizer = "off"'), lambda _: client) is None


def test_the_summarizers_are_asked_with_the_template_that_is_set(load):
    asked = []

    def client_of(name):
        asked.append(name)
        return ScriptedModel(lambda _: "ok", name=name)

    said = load(
        'summarizer = ["model", "gpt-5-mini"]\ncompaction.prompt_template = "Tell it: {words}"'
    )
    tellers = narrator_of(said, client_of)
    assert [one.name for one in tellers.models] == asked == ["own", "gpt-5-mini"]
    assert tellers.template == "Tell it: {words}"


def test_wrap_takes_settings_and_nothing_else_for_them():
    import openai  # noqa: PLC0415 - an extra

    import foldline  # noqa: PLC0415

    with (
        openai.OpenAI(api_key="none") as client,
        pytest.raises(BadInput, match="load_settings"),
    ):
        foldline.wrap(client, settings={"policy": "window"})
