"""Facts read without a model: against an oracle on recorded runs, and by kind on small examples."""

import re
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

from foldline.core import ledger
from foldline.core.budget import limits
from foldline.core.ledger.collect import collect_facts
from foldline.core.log import ModelSaid, Opened, ToolReturned
from foldline.core.parts import Call, Fact, Text, Thought
from foldline.core.plan import Facts, Ready
from foldline.core.policy import STEADY, THRIFTY
from foldline.core.tokens import count_tokens
from foldline.testing import Planned, model, user, view_of


def call(name, given, text="done", *, ok=True, at=0):
    """A call and its result."""
    arguments = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    return [
        ModelSaid((Call(f"c{at}", name, arguments),)),
        ToolReturned(f"c{at}", (Text(text),), ok=ok),
    ]


def facts_of(*groups):
    events = [Opened("m"), *(event for group in groups for event in group)]
    view = view_of(events)
    return collect_facts(view.items, view.held)


def known(facts, kind):
    return {fact.key: fact.text for fact in facts if fact.kind == kind}


# Recorded runs against an oracle that reads them in its own way.


STATED = re.compile(r"^\[File: (.+?) \(\d+ lines total\)\]", re.MULTILINE)
REFUSED = ("Your proposed edit", "Error", "No such")


def oracle(run):
    """The last state of every file of a SWE-agent run, from its actions and observations."""
    seen = [step["observation"].replace("\r\n", "\n") for step in run["trajectory"]]
    stated = {path for text in seen for path in STATED.findall(text)}

    def whole(path):
        path = path.strip("\"'").removeprefix("./")
        longer = sorted(one for one in stated if one.startswith("/") and one.endswith("/" + path))
        return longer[0] if longer else path

    state, opened = {}, ""
    for step, text in zip(run["trajectory"], seen, strict=True):
        words = step["action"].split() or [""]
        if text.startswith(REFUSED) or "No such file" in text[:200]:
            continue
        shown = STATED.search(text)
        opened = whole(shown[1]) if shown else opened
        match words:
            case ["create" | "edit" | "insert", *_]:
                state[opened] = "written"
            case ["open" | "goto" | "scroll_down" | "scroll_up" | "set_cursors", *_] if shown:
                state.setdefault(opened, "read")
            case ["cat" | "head" | "tail" | "strings", path, *_]:
                state.setdefault(whole(path), "read")
            case ["rm", path]:
                state[whole(path)] = "removed"
            case [*_, ">", path]:
                state[whole(path)] = "written"
            case _:
                pass
    return state


def as_events(run):
    """A run as an agent with one shell tool would have logged it."""
    for n, step in enumerate(run["trajectory"]):
        arguments = msgspec.json.encode({"command": step["action"]}).decode()
        yield ModelSaid((Text(step["thought"]), Call(f"c{n}", "bash", arguments)))
        yield ToolReturned(f"c{n}", (Text(step["observation"]),))


def same(one, two):
    return one == two or one.endswith("/" + two) or two.endswith("/" + one)


def told_by(talk):
    """What the folds that stand say together, the later ones winning."""
    facts = ()
    for fold in talk.view.list_folds().values():
        facts = ledger.merge_facts(facts, fold.facts)
    return facts


def replayed(run):
    """A run lived through at a small window, then pushed out of sight whole: its facts, its folds."""
    talk = Planned(Facts(limits(12_000, None), STEADY), user(run["history"][1]["content"][:2_000]))
    for event in (*as_events(run), user("And now for something else. " * 300), model("Yes.")):
        talk.add(event)
        if not isinstance(event, ModelSaid) or event.parts == (Text("Yes."),):
            made = talk.plan()
            assert isinstance(made, Ready)
            talk.ask(made)
    made = talk.plan(Facts(talk.facts.limits, THRIFTY, now=True))
    talk.append(*made.events)
    return told_by(talk), len(talk.folds())


@pytest.mark.parametrize("way", ["at once", "through folds"])
def test_file_state_of_recorded_runs(recorded, way):
    """DESIGN §11: the last state of every file of 22 recorded runs, F1 ≥ 0.99."""
    hits = found = truth = folds = 0
    for run in recorded("swe_agent_demo_trajs.jsonl.gz"):
        if way == "at once":
            facts = facts_of(list(as_events(run)))
        else:
            facts, made = replayed(run)
            folds += made
        states = {path: text.split()[0] for path, text in known(facts, "file").items()}
        true = oracle(run)
        one = [p for p, w in true.items() if any(same(p, q) and v == w for q, v in states.items())]
        if len(one) != len(true) or len(one) != len(states):
            print(run["id"][-40:], states, true)
        hits, found, truth = hits + len(one), found + len(states), truth + len(true)
    f1 = 2 * hits / (found + truth)
    print(f"file state {way}: {hits} of {truth} true, {found} told, F1 {f1:.3f}, {folds} folds")
    assert f1 >= 0.99


