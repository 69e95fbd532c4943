"""A-08: the papers' names as they stand, and what to write instead of a wrong one."""

import tomllib
from typing import Annotated, Literal

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from msgspec import field

from foldline.core.policy import PRESETS, STEADY, Clipping, Masking
from foldline.errors import BadInput
from foldline.settings import parse_settings, read
from foldline.settings.fields import (
    PREFIX,
    RESERVED,
    SETTINGS,
    SLOT,
    find_setting,
    find_setting_by_variable,
    iterate_settings,
    variable_of,
)
from foldline.settings.kinds import Positive, SettingError, format_setting_value
from foldline.settings.tree import (
    CapSettings,
    ServerSettings,
    SettingsTable,
    SettingsTree,
    free,
    guarded,
)

PAPER = """
policy = "three-layer"

[model]
provider = "anthropic"
name = "claude-sonnet-5.5"
max_input_tokens = 180000
max_output_tokens = 8000

[session]
on_disconnect = "pause"
max_tool_iterations = 25

[session.context]
max_history_tokens = 20000
max_tool_result_tokens = 8000
tool_result_truncation = "both"
tool_result_keep_first = 2
tool_result_keep_last = 5

[context.tools.bash]
max_tool_result_tokens = 3000
tool_result_truncation = "tail"

[compaction]
enabled = true
invocation_threshold = 5
overlap_size = 2
token_threshold = 700000
safety_ratio = 0.7
prompt_template = "file://summary.txt"
"""


def test_a_whole_file():
    found = read(tomllib.loads(PAPER))
    policy = found.policy
    model = found.model
    assert (model.name, model.provider) == ("anthropic/claude-sonnet-5.5", "anthropic")
    assert (model.max_input_tokens, model.max_output_tokens) == (180_000, 8_000)
    assert (policy.name, policy.fill, policy.mask) == ("three-layer", 20_000, Masking(2, 5))
    assert (policy.clip.tokens, policy.clip.how) == (8_000, "both")
    assert (policy.clipping("bash").tokens, policy.clipping("bash").how) == (3_000, "tail")
    assert policy.clipping("other") == policy.clip
    assert (policy.turns, policy.soft, policy.soft_tokens, policy.soft_of) == (
        5,
        0.7,
        700_000,
        "window",
    )
    assert policy.of == "room"  # the other tiers keep what they are shares of
    assert (found.policy.overlap, found.compaction.prompt_template) == (2, "file://summary.txt")
    assert (found.session.max_tool_iterations, found.session.on_disconnect) == (25, "pause")


def test_nothing_is_the_default():
    assert read({}).policy.name == "steady"


def test_dots_and_tables_are_the_same():
    dotted = read({"model.provider": "p", "model.name": "m"})
    assert dotted == read({"model": {"provider": "p", "name": "m"}})
    assert dotted.model.name == "p/m"


def test_a_name_with_a_slash_keeps_it():
    for given in (
        {"name": "meta/llama-4", "provider": "router"},
        {"provider": "router", "name": "meta/llama-4"},
    ):
        assert read({"model": given}).model.name == "router/meta/llama-4"


def test_zero_means_none_where_it_may():
    found = read(
        {
            "session": {"context": {"max_history_tokens": 0}},
            "compaction": {"invocation_threshold": 0},
        }
    )
    assert found.policy.fill is None
    assert found.policy.turns is None
    off = read({"session": {"context": {"tool_result_keep_first": 0, "tool_result_keep_last": 0}}})
    assert off.policy.mask == Masking(0, 0)  # which masks nothing


def test_compaction_can_be_switched_off():
    policy = read({"compaction": {"enabled": False}}).policy
    assert (policy.start, policy.priced) == ("off", None)


def test_the_model_in_one_word():
    """A text where a table could stand is all of the name, whatever was the provider."""
    found = read({"model": "anthropic/claude-sonnet-5.5"})
    assert found.values == {"model.provider": "", "model.name": "anthropic/claude-sonnet-5.5"}
    assert (found.model.name, found.model.provider) == ("anthropic/claude-sonnet-5.5", "anthropic")
    assert read({"model": "gpt-5"}).model.provider == ""


def test_a_threshold_of_a_provider_goes_first():
    """A-08: per provider before global, and only for its own models."""
    given = {"compact_threshold": 0.7, "providers": {"anthropic": {"compact_threshold": 0.5}}}
    assert read({**given, "model": "anthropic/x"}).policy.soft == 0.5
    assert read({**given, "model": "openai/x"}).policy.soft == 0.7
    assert read({**given, "model": "x"}).policy.soft == 0.7


