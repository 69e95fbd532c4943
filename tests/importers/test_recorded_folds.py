"""Compactions that agents recorded are folds of theirs; a file that has grown adds what is new."""

import json
from pathlib import Path

import pytest

from foldline.apps.cli.app import run_command
from foldline.core.log import Checkpointed, Folded, Opened, Rewound
from foldline.core.parts import text_of
from foldline.core.spine import Spine
from foldline.core.view import load
from foldline.importers import read
from foldline.importers.recorded_folds import LogDraft
from foldline.lab.recorded import convert_imported, convert_log

FILES = Path(__file__).parent / "files"
COMPACTED = {"claude.jsonl": "claude-code", "codex.jsonl": "codex", "pi.jsonl": "pi"}
OPENCODE = FILES / "opencode.json"


def taken(text, name, draft=None):
    """A file's session, put behind what a draft has."""
    draft = draft or LogDraft()
    assert draft.add_session(read(text, name)[0]) is not None
    return LogDraft.of_stored(draft.events)


def shown(draft):
    """What the model would see."""
    return [(item.role, text_of(item.parts)) for item in draft._view.items]


def plain(draft):
    """The file's events in a log, summaries apart."""
    return [one for one in draft.file_events if not isinstance(one, Opened)]


@pytest.mark.parametrize("name", COMPACTED)
def test_c6_a_recorded_compaction_is_a_fold_of_its_agent(name):
    draft = taken((FILES / name).read_text(), name)
    folds = [one for one in draft.events if isinstance(one, Folded)]
    assert [one.client for one in folds] == [COMPACTED[name]] * len(folds) != []
    summary = next(one.body for one in draft.events if isinstance(one, Checkpointed) and one.label == "compaction")  # fmt: skip
    assert folds[0].text == summary
    assert draft._view.tokens < load(Spine(), dict(enumerate(draft.events)), head=len(draft.events) - 1).tokens  # fmt: skip


def record(uuid, parent, **body):
    return {"uuid": uuid, "parentUuid": parent, "sessionId": "s-1", "timestamp": "2026-01-02T03:04:05Z", **body}  # fmt: skip


def says(uuid, parent, text):
    return record(uuid, parent, type="user", message={"role": "user", "content": text})


def answers(uuid, parent, text, of):
    blocks = [{"type": "text", "text": text}]
    message = {"id": of, "role": "assistant", "model": "claude-sonnet-4-5", "content": blocks}
    return record(uuid, parent, type="assistant", message=message)


def file_of(*records):
    return "\n".join(json.dumps(one) for one in records)


@pytest.mark.parametrize("name", [one.name for one in sorted(FILES.iterdir()) if one.suffix == ".jsonl"])  # fmt: skip
def test_c6_a_file_that_grows_is_one_session_wherever_it_was_read_before(name):
    """Each beginning of each file, then all of it: the same is shown as by reading it once."""
    text = (FILES / name).read_text()
    lines = text.split("\n")
    once = taken(text, name)
    for end in range(1, len(lines)):
        try:
            before = read("\n".join(lines[:end]), name)[0]
        except Exception:  # noqa: BLE001, S112 - too little to be told from another kind
            continue
        if before.events[0].origin != once.events[0].origin or before.name != read(text, name)[0].name:  # fmt: skip
            continue
        draft = LogDraft()
        draft.add_session(before)
        draft = LogDraft.of_stored(draft.events)
        if draft.add_session(read(text, name)[0]) is None:
            assert not any(role == "user" for role, _ in shown(draft)), end
            continue
        assert shown(draft) == shown(once), end
        assert plain(draft) == plain(once), end
        again = LogDraft.of_stored(draft.events)
        assert again.add_session(read(text, name)[0]) == [], "a second time nothing is new"


def test_c6_an_answer_that_had_not_ended_and_a_way_not_taken_are_put_out_of_sight():
    first = [says("u1", None, "Why?"), answers("a1", "u1", "Because", "m1")]
    draft = taken(file_of(*first), "s.jsonl")
    grown = taken(file_of(*first, answers("a2", "a1", "of the end.", "m1")), "s.jsonl", draft)
    assert shown(grown) == [("user", "Why?"), ("model", "Because\nof the end.")]
    other = [*first, says("u2", "a1", "Left."), says("u3", "a1", "Taken."), answers("a3", "u3", "Yes.", "m2")]  # fmt: skip
    turned = taken(file_of(*other), "s.jsonl", taken(file_of(*first, says("u2", "a1", "Left.")), "s.jsonl"))  # fmt: skip
    assert [text for _, text in shown(turned)] == ["Why?", "Because", "Taken.", "Yes."]
    assert sum(isinstance(one, Rewound) for one in turned.events) == 1