# By kind.


PATCH = """*** Begin Patch
*** Update File: src/a.py
@@
-x = 1
+x = 2
*** Add File: src/new.py
+y = 1
*** Delete File: src/old.py
*** Update File: src/b.py
*** Move to: src/c.py
*** End Patch"""


@pytest.mark.parametrize(
    ("name", "given", "files"),
    [
        ("Read", {"file_path": "/r/a.py"}, {"/r/a.py": "read"}),
        ("Write", {"file_path": "/r/a.py", "content": "x"}, {"/r/a.py": "written sha256:2d711642b726"}),
        ("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "y"}, {"a.py": "written"}),
        ("MultiEdit", {"file_path": "a.py", "edits": []}, {"a.py": "written"}),
        ("NotebookEdit", {"notebook_path": "a.ipynb"}, {"a.ipynb": "written"}),
        ("read_file", {"path": "a.py"}, {"a.py": "read"}),
        ("read_many_files", {"paths": ["a.py", "b.py"]}, {"a.py": "read", "b.py": "read"}),
        ("write_file", {"path": "a.py", "content": ""}, {"a.py": "written sha256:e3b0c44298fc"}),
        ("replace_in_file", {"path": "a.py", "diff": "x"}, {"a.py": "written"}),
        ("delete_file", {"target_file": "a.py"}, {"a.py": "removed"}),
        ("mcp__filesystem__move_file", {"source": "a", "destination": "b"}, {"a": "moved to b", "b": "written"}),
        ("mcp__filesystem__read_text_file", {"path": "/x/y.md"}, {"/x/y.md": "read"}),
        ("filesystem.create_file", {"path": "/x/y.md"}, {"/x/y.md": "written"}),
        ("list_directory", {"path": "src"}, {}),
        ("Grep", {"path": "src", "pattern": "x"}, {}),
        ("str_replace_editor", {"command": "view", "path": "a.py"}, {"a.py": "read"}),
        ("str_replace_based_edit_tool", {"command": "create", "path": "a.py", "file_text": "x"}, {"a.py": "written sha256:2d711642b726"}),
        ("str_replace_editor", {"command": "insert", "path": "a.py", "insert_text": "z"}, {"a.py": "written"}),
        ("apply_patch", {"input": PATCH}, {"src/a.py": "written", "src/new.py": "written", "src/old.py": "removed", "src/b.py": "moved to src/c.py", "src/c.py": "written"}),
        ("apply_patch", PATCH, {"src/a.py": "written", "src/new.py": "written", "src/old.py": "removed", "src/b.py": "moved to src/c.py", "src/c.py": "written"}),
        ("apply_diff", {"diff": "--- a/x.py\n+++ b/x.py\n@@\n"}, {"x.py": "written"}),
        ("Bash", {"command": "cat a.py && rm b.py"}, {"a.py": "read", "b.py": "removed"}),
        ("shell", {"command": ["bash", "-lc", "echo hi > out.txt"]}, {"out.txt": "written"}),
        ("shell", {"command": ["cat", "a.py"], "workdir": "/r"}, {"/r/a.py": "read"}),
        ("exec_command", {"cmd": "mv a.py b.py"}, {"a.py": "moved to b.py", "b.py": "written"}),
        ("run_terminal_cmd", {"command": "git mv a.py b.py"}, {"a.py": "moved to b.py", "b.py": "written"}),
        ("get_weather", {"city": "Ulm"}, {}),
        ("broken", "not json {", {}),
    ],
)  # fmt: skip
def test_files_of_common_tools(name, given, files):
    """R-26: files by the tools of common agents; a hash where the whole was written."""
    assert known(facts_of(call(name, given)), "file") == files


def test_what_failed_changed_nothing():
    refused = [
        call("Edit", {"file_path": "a.py"}, "String to replace not found in file.", at=1),
        call("Write", {"file_path": "b.py", "content": "x"}, "denied", ok=False, at=2),
        call(
            "bash",
            {"command": "rm c.py"},
            "rm: cannot remove 'c.py': No such file or directory",
            at=3,
        ),
        call("bash", {"command": "cp d e"}, "oops\n[exit code: 1]", at=4),
    ]
    assert known(facts_of(*refused), "file") == {}


def test_the_last_state_of_a_file_holds():
    """Reads do not undo a change; what was removed and is read again is back."""
    steps = [("write", "written"), ("read", "written"), ("rm", "removed"), ("read", "back")]
    groups = []
    for at, (what, state) in enumerate(steps):
        command = {"write": "echo 1 > f.txt", "read": "cat f.txt", "rm": "rm f.txt"}[what]
        groups.append(call("bash", {"command": command}, at=at))
        assert known(facts_of(*groups), "file") == {"f.txt": state}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("all good\nexit code: 0", "exit 0"),
        ("boom\nProcess exited with code 2", "exit 2"),
        ('{"output": "x", "exit_code": 127}', "exit 127"),
        ("<exit_code>1</exit_code>", "exit 1"),
        ("x///PROCESS-DONE:0:PROCESS-DONE///", "exit 0"),
        ("fine", "ok"),
        ("bash: foo: command not found", "error"),
    ],
)
def test_commands_with_their_exit_status(text, status):
    """R-26."""
    facts = facts_of(call("bash", {"command": "make -j4 all"}, text))
    assert known(facts, "command") == {"make -j4 all": status}


