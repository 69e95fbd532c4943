"""A whole task in `foldline chat`, from the wheel, in tmux: sixty calls, stopped twice, killed once.

`FOLDLINE_PROGRAM` names another build to hold to the same, such as 0.1.0's.
"""

import json
import os
import re
import runpy
import signal
import sys
import time
from pathlib import Path

import pytest

from foldline.testing import Provider, Trouble

ROOT = Path(__file__).parents[2]
Tmux = runpy.run_path(str(Path(__file__).with_name("tmux.py")))["Tmux"]
STEPS = 60


@pytest.fixture
def house(tmp_path):
    """A folder to work in, and the environment of a person."""
    (tmp_path / "work").mkdir()
    return {
        "XDG_DATA_HOME": str(tmp_path / "home"),
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }


def call(name, own, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": own, "type": "function", "function": function}


def says(*calls, **more):
    return {"content": None, "tool_calls": [*calls], **more}


def results_of(request):
    """What came back for each call, by its id."""
    return {one["tool_call_id"]: str(one["content"]) for one in request["messages"] if one["role"] == "tool"}  # fmt: skip


def act(step, tried):
    """The call of a step: look, change, test, note."""
    own, name = f"s{step}-{tried}", f"f{(step - 1) // 4}.py"
    match step % 4:
        case 1:
            return call("read", own, path=name)
        case 2:
            return call("edit", own, path=name, old="value = 0", new=f"value = {step}")
        case 3:
            line = f"python3 -c 'import {name[:-3]}; print({name[:-3]}.value)' && echo {step} >> ledger; sleep 0.1"
            return call("shell", own, command=line)
        case _:
            return call("shell", own, command=f"echo {step} >> ledger; echo note {step}; sleep 0.1")


def worker(request):
    """A careful model: does step after step; of whose end it does not know, it looks first."""
    known = results_of(request)
    for step in range(1, STEPS + 1):
        for tried in range(9):
            own, look = f"s{step}-{tried}", f"look{step}-{tried}"
            if own not in known:
                return says(act(step, tried))
            told = known[own]
            if "not run" in told:
                continue  # it was stopped before it began: again
            if (
                "interrupted" not in told.lower()
                and "stopped" not in told
                and "unknown" not in told
            ):
                break  # done
            if look not in known:
                where = f"f{(step - 1) // 4}.py"
                return says(call("shell", look, command=f"cat ledger; echo ...; cat {where}"))
            ledger, _, file = known[look].partition("...")
            if (
                step % 4 == 1
                or str(step) in ledger.split()
                or (step % 4 == 2 and f"value = {step}" in file)
            ):
                break
    return "All of it is done."


def chat_process(terminal):
    """The process of the chat that runs in the terminal."""
    shell = int(terminal._run("list-panes", "-F", "#{pane_pid}"))
    (child, *_) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    return int(child)


def wait_for_lines(path, count, seconds=120.0):
    until = time.monotonic() + seconds
    while not path.exists() or len(path.read_text().split()) < count:
        assert time.monotonic() < until, f"{path} has no {count} lines"
        time.sleep(0.02)


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="it finds the process in /proc")
def test_c4_sixty_calls_stopped_twice_and_killed_once_leave_files_right_and_nothing_done_twice(
    program, house, tmp_path
):
    work, ledger = tmp_path / "work", tmp_path / "work" / "ledger"
    for at in range(STEPS // 4):
        (work / f"f{at}.py").write_text("value = 0\n")
    with Provider(worker) as provider:
        terminal = Tmux(tmp_path, columns=100, rows=40, env=house)
        chat = f"{program} chat task --base-url {provider.url}/v1 --approve all --rounds 200"
        try:
            terminal.types(f"cd {work}; {chat} --model m --window 200000", "Enter")
            terminal.sees("/ 200,000")
            terminal.types("Do all of it.", "Enter")
            for lines in (6, 14):
                wait_for_lines(ledger, lines)
                terminal.types("", "C-c")
                terminal.sees("stopped; what was said so far is kept", count=1 if lines == 6 else 2)
                terminal.types("Go on.", "Enter")
            wait_for_lines(ledger, 22)
            os.kill(chat_process(terminal), signal.SIGKILL)
            time.sleep(1.0)
            terminal.types("", "C-c")
            terminal.types("stty sane; clear", "Enter")
            time.sleep(31)  # until the session is free
            terminal.types(chat, "Enter")
            terminal.sees("task goes on", seconds=60)
            terminal.types("Go on.", "Enter")
            terminal.sees("All of it is done.", seconds=240)
        finally:
            terminal.close()
        asked = len(provider.bodies)
    done = [int(line) for line in ledger.read_text().split()]
    assert done == [step for step in range(1, STEPS + 1) if step % 4 in (3, 0)], (
        "each once, in order"
    )
    for at in range(STEPS // 4):
        assert (work / f"f{at}.py").read_text() == f"value = {4 * at + 2}\n"
    assert asked > STEPS


@pytest.mark.real
@pytest.mark.parametrize("columns", [40, 120])
def test_c4_c5_c9_what_a_person_sees_in_tmux(program, house, tmp_path, columns):
    """Output while it comes, changes in colours, reasoning, a retry, whom it waits for, the rest by a key."""
    (tmp_path / "work" / "a.py").write_text("one\ntwo\nthree\n")
    loop = "for i in $(seq 1 40); do echo line-$i; sleep 0.05; done"
    steps = iter([
        says(call("edit", "e", path="a.py", old="two", new="2"), reasoning="First I think about it."),
        Trouble.RATE,
        says(call("shell", "s", command=loop)),
        "Done.",
    ])  # fmt: skip
    with Provider(lambda _: next(steps)) as provider:
        provider.retry_after = "2"
        terminal = Tmux(tmp_path, columns=columns, rows=40, env=house)
        try:
            chat = (
                f"{program} chat x --base-url {provider.url}/v1 --model gpt-6.1-sol --window 20000"
            )
            terminal.types(f"cd {tmp_path / 'work'}; clear; {chat}", "Enter")
            terminal.sees("/ 20,000")
            terminal.types("Go.", "Enter")
            terminal.sees("waiting for your answer")
            seen = terminal.screen(colours=True)
            assert "thinking" not in terminal.screen()
            assert re.search(r"\x1b\[[\d;]*31m[^\n]*-two", seen), "what goes is red"
            assert re.search(r"\x1b\[[\d;]*32m[^\n]*\+2", seen), "what comes is green"
            assert "thought" in seen
            terminal.types("y", "Enter")
            terminal.sees("no answer: Rate limit reached")
            terminal.sees("y once", count=2)
            terminal.types("y", "Enter")
            text = terminal.sees("│ line-9")
            assert "line-40" not in text.replace(loop, ""), "while it runs"
            text = terminal.sees("Done.")
            assert "… 31 more lines" in text
            terminal.types("", "C-o")
            terminal.sees("  line-22")
            assert all(
                len(line) <= columns for line in terminal._run("capture-pane", "-p").split("\n")
            )
        finally:
            terminal.close()