def test_c6_another_session_of_the_same_name_is_another():
    draft = taken(file_of(says("u1", None, "One"), answers("a1", "u1", "a", "m")), "s.jsonl")
    other = read(file_of(says("u1", None, "Two"), answers("a1", "u1", "a", "m")), "s.jsonl")[0]
    assert draft.add_session(other) is None
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a"}]
    kept = taken(json.dumps(chat), "chat.json")
    chat[1]["content"] = "b"
    assert kept.add_session(read(json.dumps(chat), "chat.json")[0]) is None, "chats have no ids"


def test_c6_a_log_that_an_earlier_release_imported_gets_its_fold():
    session = read((FILES / "pi.jsonl").read_text(), "pi.jsonl")[0]
    old = LogDraft.of_stored(session.events)
    new = old.add_session(session)
    assert [one.client for one in new] == ["pi"]
    assert shown(old) == shown(taken((FILES / "pi.jsonl").read_text(), "pi.jsonl"))


@pytest.mark.parametrize("name", COMPACTED)
def test_c6_the_lab_reads_the_same_from_the_store_as_from_the_file(name):
    session = read((FILES / name).read_text(), name)[0]
    draft = LogDraft()
    draft.add_session(session)
    stored = convert_log(session.name, draft.events)
    assert stored.events == convert_imported(session).events


def test_c6_the_recorded_session_is_shown_as_its_agent_sent_it_dated_and_told_as_not_ours(shared, tmp_path, monkeypatch, capsys):  # fmt: skip
    """It was 261 % of its window, without a fold, of today."""
    monkeypatch.setenv("FOLDLINE_STORE", str(tmp_path / "s.db"))
    file = str(shared / "data" / "pi_session_opus45.jsonl.gz")

    def ran(*words):
        capsys.readouterr()
        run_command([*words])
        return capsys.readouterr().out

    ran("import", file, "--as", "pi")
    drawn = json.loads(ran("context", "pi", "--json"))
    assert drawn["total"] < 1.1 * drawn["window"], "by an estimate; its provider counted 168,018"
    assert [fold["client"] for fold in drawn["folds"]] == ["pi"]
    assert ", by pi" in ran("context", "pi")
    assert "pi, not ours" in ran("history", "pi", "--folds")
    (listed,) = json.loads(ran("sessions", "--json"))["sessions"]
    assert listed["happened"] < listed["changed"] - 86_400 * 30, "its own date"
    assert json.loads(ran("import", file, "--as", "pi", "--json"))["sessions"][0]["added"] == 0


def test_c6_own_titles_are_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FOLDLINE_STORE", str(tmp_path / "s.db"))
    title = record("t1", "a1", type="ai-title", aiTitle="Mend the parser")
    file = tmp_path / "s.jsonl"
    file.write_text(file_of(says("u1", None, "Why?"), answers("a1", "u1", "So.", "m"), title))
    assert run_command(["import", str(file)]) == 0
    capsys.readouterr()
    run_command(["sessions"])
    assert "Mend the parser" in capsys.readouterr().out


def test_c6_gemini_and_opencode_compactions_are_folds_too():
    snapshot = {"id": "m3", "type": "user", "content": [{"text": "<state_snapshot>all</state_snapshot>"}]}  # fmt: skip
    lines = [
        {"sessionId": "g", "projectHash": "p"},
        {"id": "m1", "type": "user", "content": "Question"},
        {"id": "m2", "type": "gemini", "content": "Answer", "tokens": {"input": 9, "output": 1}},
        {"$set": {"messages": [snapshot, {"id": "m4", "type": "gemini", "content": "Got it."}]}},
        {"id": "m5", "type": "user", "content": "Next"},
    ]
    draft = taken("\n".join(map(json.dumps, lines)), "g.jsonl")
    assert [text for _, text in shown(draft)] == ["<state_snapshot>all</state_snapshot>", "Got it.", "Next"]  # fmt: skip
    newer = {"type": "compaction", "id": "c", "summary": "So far.", "firstKeptEntryId": "u2", "timestamp": "t"}  # fmt: skip
    entries = [
        {"type": "session", "id": "s", "cwd": "/", "timestamp": "t"},
        *({"type": "message", "id": f"u{at}", "message": {"role": "user", "content": f"say {at}"}} for at in (1, 2)),
        newer,
    ]  # fmt: skip
    kept = taken("\n".join(map(json.dumps, entries)), "p.jsonl")
    assert [text for _, text in shown(kept)] == ["So far.", "say 2"]