RUNS = {
    "pytest": ("FAILED tests/test_a.py::test_x - assert 1 == 2\n1 failed, 3 passed in 0.1s", {"tests/test_a.py::test_x"}),
    "pytest -v": ("tests/test_a.py::test_x FAILED [ 50%]\ntests/test_a.py::test_y PASSED", {"tests/test_a.py::test_x"}),
    "python -m unittest": ("FAIL: test_x (mod.Case)\nAssertionError\nFAILED (failures=1)", {"test_x (mod.Case)"}),
    "go test ./...": ("--- FAIL: TestX (0.00s)\nFAIL\nexit status 1", {"TestX"}),
    "cargo test": ("test a::b ... FAILED\ntest a::c ... ok\ntest result: FAILED.", {"a::b"}),
    "npx jest": ("  ✕ adds numbers (3 ms)\n  ✓ subtracts (1 ms)", {"adds numbers"}),
}  # fmt: skip


@pytest.mark.parametrize("command", RUNS)
def test_failing_tests(command):
    """R-26: by the words of each runner; a later run in which all pass clears them."""
    text, failing = RUNS[command]
    run = call("bash", {"command": command}, text, ok=False, at=1)
    assert known(facts_of(run), "test") == dict.fromkeys(failing, "failed")
    passed = {"go test ./...": "ok  \tmod\t0.1s", "cargo test": "test result: ok. 2 passed"}
    good = passed.get(command, "OK" if "unittest" in command else "4 passed in 0.2s")
    good = "Tests:       2 passed, 2 total" if "jest" in command else good
    again = call("bash", {"command": command}, good, at=2)
    assert known(facts_of(run, again), "test") == {}
    # Where an earlier fold says that they failed, the later one says that they passed.
    view = view_of([Opened("m"), *again])
    later = collect_facts(view.items, view.held, older=facts_of(run))
    assert known(later, "test") == dict.fromkeys(failing, "passed")


def test_a_run_of_other_tests_clears_nothing():
    run = call("bash", {"command": "pytest"}, RUNS["pytest"][0], ok=False, at=1)
    other = call("bash", {"command": "pytest tests/test_b.py"}, "3 passed in 0.1s", at=2)
    assert known(facts_of(run, other), "test") == {"tests/test_a.py::test_x": "failed"}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("TodoWrite", {"todos": [{"content": "read it", "status": "completed"}, {"content": "fix it", "status": "in_progress"}]}),
        ("update_plan", {"plan": [{"step": "read it", "status": "completed"}, {"step": "fix it", "status": "in_progress"}]}),
        ("write_todos", {"todos": [{"description": "read it", "status": "done"}, {"description": "fix it", "status": "in_progress"}]}),
    ],
)  # fmt: skip
def test_tasks(name, given):
    """R-26: the newest list is the list."""
    old = call(name, {**given, next(iter(given)): [{"content": "older", "step": "older"}]}, at=1)
    assert known(facts_of(old, call(name, given, at=2)), "todo") == {
        "list": "[x] read it\n[~] fix it"
    }