@pytest.mark.parametrize("start", ["ask", "manual", "off"])
def test_who_starts_folds(start):
    """A-36: what is not started by itself is not looked for; asking has a moment to ask at."""
    policy = read({"start": start}).policy
    assert (policy.start, policy.priced) == (start, None)
    assert policy.soft == (0.7 if start == "ask" else None)
    assert read({"start": "auto"}).policy == STEADY
    assert read({"start": start, "compact_threshold": 0.5}).policy.soft == 0.5


def test_a_preset_that_asks_is_left_as_it_is():
    assert read({"policy": "confirm"}).policy == PRESETS["confirm"]
    assert read({"policy": "confirm", "start": "auto"}).policy.start == "auto"


def test_one_end_of_what_is_kept_leaves_the_other():
    given = {"session": {"context": {"tool_result_keep_first": 1}}}
    assert read({"policy": "three-layer", **given}).policy.mask == Masking(1, 5)
    assert read(given).policy.mask == Masking(1, 0)


def test_a_tool_keeps_what_nobody_changes():
    """A-12: a reader's cap is the preset's own, also where only its way of cutting is set."""
    found = read({"context": {"tools": {"read_file": {"tool_result_truncation": "head"}}}}).policy
    assert found.clipping("read_file") == Clipping(STEADY.clipping("read_file").tokens, "head")
    assert found.clipping("bash") == STEADY.clip


def test_servers_limits_and_the_rest_are_typed():
    found = read(
        {
            "caps": {"turn": {"tokens": 5}, "day": {"dollars": 2}},
            "mcp": {
                "servers": {"a.b": {"command": ["x"], "env": {"K": "v"}}, "c": {"url": "http://h"}}
            },
            "summarizer": ["gpt-5", "model"],
            "instructions": "Be brief.",
            "approval": {"mode": "edits", "allow": ["git *"]},
            "shell": {"timeout": 5, "enabled": False},
        }
    )
    assert (found.caps.turn, found.caps.day) == (CapSettings(tokens=5), CapSettings(dollars=2.0))
    assert found.mcp.servers == {
        "a.b": ServerSettings(command=("x",), env={"K": "v"}),
        "c": ServerSettings(url="http://h"),
    }
    assert found.summarizer == ("gpt-5", "model")
    assert found.instructions.text == "Be brief."
    assert (found.approval.mode, found.approval.allow) == ("edits", ("git *",))
    assert (found.shell.timeout, found.shell.enabled) == (5.0, False)
    assert read({"summarizer": "off"}).summarizer == ("off",)


