"""What each agent is given, and what is refused: from the files that a user may have."""

import json
import tomllib
from pathlib import Path

import pytest

from foldline.apps.run.agent_setups import PROVIDERS, Surroundings, find_setup
from foldline.errors import BadInput

BASE = "http://127.0.0.1:5555"


@pytest.fixture
def found(tmp_path):
    """Surroundings with nothing in them; files and variables are added by tests."""

    def make(environment=None, *, arguments=(), **files):
        for path, content in files.items():
            file = tmp_path / "home" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content if isinstance(content, str) else json.dumps(content))
        return Surroundings(environment or {}, tmp_path / "home", tmp_path / "work", arguments)

    return make


def launch(agent, found, tmp_path):
    return find_setup(agent)(found, BASE, tmp_path)


def test_claude_with_a_key(found, tmp_path):
    made = launch("/usr/bin/claude", found({"ANTHROPIC_API_KEY": "k"}), tmp_path)
    assert made.environment == {"ANTHROPIC_BASE_URL": BASE}
    assert (made.arguments, made.login, made.remarks) == ((), "key", ())
    assert made.upstreams == PROVIDERS


def test_claude_with_its_own_login_has_no_prices(found, tmp_path):
    made = launch("claude", found(), tmp_path)
    assert made.login == "subscription"
    assert "figures are tokens" in made.remarks[0]


def test_an_address_in_claudes_settings_is_the_upstream_and_gives_way(found, tmp_path):
    own = {"env": {"ANTHROPIC_BASE_URL": "http://proxy:1", "ANTHROPIC_AUTH_TOKEN": "t"}}
    made = launch("claude", found(**{".claude/settings.json": own}), tmp_path)
    assert made.upstreams["anthropic"] == "http://proxy:1"
    assert made.login == "key"
    option, settings = made.arguments
    assert option == "--settings"
    assert json.loads(settings) == {"env": {"ANTHROPIC_BASE_URL": BASE}}


OTHER = {"env": {"ANTHROPIC_BASE_URL": "http://proxy:1", "ANTHROPIC_API_KEY": "sk-secret"}, "a": 1}


@pytest.mark.parametrize("stated", ["in a file", "inline", "with =", "only a file of the user's"])
def test_settings_that_claude_is_given_go_past_no_gateway(found, tmp_path, stated):
    """The last `--settings` wins: there is one, with the user's own in it and this run's address."""
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(OTHER))
    option = {"inline": ["--settings", json.dumps(OTHER)], "with =": [f"--settings={file}"]}
    files = {}
    if stated.startswith("only"):
        file.write_text('{"a": 1}')
        files = {".claude/settings.json": OTHER}
    given = option.get(stated, ["--settings", str(file)])
    made = launch("claude", found(arguments=("-p", *given, "Say hi"), **files), tmp_path)
    assert made.upstreams["anthropic"] == "http://proxy:1"
    assert made.given == ("-p", "Say hi")
    name, written = made.arguments
    assert name == "--settings"
    assert "sk-secret" not in written, "command lines can be seen by others"
    settings = json.loads(Path(written).read_text())
    assert settings["a"] == 1
    assert settings["env"]["ANTHROPIC_BASE_URL"] == BASE
    assert stated.startswith("only") or settings["env"]["ANTHROPIC_API_KEY"] == "sk-secret"
    assert made.login == "key"


def test_settings_without_an_address_stay_the_users(found, tmp_path):
    given = ("--settings", '{"a": 1}', "Say hi")
    made = launch("claude", found({"ANTHROPIC_API_KEY": "k"}, arguments=given), tmp_path)
    assert (made.arguments, made.given) == ((), None)


def test_managed_settings_that_nothing_overrules_are_named_before_the_start(
    found, tmp_path, monkeypatch
):
    file = tmp_path / "managed-settings.json"
    file.write_text(json.dumps(OTHER))
    monkeypatch.setattr("foldline.apps.run.agent_setups._CLAUDE_MANAGED", (file,))
    with pytest.raises(BadInput, match="managed-settings"):
        launch("claude", found(), tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        ("-c", 'openai_base_url="http://proxy:1/v1"', "exec", "Go"),
        ("--config=openai_base_url=http://proxy:1/v1", "-c", "model=x", "exec", "Go"),
        ("exec", "--profile", "work", "Go"),
        ("-c", "model_provider=mine", "exec", "Go"),
    ],
)
def test_what_codex_is_given_goes_past_no_gateway(found, tmp_path, given):
    mine = '[model_providers.mine]\nbase_url = "http://proxy:1/v1"\n[profiles.work]\nmodel_provider = "mine"\n'
    files = {".codex/config.toml": mine, ".codex/auth.json": {"OPENAI_API_KEY": "k"}}
    made = launch("codex", found(arguments=given, **files), tmp_path)
    assert made.upstreams["openai"] == "http://proxy:1/v1"
    words = [*made.arguments, *(given if made.given is None else made.given)]
    stated = [word for word in words if "base_url" in word]
    assert [BASE in word for word in stated] == [True]
    assert words[-1] == "Go"
    assert ("model=x" in words) == ("model=x" in given)