def test_errors_links_names_and_decisions():
    """R-26: distinct error lines with how often they came, addresses, names, decisions."""
    said = [model("I decided to use msgspec instead of json. See HAT136 and parse_line.")]
    trace = "Traceback:\n  x\nValueError: bad row 7\nsee https://example.org/a?b=1."
    facts = facts_of(
        said,
        call("bash", {"command": "x"}, trace, ok=False),
        call("bash", {"command": "y"}, trace, ok=False, at=1),
    )
    assert known(facts, "error") == {"ValueError: bad row 7": ""}
    assert next(fact.count for fact in facts if fact.kind == "error") == 2
    assert known(facts, "link") == {"https://example.org/a?b=1": ""}
    assert "I decided to use msgspec instead of json." in known(facts, "said")
    assert {"HAT136", "parse_line"} <= set(known(facts, "name"))


def test_a_call_that_nobody_answered():
    """R-22, R-26: its outcome is unknown, and that is said."""
    events = [Opened("m"), ModelSaid((Call("c", "deploy", '{"to":"prod"}'),)), model("and then")]
    view = view_of(events)
    facts = collect_facts(view.items, view.held)
    assert list(known(facts, "call")) == ['deploy {"to":"prod"}']


# Merging.


SOME = st.builds(
    Fact,
    st.integers(0, 99),
    st.sampled_from(("file", "name", "test", "error", "todo", "command")),
    st.sampled_from("abc"),
    st.sampled_from(("read", "written", "removed", "moved to x", "back", "failed", "")),
    st.integers(1, 3),
)


def in_order(many):
    """One fact a thing, as a ledger holds them."""
    return ledger.merge_facts((), sorted(many, key=lambda fact: fact.seq))


@given(*[st.lists(SOME, max_size=6)] * 3)
def test_merging_is_associative(one, two, three):
    """Frozen folds may be merged in any grouping: the same facts come out."""
    a = in_order(one)
    b = in_order([msgspec.structs.replace(f, seq=f.seq + 100) for f in two])
    c = in_order([msgspec.structs.replace(f, seq=f.seq + 200) for f in three])
    assert ledger.merge_facts(ledger.merge_facts(a, b), c) == ledger.merge_facts(
        a, ledger.merge_facts(b, c)
    )


@given(st.lists(SOME, max_size=80), st.integers(0, 400))
def test_pages_stay_within_their_cap(many, cap):
    """What is shown is within the cap, and everything shown is stored."""
    facts = in_order([msgspec.structs.replace(f, key=f"{f.key}_{n}") for n, f in enumerate(many)])
    made = ledger.build_pages(facts, cap=cap)
    assert sum(count_tokens(block) + 1 for block in made.blocks) <= cap
    assert {*made.shown} <= {*made.stored} <= {*facts}


FRAMES = {
    "codex": "Chunk ID: 1f3a9c\nWall time: 0.0512 seconds\nProcess exited with code 0\nOriginal token count: {size}\nOutput:\n{text}",
    "codex, under way": "Chunk ID: 1f3a9c\nWall time: 1.0012 seconds\nProcess running with session ID 7\nOutput:\n{text}",
    "claude": "{text} (file state is current in your context - no need to Read it back)",
    "claude, a reminder": "{text}\n<system-reminder>\nThe deadline_{size} of the marker_{size} is near.\n</system-reminder>",
    "gemini": "{text}\nError: (none)\nSignal: (none)\nBackground PIDs: (none)\nProcess Group PGID: 4711{size}\n",
}  # fmt: skip
"""What agents write around what a tool printed."""
PRINTED = st.lists(
    st.from_regex(r"[a-z]{3,9}_[a-z]{3,9} is [0-9]{2,5} in [a-z]{3,8}/[a-z]{3,8}[.]py", fullmatch=True),
    min_size=1,
    max_size=6,
)  # fmt: skip


def find_frame_in_facts(frame, printed, command):
    """What the facts of a framed result have that those of the bare one lack."""
    texts = ["\n".join(printed), "nothing of note_1", "value_2 of it"]
    bare, framed = (
        facts_of(*(call("exec", {"cmd": f"{command} {at}"}, make(text, at), at=at) for at, text in enumerate(texts)))
        for make in (lambda text, _: text, lambda text, at: FRAMES[frame].format(text=text, size=31 + at))
    )  # fmt: skip
    words = lambda facts: {(fact.kind, fact.key, fact.text) for fact in facts if fact.kind != "command"}  # fmt: skip  # noqa: E731
    return words(framed) ^ words(bare)


