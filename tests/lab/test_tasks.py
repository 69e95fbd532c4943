"""Every task fails before it is mended and passes after, and nothing outside its folder is touched."""

import asyncio
import json

import pytest
from mutants import broken

import foldline
from foldline.agent.events import Calling
from foldline.core.parts import Call
from foldline.core.tokens import count_tokens
from foldline.lab import coding_tasks
from foldline.lab.coding_tasks import TASKS, is_solved, list_files, write_files
from foldline.lab.task_run import RereadWatch


def test_there_are_twenty_tasks_of_different_names():
    assert len({task.name for task in TASKS}) == len(TASKS) == 20


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_fails_until_its_line_is_mended(task, tmp_path):
    write_files(task, tmp_path)
    assert not asyncio.run(is_solved(task, tmp_path))
    file = tmp_path / list_files()[-1]
    text = file.read_text()
    assert text.count(f"return {task.wrong}\n") == 1
    file.write_text(text.replace(f"return {task.wrong}\n", f"return {task.right}\n"))
    assert asyncio.run(is_solved(task, tmp_path))


def test_a_task_is_long_and_always_the_same(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_files(TASKS[0], tmp_path / name)
    texts = [
        [(tmp_path / name / file).read_text() for file in list_files()] for name in ("one", "two")
    ]
    assert texts[0] == texts[1]
    assert sum(map(count_tokens, texts[0])) > 10_000
    assert sum(text.count("\n") >= 150 for text in texts[0]) >= 5


EMPTY = "import unittest\nclass Test(unittest.TestCase):\n    def test_it(self): pass\n"


def check_changed_test(folder):
    """A test that the agent made easier does not count."""
    (folder / "test_task.py").write_text(EMPTY)
    assert not asyncio.run(is_solved(TASKS[0], folder))


def test_a_changed_test_does_not_solve_a_task(tmp_path):
    write_files(TASKS[0], tmp_path)
    check_changed_test(tmp_path)
    restore = "(folder / _TEST).write_text(render_test(task))\n    process"
    with (
        broken("foldline.lab.coding_tasks", restore, "process"),
        pytest.raises(AssertionError),
    ):
        check_changed_test(tmp_path)


def test_a_test_that_never_ends_is_not_solved(tmp_path, monkeypatch):
    write_files(TASKS[0], tmp_path)
    (tmp_path / "app.py").write_text("while True: pass\n")
    monkeypatch.setattr(coding_tasks, "_SECONDS", 0.5)
    assert not asyncio.run(is_solved(TASKS[0], tmp_path))


def test_a_read_again_counts_only_where_the_first_is_out_of_view():
    async def count_reads(*, fold):
        async with foldline.aopen(":memory:", model="gpt-4o", window=100_000) as session:
            watch = RereadWatch(session)
            for number, path in enumerate(("a.py", "b.py")):
                call = {"id": f"c{number}", "type": "function"}
                call["function"] = {"name": "read", "arguments": json.dumps({"path": path})}
                await session.add("Read it.")
                watch(
                    Calling(Call(call["id"], "read", call["function"]["arguments"]), None, {}, None)
                )
                await session.add({"role": "assistant", "content": None, "tool_calls": [call]})
                await session.add(
                    {"role": "tool", "tool_call_id": call["id"], "content": "x = 1\n" * 900}
                )
                await session.add({"role": "assistant", "content": "Done."})
            await session.add("And now?")
            if fold:
                assert await session.fold() is not None
            watch(Calling(Call("c9", "read", '{"path":  "a.py"}'), None, {}, None))
            return watch.count

    assert asyncio.run(count_reads(fold=False)) == 0
    assert asyncio.run(count_reads(fold=True)) == 1
    with broken("foldline.lab.task_run", "and key not in self._list_shown()", ""):
        assert asyncio.run(count_reads(fold=False)) == 1