@pytest.mark.parametrize(
    "own",
    [
        {".claude/settings.json": {"apiKeyHelper": "print-key"}},
        {".claude.json": {"primaryApiKey": "k"}},
        {"../work/.claude/settings.local.json": {"env": {"ANTHROPIC_API_KEY": "k"}}},
    ],
)
def test_claude_may_have_its_key_elsewhere(found, tmp_path, own):
    assert launch("claude", found(**own), tmp_path).login == "key"


def test_the_project_says_more_than_the_user(found, tmp_path):
    own = {
        ".claude/settings.json": {"env": {"ANTHROPIC_BASE_URL": "http://user:1"}},
        "../work/.claude/settings.json": {"env": {"ANTHROPIC_BASE_URL": "http://project:1"}},
    }
    made = launch("claude", found(**own), tmp_path)
    assert made.upstreams["anthropic"] == "http://project:1"


@pytest.mark.parametrize("variable", ["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"])
def test_claude_that_signs_its_requests_is_refused(found, tmp_path, variable):
    with pytest.raises(BadInput, match=f"{variable} is set: .* unset it"):
        launch("claude", found({variable: "1"}), tmp_path)


def read_options(made):
    """The settings that Codex is given by `-c`, as it reads them."""
    assert made.arguments[::2] == ("-c",) * (len(made.arguments) // 2)
    return tomllib.loads("\n".join(made.arguments[1::2]))


def test_codex_with_a_key(found, tmp_path):
    made = launch("codex", found({"CODEX_API_KEY": "k"}), tmp_path)
    assert read_options(made) == {"openai_base_url": f"{BASE}/v1"}
    assert made.upstreams["openai"] == PROVIDERS["openai"]


def test_codex_with_a_key_in_its_own_file(found, tmp_path):
    own = {".codex/auth.json": {"OPENAI_API_KEY": "k"}, ".codex/config.toml": "model = 'm'"}
    assert read_options(launch("codex", found(**own), tmp_path))


def test_codex_with_a_provider_of_ones_own(found, tmp_path):
    own = 'model_provider = "x"\n[model_providers.x]\nbase_url = "http://there/v1"\nenv_key = "K"\n'
    made = launch("codex", found(**{".codex/config.toml": own}), tmp_path)
    assert made.upstreams["openai"] == "http://there/v1"
    assert read_options(made)["model_providers"]["x"] == {
        "base_url": f"{BASE}/v1",
        "supports_websockets": False,
    }


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "CODEX_API_KEY"])
def test_codex_that_is_signed_in_with_chatgpt_is_not_offered(found, tmp_path, variable):
    """It would send that login, whatever variables say."""
    own = {".codex/auth.json": {"tokens": {"access_token": "t"}, "OPENAI_API_KEY": None}}
    with pytest.raises(BadInput, match="codex login --with-api-key"):
        launch("codex", found({variable: "k"}, **own), tmp_path)


def test_codex_does_not_read_the_key_of_other_programs(found, tmp_path):
    with pytest.raises(BadInput, match="or not at all"):
        launch("codex", found({"OPENAI_API_KEY": "k"}), tmp_path)


def test_codex_whose_login_is_in_the_keyring_is_believed(found, tmp_path):
    own = {".codex/config.toml": "cli_auth_credentials_store = 'keyring'"}
    assert read_options(launch("codex", found(**own), tmp_path))


def test_opencode_gets_settings_on_top_of_all_files(found, tmp_path):
    own = {
        "provider": {
            "mine": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://own/v1"}},
            "strange": {"npm": "@ai-sdk/strange", "options": {"baseURL": "http://strange"}},
        }
    }
    inline = {"theme": "x", "provider": {"anthropic": {"options": {"timeout": 5}}}}
    made = launch(
        "opencode",
        found(
            {"OPENCODE_CONFIG_CONTENT": json.dumps(inline)},
            **{".config/opencode/opencode.json": "// mine\n" + json.dumps(own)},
        ),
        tmp_path,
    )
    given = json.loads(made.environment["OPENCODE_CONFIG_CONTENT"])
    assert given["theme"] == "x"
    assert given["provider"]["anthropic"] == {"options": {"timeout": 5, "baseURL": f"{BASE}/v1"}}
    assert given["provider"]["mine"] == {"options": {"baseURL": f"{BASE}/v1"}}
    assert given["provider"]["google"]["options"]["baseURL"] == f"{BASE}/v1beta"
    assert "strange" not in given["provider"]
    assert made.upstreams["openai"] == "http://own/v1"