@pytest.mark.parametrize("frame", FRAMES)
def test_what_an_agent_writes_around_a_result_is_no_fact(frame):
    """Of Codex' results 20 of 24 lines in a handoff were its own."""

    @given(printed=PRINTED, command=st.sampled_from(["cat a.txt", "rg x src", "make all"]))
    def check(printed, command):
        assert not find_frame_in_facts(frame, printed, command)

    check()


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_that_stays_is_noticed(frame):
    with broken("foldline.core.ledger.collect", "strip_frames(_COLOURS", "str(_COLOURS"):
        assert find_frame_in_facts(frame, ["alpha_beta is 12 in src/parse.py"], "cat a.txt")


def test_the_outcome_in_a_frame_is_read():
    text = FRAMES["codex"].format(text="boom", size=3).replace("code 0", "code 2")
    facts = facts_of(call("exec", {"cmd": "make all"}, text))
    assert known(facts, "command") == {"make all": "exit 2"}


# What a second reader found.


@pytest.mark.parametrize(
    ("groups", "kind", "found"),
    [
        # Prose is no exit status, and code that returns is no failure.
        ([("Read", {"file_path": "/r/a.py"}, "def f():\n    return 1\n")], "file", {"/r/a.py": "read"}),
        ([("Edit", {"file_path": "/r/a.py"}, "updated\n  11\treturn -1\n")], "file", {"/r/a.py": "written"}),
        ([("Bash", {"command": "cat notes.md"}, "Take exit 5 on the highway")], "command", {"cat notes.md": "ok"}),
        ([("bash", {"command": "cat app.log"}, "Error rate is 0\nfine")], "command", {"cat app.log": "ok"}),
        # A status at the head is sure; what stands at the end may be anything.
        ([("shell", {"command": "./check.sh"}, "Exit code: 1\nOutput:\ndef f():\n    return 0\n")], "command", {"./check.sh": "exit 1"}),
        # Files of the same name are not one file.
        ([("Write", {"file_path": "package.json"}), ("Write", {"file_path": "packages/web/package.json"})], "file", {"package.json": "written", "packages/web/package.json": "written"}),
        ([("Write", {"file_path": "config.py"}), ("bash", {"command": "rm src/config.py"})], "file", {"config.py": "written", "src/config.py": "removed"}),
        # What was done before a step that failed is done.
        ([("bash", {"command": "cat > /r/a.py <<'EOF'\nx\nEOF\npython /r/a.py"}, "boom\nexit code: 1")], "file", {"/r/a.py": "written"}),
        # Tools of common agents.
        ([("search_replace", {"file_path": "a.py", "old_string": "x"})], "file", {"a.py": "written"}),
        ([("edit", {"filePath": "a.py"})], "file", {"a.py": "written"}),
        ([("shell", {"command": ["apply_patch", PATCH]})], "file", {"src/a.py": "written", "src/new.py": "written", "src/old.py": "removed", "src/b.py": "moved to src/c.py", "src/c.py": "written"}),
        ([("shell", {"command": ["cat", "my file.txt"]})], "file", {"my file.txt": "read"}),
        ([("run_shell_command", {"command": "rm a/b.txt", "directory": "sub"})], "file", {"sub/a/b.txt": "removed"}),
        ([("read_many_files", {"paths": ["a/*.py"]})], "file", {}),
        ([("create_directory", {"path": "a"}), ("get_file_info", {"path": "b"})], "file", {}),
        ([("execute_bash", {"command": "cat a.py"}, "x\n[Current working directory: /w]"), ("execute_bash", {"command": "rm a.py"})], "file", {"/w/a.py": "removed"}),
        # Envelopes.
        ([("shell", {"command": "pytest"}, '{"output":"FAILED tests/t.py::test_a - boom","metadata":{"exit_code":1}}')], "test", {"tests/t.py::test_a": "failed"}),
        ([("read_file", {"path": "a"}, '{"error": null, "content": "x"}')], "file", {"a": "read"}),
        # Hashes by their own names.
        ([("bash", {"command": "md5sum a.bin"}, "d41d8cd98f00b204e9800998ecf8427e  a.bin")], "file", {"a.bin": "read md5:d41d8cd98f00"}),
        # Lists.
        ([("todowrite", {"todos": [{"content": "fix a\nand b", "status": "in_progress"}]})], "todo", {"list": "[~] fix a and b"}),
        ([("TodoWrite", {"todos": [{"content": "x"}]}), ("TodoWrite", {"todos": []})], "todo", {"list": ""}),
    ],
)  # fmt: skip
def test_as_agents_write(groups, kind, found):
    made = [call(*group, at=at) for at, group in enumerate(groups)]
    assert known(facts_of(*made), kind) == found


