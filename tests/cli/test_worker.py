"""`foldline worker` before it works: what it needs, whom it asks. The rest is in tests/session/test_jobs.py."""

import pytest

from foldline.apps.cli import run_worker
from foldline.apps.cli.run_worker import SummarizerClients
from foldline.errors import BadInput


def test_sessions_in_a_file_need_no_worker(cli, tmp_path):
    ended = cli("worker", "--store", tmp_path / "talks.db").tidy()
    assert ended.code == 2
    assert "fold by themselves" in ended.err
    assert "postgresql://" in ended.err
    assert not (tmp_path / "talks.db").exists()


def test_without_its_extra_it_says_which(cli, monkeypatch):
    monkeypatch.setattr(
        run_worker, "find_spec", lambda name: None if name == "procrastinate" else name
    )
    ended = cli("worker", "--store", "postgresql://127.0.0.1:1/none").tidy()
    assert ended.code == 2
    assert "needs 'procrastinate'" in ended.err
    assert "foldline[worker]" in ended.err


def test_a_server_that_is_away_is_an_error_of_the_store(cli):
    ended = cli("worker", "--no-model", "--store", "postgresql://127.0.0.1:1/none").tidy()
    assert ended.code == 3
    assert "no connection to postgresql://127.0.0.1:1/none" in ended.err


def test_each_session_is_told_by_its_own_model_unless_one_is_named():
    asked = SummarizerClients(("model", "gpt-5"), base_url="http://127.0.0.1:1/v1")
    assert [one.name for one in asked("smollm2").models] == ["smollm2", "gpt-5"]
    assert asked("smollm2").models == asked("smollm2").models  # clients are kept
    named = SummarizerClients(("gpt-5-mini",), base_url="http://127.0.0.1:1/v1")
    assert [one.name for one in named("smollm2").models] == ["gpt-5-mini"]


def test_a_client_that_cannot_be_made_is_an_error_that_folds_go_without(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(BadInput, match="OPENAI_API_KEY"):
        SummarizerClients(("gpt-5",))("smollm2")
