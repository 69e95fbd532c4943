"""`foldline run` as a program: exit codes, signals, a gateway that dies, and what is left behind."""

import hashlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import find_gateway, is_alive, list_processes, wait_until
from scripted import start_provider

from foldline.apps.cli import run_agent
from foldline.apps.cli.app import build_app
from foldline.errors import BadInput

FEW_BLOCKS = 400
FOLDLINE = Path(sys.executable).with_name("foldline")
Tmux = runpy.run_path(str(Path(__file__).parents[1] / "e2e" / "tmux.py"))["Tmux"]
AGENT = """
    import http.client, json, os, signal, sys, time, urllib.request

    def send(url, body, headers):
        for _ in range(40):
            request = urllib.request.Request(url, json.dumps(body).encode(), headers)
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return read_stream(answer) if body.get("stream") else json.load(answer)
            except (OSError, http.client.HTTPException) as fault:
                print("retry", fault, flush=True)
                time.sleep(0.1)
        sys.exit("nobody answered")

    def read_stream(answer):
        text = ""
        for line in answer:
            if line.startswith(b"data: {"):
                print("began", flush=True)
                for choice in json.loads(line[6:])["choices"]:
                    text += choice["delta"].get("content") or ""
            if line.startswith(b"data: [DONE]"):
                return {"choices": [{"message": {"role": "assistant", "content": text}}]}
        raise http.client.IncompleteRead(b"")

    def make_words(number):
        seen = " ".join(f"entry {number}.{at} is open," for at in range(250))
        return {"role": "user", "content": f"Turn {number} of the ledger job: go on. {seen}"}

    def ask(number, **more):
        said.append(make_words(number))
        body = {"model": "gpt-4o", "messages": said, "stream": False, **more}
        answer = send(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, KEY)
        said.append(answer["choices"][0]["message"])
        print("answered", number, flush=True)

    def ask_responses(number):
        said.append(make_words(number))
        body = {"model": "gpt-5", "input": said, "store": False}
        said.extend(send(os.environ["OPENAI_BASE_URL"] + "/responses", body, KEY)["output"])
        print("answered", number, flush=True)

    def ask_claude(number, **mark):
        said.append(make_words(number))
        text = {"type": "text", "text": said[-1]["content"]}
        newest = {"role": "user", "content": [{**text, "cache_control": {"type": "ephemeral", **mark}}]}
        body = {"model": "claude-sonnet-4-5", "max_tokens": 99, "messages": [*said[:-1], newest]}
        answer = send(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", body, KEY)
        said.append({"role": "assistant", "content": answer["content"]})
        print("answered", number, flush=True)

    KEY = {"content-type": "application/json", "authorization": os.environ.get("LOGIN", "Bearer k")}
    said = []
"""


@pytest.fixture
def place(tmp_path):
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    return tmp_path


def environment(place, **more):
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, "HOME": str(place / "home"), "NO_COLOR": "1", **more}


def write_agent(place, script):
    path = place / "agent.py"
    path.write_text(textwrap.dedent(AGENT) + textwrap.dedent(script))
    return [sys.executable, str(path)]