@pytest.mark.parametrize(
    "command", ["pytest -k test_a", "pytest tests/test_b.py", "cargo test a::x", "pytest --lf"]
)
def test_a_chosen_run_settles_only_what_it_names(command):
    failed = "FAILED tests/test_a.py::test_a\nFAILED tests/test_a.py::test_b\n2 failed"
    run = call("bash", {"command": "cd /repo && pytest"}, failed, ok=False, at=1)
    for told in ("1 passed, 5 deselected", "1 passed in 0.1s", "test result: ok. 1 passed"):
        again = call("bash", {"command": command}, told, at=2)
        assert len(known(facts_of(run, again), "test")) == 2
    whole = call("bash", {"command": "cd /repo && pytest"}, "6 passed in 1s", at=3)
    assert known(facts_of(run, again, whole), "test") == {}


def test_a_folder_lasts_until_another_is_told():
    """Runs in several repositories in one session: each file in the folder that its tool told."""
    told = "[File: /{}/fix.py (1 lines total)]\n1:"
    groups = [
        call(
            "bash", {"command": command}, told.format(repo) if command != "rm fix.py" else "", at=at
        )
        for at, (repo, command) in enumerate(
            (repo, command) for repo in ("one", "two") for command in ("create fix.py", "rm fix.py")
        )
    ]
    assert known(facts_of(*groups), "file") == {"/one/fix.py": "removed", "/two/fix.py": "removed"}


def test_names_are_names():
    """Escapes of JSON and colours of a terminal are no part of them."""
    args = '{"code": "x = 1\\nparse_line()\\n"}'
    facts = facts_of(call("run", args, "\x1b[33;21mprivate_key\x1b[0m"))
    assert {"parse_line", "private_key"} <= set(known(facts, "name"))
    assert not {"nparse_line", "21mprivate_key"} & set(known(facts, "name"))


def test_thoughts_are_no_facts():
    """R-24: what a model only thought is told by nobody."""
    facts = facts_of(
        [ModelSaid((Thought("I decided THOUGHT.", signature="s"), Text("Port 6120 is open.")))]
    )
    assert "THOUGHT" not in str(facts)
    assert [fact.key for fact in facts if fact.kind == "said"] == ["Port 6120 is open."]


def test_a_long_list_and_a_long_name_hide_nothing():
    """Of a list too long the open tasks stay; one long path does not push out the others."""
    tasks = [{"content": f"task {n} " + "x" * 90, "status": "completed"} for n in range(29)]
    tasks.append({"content": "the one in hand", "status": "in_progress"})
    facts = facts_of(call("TodoWrite", {"todos": tasks}))
    for cap in (300, 600, 2_000):
        assert "[~] the one in hand" in "\n".join(ledger.build_pages(facts, cap=cap).blocks)
    paths = [f"src/file_{n}.py" for n in range(5)] + ["deep/" * 190 + "x.py"]
    many = facts_of(*(call("Write", {"file_path": path}, at=n) for n, path in enumerate(paths)))
    shown = "\n".join(ledger.build_pages(many, cap=400).blocks)
    assert all(path in shown for path in paths[:5])


def test_blank_lines_and_many_files_are_read_in_linear_time(timed):
    """R-44: no text of a tool stops a plan."""
    start = time.process_time()
    facts_of(
        call("bash", {"command": "x"}, "\n" * 60_000 + "FAIL"), [model("a" + "\n" * 60_000 + "b")]
    )
    facts_of(*(call("Write", {"file_path": f"f{n}.py"}, at=n) for n in range(1_500)))
    assert time.process_time() - start < timed(5)


def test_names_told_elsewhere_are_stored():
    """A narrative gives way in the end; what it told is then shown by the ledger again."""
    facts = [Fact(seq, "name", f"unit_{seq:04}", "seen") for seq in range(8)]
    told = {fact.key for fact in facts}
    made = ledger.build_pages(facts, cap=400, visible=told)
    assert not made.shown
    assert {*made.stored} == {*facts}
    assert {fact.key for fact in ledger.build_pages(made.stored, cap=400).shown} == told