ACCOUNT = {"anthropic": {"type": "oauth", "access": "t"}, "openai": {"type": "api", "key": "k"}}


def test_pi_keeps_the_login_of_an_account_to_itself(found, tmp_path):
    made = launch("pi", found(**{".pi/agent/auth.json": ACCOUNT}), tmp_path)
    text = Path(made.arguments[1]).read_text()
    assert "openai" in text
    assert "anthropic" not in text, "such a login is for its vendor's own server"
    assert "signed in at anthropic with an account" in made.remarks[0]


def test_opencode_keeps_the_login_of_an_account_to_itself(found, tmp_path):
    made = launch("opencode", found(**{".local/share/opencode/auth.json": ACCOUNT}), tmp_path)
    given = json.loads(made.environment["OPENCODE_CONFIG_CONTENT"])["provider"]
    assert {"openai", "google"} == {*given}
    assert "signed in at anthropic with an account" in made.remarks[0]


def test_pi_gets_an_extension_for_the_run(found, tmp_path):
    models = {"providers": {"mine": {"api": "openai-responses", "baseUrl": "http://own/v1"}}}
    made = launch("pi", found(**{".pi/agent/models.json": models}), tmp_path)
    option, path = made.arguments
    assert option == "--extension"
    assert Path(path).parent == tmp_path, "it goes with the run's folder"
    text = Path(path).read_text()
    assert f'pi.registerProvider("anthropic", {{ baseUrl: "{BASE}" }});' in text
    assert f'pi.registerProvider("mine", {{ baseUrl: "{BASE}/v1" }});' in text
    assert made.upstreams["openai"] == "http://own/v1"


def choose_login(kind):
    return {".gemini/settings.json": {"security": {"auth": {"selectedType": kind}}}}


def test_gemini_with_a_key(found, tmp_path):
    made = launch("gemini", found(**choose_login("gemini-api-key")), tmp_path)
    assert made.environment == {"GOOGLE_GEMINI_BASE_URL": BASE}
    assert made.upstreams == PROVIDERS


@pytest.mark.parametrize("login", [choose_login("oauth-personal"), {}])
def test_gemini_with_a_google_account_is_not_offered_whatever_keys_there_are(
    found, tmp_path, login
):
    """Nor without a choice: it then looks for another login as soon as it is given an address."""
    with pytest.raises(BadInput, match="choose the API key"):
        launch("gemini", found({"GEMINI_API_KEY": "k"}, **login), tmp_path)


def test_gemini_reads_files_of_variables(found, tmp_path):
    lines = "# mine\nexport GOOGLE_GEMINI_BASE_URL='http://proxy:1'\nPATH=/x\n"
    own = {".gemini/.env": lines, **choose_login("gemini-api-key")}
    made = launch("gemini", found(**own), tmp_path)
    assert made.upstreams["google"] == "http://proxy:1"


@pytest.mark.parametrize("program", ["qwen", "aider", "./my-agent.sh"])
def test_any_other_program_gets_the_variables_of_sdks(found, tmp_path, program):
    made = launch(program, found({"OPENAI_API_BASE": "http://there/v1"}), tmp_path)
    assert (
        made.environment["OPENAI_API_BASE"] == made.environment["OPENAI_BASE_URL"] == f"{BASE}/v1"
    )
    assert made.environment["ANTHROPIC_BASE_URL"] == BASE
    assert made.upstreams == {**PROVIDERS, "openai": "http://there/v1"}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"env": 5}', '{"env": {"ANTHROPIC_BASE_URL": 7}}']
)
def test_files_that_say_nothing_are_no_fault(found, tmp_path, text):
    files = (".claude/settings.json", ".pi/agent/models.json", ".config/opencode/opencode.json")
    files += (".codex/config.toml", ".codex/auth.json")
    empty = found({"CODEX_API_KEY": "k"}, **dict.fromkeys(files, text))
    for agent in ("claude", "codex", "opencode", "pi"):
        assert launch(agent, empty, tmp_path).upstreams == PROVIDERS