def run(place, *command, options=(), typed="", **more):
    return subprocess.run(
        [FOLDLINE, "run", *options, *command],
        cwd=place / "work", env=environment(place, **more), input=typed,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def unwrap(text):
    """Sentences on one line each again: they are wrapped to the width of the terminal."""
    return text.replace("\n  ", " ")


@contextmanager
def started(place, *command, **more):
    """A run under way, in a session of its own, as in a terminal; nothing of it is left."""
    process = subprocess.Popen(
        [FOLDLINE, "run", *command], cwd=place / "work", env=environment(place, **more),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


def hash_files(folder):
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_the_code_is_the_agents_own(place):
    assert run(place, "--", "sh", "-c", "exit 7").returncode == 7


def test_an_agent_that_is_killed_has_the_code_that_shells_give_it(place):
    assert run(place, "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM


def test_arguments_and_words_of_the_agent_are_its_own(place):
    done = run(place, "sh", "-c", 'printf "%s|" "$@"', "name", "--policy", "--help", "-p", "a b")
    assert done.stdout == "--policy|--help|-p|a b|"


def test_a_program_that_is_not_there(place):
    done = run(place, "no-such-agent")
    assert done.returncode == 2
    assert done.stderr == "foldline: there is no program 'no-such-agent' here; install it first\n"
    assert not [*(place / "home").rglob("*")], "nothing was stored"


def price_chat(used):
    cached = used["prompt_tokens_details"]["cached_tokens"]
    return (used["prompt_tokens"] - cached) * 2.5 + cached * 1.25 + used["completion_tokens"] * 10


def price_responses(used):
    cached = used["input_tokens_details"]["cached_tokens"]
    return (used["input_tokens"] - cached) * 1.25 + cached * 0.125 + used["output_tokens"] * 10


def price_claude(used):
    wrote = used["cache_creation"]
    kept = wrote["ephemeral_5m_input_tokens"] * 3.75 + wrote["ephemeral_1h_input_tokens"] * 6
    kept += used["cache_read_input_tokens"] * 0.3
    return used["input_tokens"] * 3 + kept + used["output_tokens"] * 15


def test_what_it_paid_is_what_the_providers_counted(place):
    """To the cent, by the counts in their own log; nothing at home but the store.

    The same words in another API are forks of a session: what a fork has copied is no call.
    """
    agent = write_agent(place, """
        for asks in (ask, ask_responses, ask_claude):
            said = []
            for number in range(1, 6): asks(number)
        said = []
        for number in range(11, 16): ask_claude(number, ttl="1h")
        """)  # fmt: skip
    with start_provider(place, reports_cache=True) as provider:
        done = run(
            place,
            *agent,
            OPENAI_BASE_URL=f"{provider.url}/v1",
            ANTHROPIC_BASE_URL=provider.url,
        )
        used = provider.list_usage()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("answered") == len(used) == 20
    forms = (used[:5], price_chat), (used[5:10], price_responses), (used[10:], price_claude)
    owed = [sum(map(price, some)) / 1e6 for some, price in forms]
    assert f"  paid      ${sum(owed):.4f}\n" in done.stderr
    assert used[-1]["cache_creation"]["ephemeral_1h_input_tokens"] > 1_000, "at another price"
    counts = ["prompt_tokens", "input_tokens", "cache_read_input_tokens"]
    counts += ["cache_creation_input_tokens"]
    tokens = sum(one.get(name, 0) for one in used for name in counts)
    assert f"foldline: 20 calls, {tokens / 1000:.0f}k tokens in (" in done.stderr
    stored = {Path(one).relative_to(place / "home").parts[:3] for one in hash_files(place / "home")}
    assert stored == {(".local", "share", "foldline")}


def test_a_cache_that_was_lost_has_a_line(place):
    """What a call paid again is what it wrote of the conversation before it, above reading that."""
    agent = write_agent(place, """
        for number in range(1, 5): ask_claude(number)
        urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/expire", b"")).close()
        for number in range(5, 7): ask_claude(number)
        """)  # fmt: skip
    with start_provider(place, reports_cache=True) as provider:
        done = run(place, *agent, provider.url, ANTHROPIC_BASE_URL=provider.url)
        used = provider.list_usage()
    assert done.returncode == 0, done.stderr
    assert [one["cache_read_input_tokens"] > 0 for one in used] == [False, *[True] * 3, False, True]
    lost = used[3]["cache_read_input_tokens"] + used[3]["cache_creation_input_tokens"]
    cold = lost * (3.75 - 0.3) / 1e6
    (line,) = (one for one in done.stderr.splitlines() if one.startswith("  cold "))
    assert line == f"  cold      ${cold:.4f} of it was paid again: the cache was lost"


def test_a_hook_of_the_agent_knows_that_it_is_in_a_run(place):
    """It then says nothing: the gateway folds by itself where a cache is dead."""
    done = run(place, "sh", "-c", "echo in a run: $FOLDLINE_RUN")
    assert "in a run: 1\n" in done.stdout
    assert "FOLDLINE_RUN" not in environment(place), "and nothing else has set it"


def test_what_was_said_before_the_run_is_no_call_of_it(place):
    """An agent that continues a conversation brings all of it along."""
    agent = write_agent(place, """
        for number in range(1, 9):
            said += [make_words(number), {"role": "assistant", "content": f"{number} is done."}]
        ask(9)
        """)  # fmt: skip
    with start_provider(place, reports_cache=True) as provider:
        done = run(place, *agent, OPENAI_BASE_URL=f"{provider.url}/v1")
        (used,) = provider.list_usage()
    assert "foldline: 1 call, " in done.stderr, done.stderr
    assert f"  paid      ${price_chat(used) / 1e6:.4f}\n" in done.stderr


def test_a_subscription_has_a_quota_and_no_dollars(place):
    """It is known by the provider's answers, whatever was guessed from the agent's files."""
    agent = write_agent(place, "for number in range(1, 21): ask_claude(number)")
    with start_provider(place, reports_cache=True) as provider:
        done = run(
            place, *agent, options=("--window", "20000"),
            ANTHROPIC_BASE_URL=provider.url, LOGIN="Bearer sk-ant-oat01-x",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "  quota     5h: from 31% to 50% used\n" in done.stderr
    assert "  quota     7d: from 12% to 12% used\n" in done.stderr
    assert re.search(r"^  saved     [1-9]\d?% of \d+k tokens$", done.stderr, re.MULTILINE)
    assert "$" not in done.stderr


def test_the_first_run_says_what_is_stored(place):
    first, second = (unwrap(run(place, "true").stderr) for _ in range(2))
    assert "word for word, readable by you alone; keys pass through and are stored nowhere" in first
    assert "word for word" not in second
    assert all("Nothing is folded below 48,000 tokens" in said for said in (first, second))
    assert "foldline: no call of a model was seen" in second
    store = place / "home" / ".local/share/foldline/sessions.db"
    assert oct(store.stat().st_mode & 0o777) == "0o600"


def test_dry_says_what_folding_would_have_cost(place):
    """The prediction of the run that changes nothing is what the folded run then costs, within 5 %."""
    agent = write_agent(place, "for number in range(1, 31): ask(number)")
    paid = {}
    for option in ("--dry", "--policy=steady"):
        with start_provider(place, reports_cache=True) as provider:
            done = run(
                place, *agent, options=("--window", "40000", option, "--store", place / option),
                OPENAI_BASE_URL=f"{provider.url}/v1",
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        words = done.stderr.split()
        paid[option] = float(words[words.index("paid") + 1].lstrip("$"))
        if option == "--dry":
            predicted = float(words[words.index("been") + 1].strip("$:"))
            assert "  folds " not in done.stderr, "it only recorded"
        else:
            assert "  repaid " in done.stderr
    assert paid["--policy=steady"] < paid["--dry"]
    assert predicted == pytest.approx(paid["--policy=steady"], rel=0.05)


def test_ctrl_c_is_the_agents(place):
    """It is sent to the whole group, as a terminal does; the agent decides, and the run reports."""
    agent = write_agent(place, """
        import signal
        signal.signal(signal.SIGINT, lambda *_: sys.exit(5))
        ask(1)
        time.sleep(60)
        """)  # fmt: skip
    with (
        start_provider(place) as provider,
        started(place, *agent, OPENAI_BASE_URL=f"{provider.url}/v1") as process,
    ):
        wait_until(lambda: "answered" in process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        rest = process.communicate(timeout=30)[0]
    assert process.returncode == 5
    assert "foldline: 1 call," in rest
    assert not list_processes(place / "home")


def test_sigterm_is_passed_on(place):
    with started(
        place, "sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done"
    ) as process:
        wait_until(lambda: "ready" in process.stdout.readline())
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 9
    assert not list_processes(place / "home")


def test_a_gateway_that_is_killed_is_started_again_and_the_agent_goes_on(place):
    agent = write_agent(place, """
        ask(1)
        sys.stdin = open(os.environ["HOME"] + "/go")
        sys.stdin.readline()
        ask(2)
        ask(3)
        """)  # fmt: skip
    gate = place / "home" / "go"
    os.mkfifo(gate)
    with (
        start_provider(place) as provider,
        started(place, *agent, OPENAI_BASE_URL=f"{provider.url}/v1") as process,
    ):
        wait_until(lambda: "answered" in process.stdout.readline())
        first, words = find_gateway(process.pid)
        assert not any("sessions.db" in word for word in words), "its store is in no command line"
        os.kill(first, signal.SIGKILL)
        gate.write_text("go\n")
        rest = process.communicate(timeout=60)[0]
    assert process.returncode == 0, rest
    assert "answered 3" in rest
    assert "the gateway died and was started again 1 time" in rest
    assert "foldline: 3 calls," in rest, "all are in one session and counted"
    assert not is_alive(first)


def test_a_run_that_is_killed_leaves_no_process(place):
    """Nor a folder, once there is another run; the folder of one that goes on is left alone."""
    agent = write_agent(place, "ask(1); time.sleep(120)")
    temporary = place / "tmp"
    temporary.mkdir()
    with (
        start_provider(place) as provider,
        started(
            place, *agent, OPENAI_BASE_URL=f"{provider.url}/v1", TMPDIR=str(temporary)
        ) as process,
    ):
        wait_until(lambda: "answered" in process.stdout.readline())
        gateway, _ = find_gateway(process.pid)
        before = [pid for pid in list_processes(place / "home") if pid != process.pid]
        assert run(place, "true", TMPDIR=str(temporary)).returncode == 0
        assert len([*temporary.glob("foldline-run-*")]) == 1, "it is in use"
        process.kill()
        wait_until(lambda: not any(map(is_alive, [*before, gateway])), 30)
    assert not list_processes(place / "home")
    assert run(place, "true", TMPDIR=str(temporary)).returncode == 0
    assert not [*temporary.glob("foldline-run-*")]


def test_a_store_that_cannot_be_used_makes_it_a_relay(place):
    broken = place / "broken.db"
    broken.write_text("no database at all\n" * 500)
    agent = write_agent(place, "ask(1)")
    with start_provider(place) as provider:
        done = run(place, *agent, options=("--store", broken), OPENAI_BASE_URL=f"{provider.url}/v1")
    assert done.returncode == 0, done.stderr
    assert "answered 1" in done.stdout
    before, after = unwrap(done.stderr).splitlines()[:2]
    assert "it only relays and keeps nothing: " in before
    assert "failed: file is not a database" in before, "and says why"
    assert "nothing was folded, requests were only relayed: " in after
    assert "word for word" not in done.stderr
    assert broken.read_text().startswith("no database"), "and it is left alone"


def test_what_a_broken_store_only_relayed_is_counted_as_such(place):
    """Not "no call was seen": each call went through (outside, 13)."""
    broken = place / "broken.db"
    broken.write_text("no database at all\n" * 500)
    agent = write_agent(place, "for number in (1, 2, 3): ask(number)")
    with start_provider(place) as provider:
        done = run(place, *agent, options=("--store", broken), OPENAI_BASE_URL=f"{provider.url}/v1")
    assert "foldline: 3 calls were relayed, not counted\n" in done.stderr


def test_calls_that_fit_no_window_are_in_the_figures_once(place):
    """Sent as they came, and counted all the same: they are not said to be missing (outside, 4)."""
    agent = write_agent(place, "for number in (1, 2, 3): ask(number)")
    with start_provider(place, reports_cache=True) as provider:
        done = run(place, *agent, options=("--window", "60"), OPENAI_BASE_URL=f"{provider.url}/v1")
        assert len(provider.list_usage()) == 3
    assert "foldline: 3 calls, " in done.stderr
    assert "  relayed " not in done.stderr


def test_calls_that_a_full_disk_did_not_keep_are_counted_with_the_reason(place):
    """Every call is in the figures or said to be missing, and why (outside, 9)."""
    agent = write_agent(place, "for number in range(1, 41): ask(number)")
    limited = ("sh", "-c", f'ulimit -f {FEW_BLOCKS}; exec "$@"', "sh", str(FOLDLINE), "run")
    with start_provider(place, reports_cache=True) as provider:
        done = subprocess.run(
            [*limited, *agent], cwd=place / "work", capture_output=True, text=True, timeout=120,
            env=environment(place, OPENAI_BASE_URL=f"{provider.url}/v1"), check=False,
        )  # fmt: skip
        sent = len(provider.list_usage())
    assert done.returncode == 0, done.stdout + done.stderr
    assert sent == 40
    counted = int(re.search(r"^foldline: (\d+) calls?, ", done.stderr, re.MULTILINE)[1])
    relayed = int(re.search(r"^  relayed +(\d+) request", done.stderr, re.MULTILINE)[1])
    assert 0 < counted < 40
    assert counted + relayed == 40
    assert "  because   " in done.stderr


@pytest.mark.parametrize("text", ['policy = "nosuch"', "policy = = 3"])
def test_a_mistake_in_the_settings_is_said_as_everywhere(place, text):
    """And the agent does not run without them (outside, 11)."""
    (place / "work" / "foldline.toml").write_text(f"{text}\n")
    done = run(place, "sh", "-c", "echo the agent")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("foldline: ")
    assert done.stderr.count("foldline.toml:1") == 1
    assert "a fault of foldline" not in done.stderr


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "give its address"),
        ("ftp://127.0.0.1:1", "give its address"),
        ("http://127.0.0.1:1", "nobody answers there (Connection refused)"),
    ],
)
def test_a_gateway_that_is_not_there_is_said_before_the_agent_runs(place, url, words):
    done = run(place, "sh", "-c", "echo the agent", options=("--gateway", url))
    assert (done.returncode, done.stdout) == (2, "")
    assert "foldline: --gateway " in done.stderr
    assert words in unwrap(done.stderr).replace("[Errno 111] ", "")


def test_a_gateway_that_runs_already_is_used(place):
    agent = write_agent(place, "ask(1); print(os.environ['OPENAI_BASE_URL'])")
    with start_provider(place) as provider:
        done = run(place, *agent, options=("--gateway", provider.url))
    assert done.returncode == 0
    assert f"{provider.url}/v1" in done.stdout
    assert not [*(place / "home").rglob("*")], "nothing is stored here"


def test_the_report_names_the_store_that_was_used(place):
    agent = write_agent(place, "ask(1)")
    with start_provider(place) as provider:
        done = run(
            place,
            *agent,
            options=("--store", place / "own.db"),
            OPENAI_BASE_URL=f"{provider.url}/v1",
        )
    assert "  look" in done.stderr, done.stderr
    look = next(line for line in done.stderr.splitlines() if line.startswith("  look"))
    command = [FOLDLINE, *look.split()[2:], "--json"]
    seen = subprocess.run(command, env=environment(place), capture_output=True, check=False)
    assert seen.returncode == 0, seen.stderr
    assert len(json.loads(seen.stdout)["calls"]) == 1


def test_a_pipe_is_the_agents(place):
    done = run(place, "--", "cat", typed="through\n")
    assert (done.returncode, done.stdout) == (0, "through\n")


def test_a_gateway_that_runs_already_has_options_of_its_own(place):
    done = run(place, "true", options=("--gateway", "http://127.0.0.1:1", "--dry"))
    assert done.returncode == 2
    assert "--policy, --window, --dry and --recall mean nothing here" in done.stderr


def test_without_the_gateways_extra(place, monkeypatch):
    monkeypatch.setattr(run_agent, "find_spec", lambda _: None)
    monkeypatch.setenv("HOME", str(place / "home"))
    monkeypatch.delenv("FOLDLINE_STORE", raising=False)
    with pytest.raises(BadInput, match=r"pip install 'foldline\[gateway\]'"):
        build_app(["run"])(["run", "true"], standalone_mode=False)
    assert not [*(place / "home").rglob("*")]


def test_a_store_that_breaks_in_the_middle_makes_it_a_relay(place):
    """The agent goes on: its requests go out as they came, and the report says how many."""
    agent = write_agent(place, """
        ask(1)
        store = os.environ["HOME"] + "/.local/share/foldline/sessions.db"
        for name in (store, store + "-wal"):
            size = os.path.getsize(name)
            with open(name, "r+b") as file:
                file.write(b"x" * size)
        ask(2)
        ask(3)
        """)  # fmt: skip
    with start_provider(place) as provider:
        done = run(place, *agent, OPENAI_BASE_URL=f"{provider.url}/v1")
        seen = len(provider.list_usage())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "answered 3" in done.stdout
    assert seen == 3
    assert "foldline: no figures: " in done.stderr


def test_a_gateway_that_is_killed_in_the_middle_of_an_answer(place):
    """The agent asks again, as agents do, and is answered by the next one."""
    agent = write_agent(place, "ask(1, stream=True); ask(2)")
    with (
        start_provider(place, pace=0.3) as provider,
        started(place, *agent, OPENAI_BASE_URL=f"{provider.url}/v1") as process,
    ):
        wait_until(lambda: "began" in process.stdout.readline())
        first, _ = find_gateway(process.pid)
        os.kill(first, signal.SIGKILL)
        rest = process.communicate(timeout=60)[0]
    assert process.returncode == 0, rest
    assert "retry" in rest
    assert "answered 2" in rest
    assert "the gateway died and was started again 1 time" in rest
    assert "foldline: 2 calls," in rest
    assert not list_processes(place / "home")


def test_an_agent_that_does_not_end_is_ended_with_its_run(place):
    """A run that is killed waits for nobody, so its gateway does."""
    agent = write_agent(place, """
        signal.signal(signal.SIGTERM, lambda *_: print("no", flush=True))
        print("ready", flush=True)
        while True: time.sleep(1)
        """)  # fmt: skip
    with started(place, *agent) as process:
        wait_until(lambda: "ready" in process.stdout.readline())
        process.kill()
        wait_until(lambda: not list_processes(place / "home"), 40)


@pytest.fixture
def terminal(place):
    if shutil.which("tmux") is None:
        pytest.skip("tmux is missing")
    opened = []

    def open_terminal(columns=80, **more):
        opened.append(Tmux(place, columns=columns, env=environment(place, **more)))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.close()


FULL_SCREEN = """
    import os, signal, sys, termios, tty

    def show(*_):
        size = os.get_terminal_size()
        print(f"now {size.columns} x {size.lines}", end="\\r\\n", flush=True)

    before = termios.tcgetattr(0)
    tty.setraw(0)
    signal.signal(signal.SIGWINCH, show)
    show()
    while (key := os.read(0, 1)) != b"q":
        if key == b"\\x1a":  # Ctrl-Z is a key here, and the program stops itself
            termios.tcsetattr(0, termios.TCSADRAIN, before)
            os.kill(os.getpid(), signal.SIGSTOP)
            tty.setraw(0)
        print("key", key.hex(), end="\\r\\n", flush=True)
    termios.tcsetattr(0, termios.TCSADRAIN, before)
    sys.exit(3)
"""


def test_a_full_screen_program_has_the_terminal_to_itself(place, terminal):
    """Keys, the size, Ctrl-Z and `fg` are its own; afterwards the terminal is as it was."""
    (place / "screen.py").write_text(textwrap.dedent(FULL_SCREEN).replace("\\\\", "\\"))
    window = terminal()
    window.types("stty -g > before", "Enter")
    window.types(f"{FOLDLINE} run {sys.executable} screen.py", "Enter")
    window.sees("now 80 x 30")
    window.resize(120, 40)
    window.sees("now 120 x 40")
    window.types("", "C-c")
    window.sees("key 03")
    window.types("", "C-z")
    window.sees("Stopped")
    window.types("echo a $((1 + 1)) prompt", "Enter")
    window.sees("a 2 prompt")
    window.types("fg", "Enter")
    window.sees("key 1a")
    window.types("q")
    window.sees("no call of a model was seen")
    window.types("echo code $?", "Enter")
    window.sees("code 3")
    window.types("stty -g | cmp - before && echo as it was", "Enter")
    window.sees("\nas it was")
    assert not [words for words in list_processes(place / "home").values() if "screen.py" in words]


def test_a_program_of_lines_is_stopped_and_continued_by_the_shell(place, terminal):
    agent = write_agent(place, """
        print("ready", flush=True)
        for line in sys.stdin: print("read", line.strip(), flush=True)
        """)  # fmt: skip
    window = terminal()
    window.types(f"{FOLDLINE} run {' '.join(agent)}", "Enter")
    window.sees("\nready")
    window.types("", "C-z")
    window.sees("Stopped")
    window.types("fg", "Enter")
    window.types("a line", "Enter")
    window.sees("read a line")
    window.types("", "C-d")
    window.sees("no call of a model was seen")


def test_a_run_that_is_killed_gives_the_terminal_back(place, terminal):
    agent = write_agent(place, "print('pid', os.getppid(), flush=True); time.sleep(120)")
    window = terminal()
    window.types(f"{FOLDLINE} run {' '.join(agent)}; echo code $?", "Enter")
    run_pid = int(re.search(r"^pid (\d+)", window.sees("\npid "), re.MULTILINE)[1])
    os.kill(run_pid, signal.SIGKILL)
    window.sees("code 137")
    wait_until(
        lambda: (
            [*list_processes(place / "home").values()] == [["bash", "--norc", "--noprofile", ""]]
        )
    )


def test_a_terminal_that_is_closed_ends_all(place, terminal):
    agent = write_agent(place, "print('pid', os.getppid(), flush=True); time.sleep(120)")
    window = terminal()
    window.types(f"{FOLDLINE} run {' '.join(agent)}", "Enter")
    run_pid = int(re.search(r"^pid (\d+)", window.sees("\npid "), re.MULTILINE)[1])
    gateway, _ = find_gateway(run_pid)
    window.close()
    wait_until(lambda: not list_processes(place / "home") and not is_alive(gateway))


def check_report(place, terminal, columns):
    agent = write_agent(place, "for number in range(1, 26): ask(number)")
    with start_provider(place, reports_cache=True) as provider:
        window = terminal(columns, OPENAI_BASE_URL=f"{provider.url}/v1")
        window.types(f"{FOLDLINE} run --window 40000 {' '.join(agent)}; echo code $?", "Enter")
        written = window.sees("code 0")
    lines = written.partition("answered 25\n")[2].splitlines()
    assert [line.split()[0] for line in lines[1:6]] == ["paid", "saved", "folds", "repaid", "look"]
    mine = [line for line in written.splitlines() if line.startswith(("foldline:", "  "))]
    assert max(map(len, mine)) <= columns


def test_the_report_fits_a_terminal_of_80_columns(place, terminal):
    check_report(place, terminal, 80)


def test_the_report_fits_a_terminal_of_120_columns(place, terminal):
    check_report(place, terminal, 120)