CONTEXT = "session.context."
WRONG = [
    (
        {"session": {"context": {"max_tool_result_tokens": 0}}},
        f"{CONTEXT}max_tool_result_tokens = 0: write a whole number above 0; for no limit, a very large one",
    ),
    (
        {"session": {"context": {"max_tool_result_tokns": 5}}},
        (
            f'there is no setting "{CONTEXT}max_tool_result_tokns"; '
            f"did you mean {CONTEXT}max_tool_result_tokens?"
        ),
    ),
    (
        {"session": {"context": {"tool_result_truncation": "middle"}}},
        f'{CONTEXT}tool_result_truncation = "middle": write one of head, tail, both, lines, ends',
    ),
    (
        {"compaction": {"safety_ratio": 70}},
        "compaction.safety_ratio = 70: write a share of the window between 0 and 1, like 0.7",
    ),
    (
        {"compact_threshold": True},
        "compact_threshold = true: write a share of the window between 0 and 1, like 0.7",
    ),
    (
        {"compact_threshold": 0},
        "compact_threshold = 0: write a share of the window between 0 and 1, like 0.7",
    ),
    ({"compaction": {"enabled": "yes"}}, 'compaction.enabled = "yes": write true or false'),
    (
        {"model": {"name": 5}},
        "model.name = 5: write a name in quotes, in one line, without control characters",
    ),
    (
        {"model": {"name": " "}},
        'model.name = " ": write a name in quotes, in one line, without control characters',
    ),
    (
        {"model": {"name": "a\x1b[2J"}},
        'model.name = "a\\u001b[2J": write a name in quotes, in one line, without control characters',
    ),
    ({"model": 5}, "model = 5: write it in quotes, or [model] and lines below it"),
    (
        {"model": {"max_input_tokens": -5}},
        "model.max_input_tokens = -5: write a whole number above 0; for no limit, a very large one",
    ),
    (
        {"model": {"max_input_tokens": 10**5_000}},
        "model.max_input_tokens = a value that cannot be shown: write a whole number above 0; for no limit, a very large one",
    ),
    (
        {"session": {"on_disconnect": "die"}},
        'session.on_disconnect = "die": write one of pause, continue',
    ),
    (
        {"policy": "stedy"},
        'policy = "stedy": write one of steady, thrifty, three-layer, classic, sliding, window, confirm, off',
    ),
    ({"colour": "blue"}, 'there is no setting "colour"; `foldline config show` lists all'),
    (
        {"context": {"tools": {"bash": {"max_tool_result_token": 5}}}},
        (
            'there is no setting "context.tools.bash.max_tool_result_token"; '
            "did you mean context.tools.bash.max_tool_result_tokens?"
        ),
    ),
    (
        {"session": 5},
        (
            'there is no setting "session", it is a table: '
            "write [session], and below it lines like on_disconnect = …"
        ),
    ),
    (
        {"profiles": {"work": 5}},
        (
            'there is no setting "profiles.work", it is a table: '
            'write [profiles.work], and below it lines like model = "…"'
        ),
    ),
    (
        {"profiles": {"work": {"polcy": "steady"}}},
        'there is no setting "profiles.work.polcy"; did you mean profiles.work.policy?',
    ),
    (
        {"profiles": {"work": {"profile": "other"}}},
        (
            'there is no setting "profiles.work.profile": '
            "a profile does not choose another; take it away"
        ),
    ),
    (
        {"model": {"api_key": "sk-secret"}},
        (
            'there is no setting "model.api_key", and a file never holds a key: put it into an '
            'environment variable, and write model.key_env = "THE_VARIABLES_NAME"'
        ),
    ),
    (
        {"model": {"key_env": "sk-secret"}},
        (
            "model.key_env = …: write the name of the environment variable that holds the key, "
            'like "OPENAI_API_KEY", never the key itself'
        ),
    ),
    (
        {"model": {"base_url": "localhost:8080"}},
        'model.base_url = "localhost:8080": write an address, like "http://127.0.0.1:8080/v1"',
    ),
    (
        {"window": 5},
        'there is no setting "window"; did you mean model.max_input_tokens?',
    ),
    (
        {"model.name": "a", "model": {"name": "b"}},
        "model.name is written twice; keep one",
    ),
    (
        {"compact_threshold": 0.5, "compaction": {"safety_ratio": 0.7}},
        "compact_threshold and compaction.safety_ratio are two names for one thing; keep one",
    ),
    (
        {"caps": {"day": {"dollars": float("nan")}}},
        "caps.day.dollars = nan: write dollars, like 2.50",
    ),
    (
        {"summarizer": ["gpt-5", "off"]},
        (
            'summarizer = ["gpt-5","off"]: write a model\'s name, a list of them, '
            '"model" for the agent\'s own, or "off"'
        ),
    ),
    (
        {"mcp": {"servers": {"x": {"command": "npx server"}}}},
        (
            'mcp.servers.x.command = "npx server": write the program and its arguments as a list, '
            'like ["npx", "-y", "server"]'
        ),
    ),
    (
        {"mcp": {"servers": {"x": {"command": ["a"], "env": {"K": 5}}}}},
        'mcp.servers.x.env = …: write a table of texts, like { NAME = "value" }',
    ),
    (
        {"mcp": {"servers": {"x": {"seconds": 5}}}},
        (
            'mcp.servers.x has no address: write mcp.servers.x.command = ["PROGRAM"], '
            "or mcp.servers.x.url"
        ),
    ),
    (
        {"mcp": {"servers": {"x": {"command": ["a"], "url": "http://h"}}}},
        "mcp.servers.x has a command and a url; keep one",
    ),
    (
        {"approval": {"allow": "git"}},
        'approval.allow = "git": write a list of texts, like ["one", "two"]',
    ),
    ({"shell": {"timeout": 0}}, "shell.timeout = 0: write seconds above 0, like 120"),
]


@pytest.mark.parametrize(("given", "says"), WRONG, ids=[says[:40] for _, says in WRONG])
def test_a_wrong_setting_says_what_to_write(given, says):
    with pytest.raises(BadInput) as told:
        read(given)
    assert str(told.value) == says


