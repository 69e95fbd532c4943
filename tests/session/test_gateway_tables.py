"""G-10: the operator's tables: what applies to which tenant, who wins, and what is wrong."""

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from foldline.errors import BadInput
from foldline.settings.fields import GATEWAY, find_setting
from foldline.settings.layers import list_problems, load_settings
from foldline.settings.tree import OF_TENANT

FILE = """
policy = "sliding"
summarizer = "gpt-6.1-sol"
compaction.overlap_size = 3
retention.days = 90
gateway.on_store_failure = "closed"

[profiles.long]
policy = "thrifty"
compaction.overlap_size = 7

[profiles.night]
policy = "classic"
compaction.invocation_threshold = 4

[gateway.tenants.acme]
profile = "long"
summarizer = "off"
model.max_input_tokens = 60000
retention.days = 7
retention.sessions = 100
on_store_failure = "open"

[gateway.tenants."exa.mple"]
policy = "window"
"""


@pytest.fixture
def load(tmp_path):
    """What is in force in a folder with a settings file of the operator."""

    def loaded(text=FILE, env=None, **given):
        (tmp_path / "foldline").mkdir(exist_ok=True)
        (tmp_path / "foldline" / "foldline.toml").write_text(text)
        places = {"XDG_CONFIG_HOME": str(tmp_path), **(env or {})}
        return load_settings(tmp_path, env=places, **given)

    return loaded


def test_a_tenant_has_its_profile_and_its_table_over_what_is_for_everybody(load):
    settings = load()
    own, other = settings.find_tenant("acme"), settings.find_tenant("nobody-named-it")
    assert own.gateway.on_store_failure == "open"
    assert (own.tenant, own.policy.name, own.policy.overlap) == ("acme", "thrifty", 7)
    assert (own.summarizer, own.model.max_input_tokens) == (("off",), 60_000)
    assert (own.retention.days, own.retention.sessions, own.retention.every_hours) == (7, 100, 24.0)
    assert other is settings
    assert other.gateway.on_store_failure == "closed"
    assert (other.policy.name, other.policy.overlap, other.retention.days) == ("sliding", 3, 90)
    assert other.retention.sessions is None


def test_a_tenant_s_name_may_have_dots_and_needs_no_profile(load):
    own = load().find_tenant("exa.mple")
    assert own.policy.name == "window"
    assert own.summarizer == ("gpt-6.1-sol",)
    assert own.origins["policy"].endswith("foldline.toml:25")
    assert own.gateway.on_store_failure == "closed"


def test_without_tables_everybody_has_the_settings(load):
    settings = load('policy = "sliding"')
    assert settings.tenants == {}
    assert settings.find_tenant("acme").policy.name == "sliding"


def test_a_tenant_s_profile_is_taken_instead_of_the_one_for_everybody(load):
    own = load(f'profile = "night"\n{FILE}').tenants
    assert (own["acme"].policy.name, own["acme"].policy.turns) == ("thrifty", None)
    assert (own["exa.mple"].policy.name, own["exa.mple"].policy.turns) == ("window", 4)


def test_the_command_line_wins_over_a_tenant_s_table(load):
    own = load(flags={"policy": "steady"}, profile="night").tenants
    assert {one.policy.name for one in own.values()} == {"steady"}
    assert {one.policy.turns for one in own.values()} == {4}
    assert own["acme"].summarizer == ("off",)


def test_a_tenant_wins_over_the_environment_as_a_profile_does(load):
    own = load(env={"FOLDLINE_SUMMARIZER": "other", "FOLDLINE_POLICY": "classic"}).tenants
    assert (own["acme"].summarizer, own["acme"].policy.name) == (("off",), "thrifty")
    assert (own["exa.mple"].summarizer, own["exa.mple"].policy.name) == (("other",), "window")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[gateway.tenants.acme]\nwindow = 5", 'there is no setting "gateway.tenants.acme.window"; a tenant\'s table has profile, policy'),
        ('[gateway.tenants.acme]\nprofile = "longer"\n[profiles.long]\npolicy = "thrifty"', "tenant acme: "),
        ('[gateway.tenants.acme]\npolicy = "best"', "write one of"),
        ('gateway.on_store_failure = "maybe"', "write one of open, closed"),
        ("[gateway.tenants.acme]\nretention.days = 0", "write a whole number above 0"),
        ("[gateway]\nport = 5", 'there is no setting "gateway.port"'),
        ('[gateway.tenants.acme]\npolicy = "steady"\ncompact_threshold = 0.9\nmodel.max_input_tokens = 1000\nmodel.max_output_tokens = 900', "tenant acme: "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_tenant_s_table_is_said_with_its_line(load, tmp_path, text, told):
    with pytest.raises(BadInput) as fault:
        load(text)
    said = " ".join(str(fault.value).split())
    assert told in said
    assert "foldline.toml:" in said
    file = tmp_path / "foldline" / "foldline.toml"
    assert list_problems(tmp_path, alone=file)


def test_an_untrusted_project_sets_nothing_for_tenants(load, tmp_path):
    (tmp_path / "foldline.toml").write_text('[gateway.tenants.acme]\non_store_failure = "open"\n')
    found = load("")
    assert [one.name for one in found.untrusted] == ["gateway.tenants.acme.on_store_failure"]
    assert found.find_tenant("acme").gateway.on_store_failure == "closed"


@drawn(
    general=st.sampled_from(["steady", "sliding", None]),
    profile=st.sampled_from(["thrifty", None]),
    table=st.sampled_from(["window", None]),
    flag=st.sampled_from(["classic", None]),
)
def test_the_strongest_that_says_something_wins(tmp_path_factory, general, profile, table, flag):
    text = f'policy = "{general}"\n' if general else ""
    text += "[profiles.p]\nshell.timeout = 3\n" + (f'policy = "{profile}"\n' if profile else "")
    text += '[gateway.tenants.t]\nprofile = "p"\n' + (f'policy = "{table}"\n' if table else "")
    folder = tmp_path_factory.mktemp("s")
    (folder / "foldline").mkdir()
    (folder / "foldline" / "foldline.toml").write_text(text)
    flags = {"policy": flag} if flag else {}
    found = load_settings(folder, env={"XDG_CONFIG_HOME": str(folder)}, flags=flags)
    wanted = flag or table or profile or general or "steady"
    assert found.tenants["t"].policy.name == wanted
    assert found.tenants["t"].shell.timeout == 3
    assert found.policy.name == (flag or general or "steady")


def test_every_setting_of_a_tenant_s_table_is_one_for_everybody_too():
    for name in OF_TENANT:
        own = find_setting(f"gateway.tenants.acme.{name.removeprefix(GATEWAY)}")
        usual = find_setting(name)
        assert usual is not None
        assert own is not None
        assert own.kind is usual.kind
        assert own.guarded
