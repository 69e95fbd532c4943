"""`foldline config`: what is in force and who says so, which files there are, what is wrong (A-08)."""

import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from foldline.settings.fields import SETTINGS, SLOT

ROOT = Path(__file__).parents[2]


@pytest.fixture
def user(tmp_path, monkeypatch):
    """The user's file and a project to stand in, with nothing from outside."""
    folder = tmp_path / "c" / "foldline"
    (tmp_path / "p" / "sub").mkdir(parents=True)
    (tmp_path / "p" / ".git").mkdir()
    folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
    monkeypatch.chdir(tmp_path / "p" / "sub")
    file = folder / "foldline.toml"
    file.write_text('model = "anthropic/claude-sonnet-5.5"\n\n[caps.day]\ndollars = 5\n')
    return file


@pytest.fixture
def project(user):
    file = user.parents[2] / "p" / "foldline.toml"
    file.write_text(
        'policy = "three-layer"\nstore = "postgresql://me:hush@db/x"\n'
        "[session]\nmax_tool_iterations = 30\n"
        '[mcp.servers.git]\ncommand = ["uvx", "mcp-git"]\nenv = { TOKEN = "hush" }\n'
    )
    return file


def tidy(ended):
    """As wide as a terminal, but for the paths, which can be copied."""
    lines = [line for line in ended.out.split("\n") if not line.endswith("/foldline.toml")]
    replace(ended, out="\n".join(lines)).tidy()


def rows(ended) -> dict[str, tuple[str, str]]:
    """The table's rows: name → value and origin."""
    found = (
        re.fullmatch(r"(\S+) +(.+?) +(\S+(?:, \S+)?)", line)
        for line in ended.out.split("\n")[1:]
        if not line.endswith("/foldline.toml")
    )
    return {one[1]: (one[2].strip(), one[3]) for one in found if one}


def test_each_value_with_who_says_so(cli, project, monkeypatch):
    monkeypatch.setenv("FOLDLINE_SESSION__ON_DISCONNECT", "continue")
    ended = cli("config", "show", "--set", "shell.enabled=off")
    tidy(ended)
    assert ended.code == 0
    told = rows(ended)
    assert told["model.name"] == ("anthropic/claude-sonnet-5.5", "user:1")
    assert told["caps.day.dollars"] == ("5", "user:4")
    assert told["policy"] == ("three-layer", "project:1")
    assert told["session.max_tool_iterations"] == ("30", "project:4")
    assert told["session.context.max_history_tokens"] == ("20_000", "policy")
    assert told["session.on_disconnect"] == ("continue", "environment")
    assert told["compaction.enabled"] == ("true", "default")
    assert told["shell.enabled"] == ("false", "flag")
    assert f"project  {project}" in ended.out.split("\n")
    assert "caps.call.tokens" not in ended.out
    assert re.search(r"^\d+ more are not set: --all lists them$", ended.out, re.MULTILINE)
    assert "caps.call.tokens" in cli("config", "show", "--all").out


@pytest.mark.usefixtures("project")
def test_what_is_held_back_is_said_and_no_secret_is_shown(cli):
    ended = cli("config", "show")
    tidy(ended)
    before, _, behind = ended.out.partition("The project's file is not trusted")
    assert "postgresql" not in before
    assert "postgresql://…@db/x" in behind
    assert "uvx, mcp-git" in behind
    assert "TOKEN=…" in behind
    body = cli("config", "show", "--json")
    assert "hush" not in ended.out + body.out
    assert [one["name"] for one in body.json["untrusted"]] == [
        "store",
        "mcp.servers.git.command",
        "mcp.servers.git.env",
    ]


@pytest.mark.usefixtures("user")
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:hush@db/x", "postgresql://…@db/x"),
        ("postgresql://db/x?password=hush", "postgresql://db/x?…"),
        ("postgresql://me:p%40hush@db:5/x?sslmode=no", "postgresql://…@db:5/x?…"),
        ("postgresql://me:p@/hush@db/x", "postgresql://…@db/x"),
        ("postgresql://db/x", "postgresql://db/x"),
    ],
)
def test_an_address_is_shown_without_who_goes_there(cli, address, shown):
    ended = cli("config", "show", "store", "--json", "--set", f"store={address}")
    assert ended.json["settings"][0]["value"] == shown


@pytest.mark.usefixtures("project")
def test_the_document_has_every_setting(cli):
    body = cli("config", "show", "--json").json
    assert [one["name"] for one in body["settings"]] == [
        one.name for one in SETTINGS if SLOT not in one.name
    ]
    first = next(one for one in body["settings"] if one["name"] == "session.max_tool_iterations")
    assert first["value"] == 30
    assert first["origin"].endswith("p/foldline.toml:4")
    assert first["env"] == "FOLDLINE_SESSION__MAX_TOOL_ITERATIONS"


def test_single_settings_and_tables(cli, user):
    assert [*rows(cli("config", "show", "caps.day"))] == [
        "caps.day.tokens",
        "caps.day.dollars",
    ]
    ended = cli("config", "show", "modle")
    assert ended.code == 1
    assert ended.err == "foldline: there is no setting 'modle'; did you mean model?\n"
    user.write_text('profile = "a"\n[profiles.a]\nmodel = "gpt-5"\n')
    assert rows(cli("config", "show", "model.name"))["model.name"] == ("gpt-5", "profile, user:3")
    assert cli("config", "show", "--set", "policy").err == (
        "foldline: --set policy: write NAME=VALUE, like --set policy=thrifty\n"
    )


def test_compaction_that_is_off_shows_who_starts(cli, user):
    user.write_text("[compaction]\nenabled = false\n")
    assert rows(cli("config", "show", "start"))["start"] == ("off", "user:2")


def test_which_files_are_looked_at(cli, project, user):
    ended = cli("config", "path")
    assert ended.code == 0
    assert ended.out == (
        f"user     read      {user}\n"
        f"project  not there {project.parent / 'sub' / 'foldline.toml'}\n"
        f"project  read      {project}\n"
    )
    assert cli("config", "path", "--json").json["files"][0] == {
        "whose": "user",
        "path": str(user),
        "read": True,
    }
    project.with_suffix(".yaml").write_text("")
    ended = cli("config", "path")
    assert ended.code == 1
    assert "keep foldline.toml, and remove foldline.yaml" in " ".join(ended.out.split())


def test_a_file_is_checked(cli, project, user):
    assert cli("config", "check", project).out == f"{project}: ok\n"
    assert cli("config", "check").out == "the settings in force here: ok\n"
    project.write_text('start = "never"\npolcy = "x"\n')
    ended = cli("config", "check", "../foldline.toml")
    assert ended.code == 1
    told = " ".join(ended.out.split())
    assert '../foldline.toml:1: start = "never": write one of auto, ask, manual, off' in told
    assert '../foldline.toml:2: there is no setting "polcy"; did you mean policy?' in told
    assert told.endswith("2 faults")
    user.write_text("nonsense = 1")
    assert len(cli("config", "check", "--json").json["faults"]) == 3
    ended = cli("config", "show")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("foldline: 3 settings are wrong: (1) ")


def test_the_page_has_every_setting():
    """docs/reference/settings.md has what the script makes of the code, and every name there is."""
    text = (ROOT / "docs" / "reference" / "settings.md").read_text()
    made = runpy.run_path(str(ROOT / "scripts" / "make_settings.py"))["tables"]()
    assert made in text, "run scripts/make_settings.py"
    named = re.findall(r"^\| `([^`]+)`(?: †)? \| `FOLDLINE_", text, re.MULTILINE)
    assert named == [one.name for one in SETTINGS]