def test_all_faults_are_told_at_once():
    with pytest.raises(BadInput) as told:
        read({"policy": "x", "start": "y", "nonsense_of_mine": 1})
    assert [part in str(told.value) for part in ("policy", "start", "nonsense")] == [True] * 3


def test_a_file_that_never_ends_is_not_read_to_its_end():
    """A YAML file's anchors make tables that are wide without limit, and tables in themselves."""
    wide: dict = {}
    for _ in range(12):
        wide = {f"t{at}": wide for at in range(9)}
    _, faults = parse_settings(wide)
    assert "5,000 names before it" in faults[-1].message
    inside: dict = {}
    inside["a"] = inside
    assert next(fault.message for fault in parse_settings(inside)[1]).startswith(
        "there is no setting"
    )


def test_names_of_variables_are_one_to_one():
    """Every setting has a variable, no two the same, and each leads back; ours are not among them."""
    names = [one.name for one in SETTINGS]
    assert len({variable_of(name) for name in names}) == len(names)
    for one in SETTINGS:
        name = one.name.replace(SLOT, "my_own__part")
        assert find_setting_by_variable(variable_of(name)) == name
        assert find_setting(name) is one
    assert not {variable_of(name) for name in names} & {f"{PREFIX}{word}" for word in RESERVED}
    assert find_setting_by_variable("FOLDLINE_STORE") == "store"
    assert find_setting_by_variable("FOLDLINE_MODELS") is None
    assert find_setting_by_variable("FOLDLINE_MODEL") == "model"


def test_every_default_passes_the_check_of_its_own_type():
    """Also those of the policy: an unset value is one that could be written."""
    for one in SETTINGS:
        default = one.read_policy(STEADY) if one.policy else one.default
        if default is not None:
            assert one.check_value(default) == default, one.name


def test_a_setting_is_one_field():
    """Name, variable, kind, guard and default all come from it, also in tables that users name."""

    class Extra(SettingsTable, frozen=True):
        most: Annotated[Positive, free("The most")] = 3
        how: Annotated[Literal["a", "b"] | None, guarded("How")] = None

    class Tree(SettingsTree, frozen=True):
        extra: Extra = Extra()
        extras: dict[str, Extra] = field(default_factory=dict)

    found = {one.name: one for one in iterate_settings(Tree)}
    most, how = found["extra.most"], found["extras.NAME.how"]
    assert (most.env, most.default, most.guarded) == ("FOLDLINE_EXTRA__MOST", 3, False)
    assert (how.kind.label, how.default, how.guarded) == ("a, b", None, True)
    assert (most.check_value(5), how.check_value("b")) == (5, "b")
    for one, value in ((most, 0), (most, "5"), (most, True), (how, "c"), (how, None)):
        with pytest.raises(SettingError, match="write"):
            one.check_value(value)


@drawn(st.sampled_from(SETTINGS), st.from_regex(r"[a-z0-9_-]{1,12}", fullmatch=True))
def test_whatever_stands_in_a_slot_leads_back(one, part):
    name = one.name.replace(SLOT, part)
    assert find_setting_by_variable(variable_of(name)) == name


PARTS = st.sampled_from(
    sorted(
        {part for one in SETTINGS for part in one.name.split(".")} | {"profiles", "work", "model"}
    )
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**4_500, 10**4_501),
    st.floats(),
    st.text(max_size=8),
    st.dates(),
    st.binary(max_size=3),
    st.lists(st.text(max_size=4) | st.integers(), max_size=3),
)
TABLES = st.recursive(
    LEAVES,
    lambda inner: st.dictionaries(PARTS | st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@drawn(
    st.dictionaries(
        PARTS | st.text(max_size=6) | st.sampled_from([k.name for k in SETTINGS]),
        TABLES,
        max_size=5,
    )
)
def test_whatever_is_given_is_settings_or_a_message(given):
    """Never another error; and each fault has words that name its setting."""
    _, faults = parse_settings(given)
    for fault in faults:
        assert (
            (fault.name in fault.message)
            or (format_setting_value(fault.name) in fault.message)
            or "twice" in fault.message
        )
    told = ""
    try:
        read(given)
    except BadInput as fault:
        told = str(fault)
        assert told.strip()
    assert all(fault.message in told for fault in faults)
