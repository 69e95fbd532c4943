"""Codex works with the settings that docs/how-to/codex.md tells to write: as they stand but for the port."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from agents import RIG, install
from gateway_thread import Served
from scripted import start_provider
from upstream import SIDE_WORDS, prompt_of

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "codex.md").read_text()
(SETTINGS,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMPLAINT = "expected exactly one compaction output item"
LIMIT = "model_auto_compact_token_limit"


def run_codex(home: Path, prompt: str, *again: str) -> str:
    """One turn of Codex in a folder of its own: what it prints."""
    free = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    options = ("-c", 'model="gpt-5"', "-c", f"{LIMIT}=15000", *free)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "OPENAI_API_KEY": "sk-mine", "CI": "1"}
    command = [RIG / "codex/node_modules/.bin/codex", "exec", *again, *options, prompt]
    done = subprocess.run(
        command, cwd=home / "work", env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.real
@pytest.mark.parametrize("name", ["Foldline", "OpenAI"])
def test_codex_works_with_the_settings_of_the_page(tmp_path, name):
    """Both rows of the table on compaction: with a summary of the model's, and with a fold of ours."""
    install("codex")
    assert 'name = "Foldline"' in SETTINGS
    for words in (f"`{LIMIT}`", "| `OpenAI`, exactly |", COMPLAINT):
        assert words in " ".join(PAGE.split())
    (tmp_path / ".codex").mkdir()
    (tmp_path / "work").mkdir()
    store = str(tmp_path / "talks.db")
    with start_provider(tmp_path) as provider, Served(provider.url, store=store) as gateway:
        settings = SETTINGS.replace("http://127.0.0.1:8080", gateway.url)
        settings = settings.replace('name = "Foldline"', f'name = "{name}"')
        (tmp_path / ".codex" / "config.toml").write_text(settings)
        for turn in (1, 2, 3):
            again = ("resume", "--last") if turn > 1 else ()
            printed = run_codex(tmp_path, prompt_of(turn), *again)
            assert f"Turn {turn} is done" in printed
            assert COMPLAINT not in printed
        is_folded = any(live.view.list_folds() for live in gateway.conversations.list_held())
        sent = provider.list_sent()
    assert is_folded == (name == "OpenAI")
    assert any(SIDE_WORDS[1] in raw for raw in sent) == (name == "Foldline")  # a model's summary
    assert not [raw for raw in sent if "compaction_trigger" in raw or "foldline:1:" in raw]
