"""Small coding tasks: a repository with one failing test each, made from one line of a table.

    task = TASKS[0]
    write_files(task, folder)          # RULES.md, app.py, eight modules, test_task.py, ./check
    await is_solved(task, folder)      # restores the test, and runs it

The broken line stands behind eight modules of some two hundred lines, which pass the call on from
one to the next; RULES.md says what is right. Whoever mends it reads most of that first.
"""
# ruff: noqa: E501, S311 - a table of expressions; reproducible, not secret

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

CHECK = "./check"
"""The command that runs the tests of a task."""
_TEST = "test_task.py"
_STAGES = (
    *("intake", "sorting", "grouping", "matching", "weighing", "pricing", "rounding", "settling"),
)
_FILLERS = 24  # functions of a module beside the one that counts
_RULES = 60  # rules beside the one that counts
_SECONDS = 60.0
_FIELDS = ("weight", "age", "distance", "score", "height", "rank", "price", "delay")
_VERBS = ("keep", "drop", "count", "mark", "order", "trim")


class CodingTask(NamedTuple):
    """One task: an expression that is wrong, and what is right."""

    title: str
    parameters: str
    right: str
    wrong: str
    rule: str
    examples: tuple[tuple[Any, ...], ...]
    """Arguments of the test; for one of them at least the wrong expression differs."""

    @property
    def name(self) -> str:
        """The title as a name in code."""
        return self.title.replace(" ", "_")

    @property
    def prompt(self) -> str:
        """What the agent is asked to do."""
        return (
            f"The test of the {self.title} in {_TEST} fails. RULES.md says what is right, app.py "
            f"is where the call begins. Find the fault and mend it, but do not change the test. "
            f"`{CHECK}` runs the tests. Say when they pass."
        )

    def compute_result(self, arguments: Sequence[Any]) -> Any:
        """Compute what is right for some arguments."""
        names = self.parameters.split(", ")
        return eval(self.right, dict(zip(names, arguments, strict=True)))  # noqa: S307 - the table's own


TASKS = (
    CodingTask("late fee", "days", "3 * days if days <= 10 else 30 + 5 * (days - 10)", "3 * days if days <= 10 else 30 + 4 * (days - 10)", "The late fee is 3 for each of the first 10 days and 5 for each day after.", ((4,), (10,), (13,))),
    CodingTask("parcel class", "grams", "'small' if grams <= 700 else 'large'", "'small' if grams < 700 else 'large'", "A parcel of up to 700 grams, 700 included, has the parcel class small; every other is large.", ((200,), (700,), (701,))),
    CodingTask("team size", "people", "-(-people // 6)", "people // 6", "The team size is the number of tables for six that all people need; a table may be half empty.", ((6,), (7,), (23,))),
    CodingTask("ticket price", "age", "0 if age < 5 else 8 if age < 15 else 14", "0 if age < 5 else 8 if age < 16 else 14", "The ticket price is 0 below the age of 5, 8 below 15, and 14 from 15 on.", ((3,), (14,), (15,))),
    CodingTask("tank level", "litres, used", "max(litres - used, 0)", "litres - used", "The tank level is what is left after use, and never below 0.", ((50, 20), (10, 10), (10, 12))),
    CodingTask("night rate", "hour", "hour >= 22 or hour < 6", "hour >= 22 and hour < 6", "The night rate holds from 22 o'clock, and before 6 o'clock.", ((21,), (23,), (5,))),
    CodingTask("seat label", "row, seat", "f'{row:02}-{seat}'", "f'{row}-{seat}'", "A seat label is the row with two digits, a hyphen and the seat.", ((3, "B"), (12, "A"))),
    CodingTask("loan interest", "amount, years", "amount * 4 * years // 100", "amount * 4 // 100", "The loan interest is 4 percent of the amount for every year, rounded down.", ((1000, 1), (999, 3))),
    CodingTask("word score", "word", "sum(3 if letter in 'qxz' else 1 for letter in word.lower())", "sum(3 if letter in 'qxz' else 1 for letter in word)", "The word score is 3 for each q, x or z, large or small, and 1 for every other letter.", (("tree",), ("Quiz",))),
    CodingTask("median value", "values", "sorted(values)[len(values) // 2]", "values[len(values) // 2]", "The median value is the middle one of an odd number of values in order of size.", (([1, 2, 3],), ([9, 1, 5],))),
    CodingTask("bonus points", "points, member", "points * 2 if member else points", "points * 2", "The bonus points are doubled for members, and unchanged for everybody else.", ((5, True), (5, False))),
    CodingTask("short name", "first, last", "f'{first[0]}. {last}'", "f'{first} {last[0]}.'", "A short name is the first letter of the first name, a full stop, a space and the whole last name.", (("Ada", "Kern"), ("Bo", "Lund"))),
    CodingTask("water warning", "metres", "metres >= 4.5", "metres >= 5.4", "There is a water warning from 4.5 metres on.", ((4.4,), (4.5,), (5.5,))),
    CodingTask("shift pay", "hours", "18 * hours + 9 * max(hours - 8, 0)", "18 * hours + 9 * max(hours - 9, 0)", "The shift pay is 18 for each hour, and 9 more for each hour beyond the eighth.", ((8,), (9,), (11,))),
    CodingTask("unique guests", "names", "len({name.strip().lower() for name in names})", "len({name.lower() for name in names})", "The number of unique guests ignores spaces around a name and the case of letters.", ((["Ann", "Bo"],), (["Ann", " ann", "BO"],))),
    CodingTask("fuel range", "litres, consumption", "int(litres * 100 / consumption)", "int(litres * consumption / 100)", "The fuel range in whole kilometres is the litres times 100, divided by the consumption.", ((40, 5), (33, 6))),
    CodingTask("route order", "stops", "sorted(stops, key=lambda stop: (stop[1], stop[0]))", "sorted(stops, key=lambda stop: stop[1])", "The route order is by distance; stops of equal distance are in order of their names.", (([("b", 1), ("a", 2)],), ([("z", 3), ("b", 3)],))),
    CodingTask("rounded bill", "cents", "(cents + 2) // 5 * 5", "cents // 5 * 5", "A rounded bill is the nearest multiple of 5 cents.", ((11,), (13,), (18,))),
    CodingTask("leap check", "year", "year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)", "year % 4 == 0 and year % 100 != 0", "The leap check holds for years that 4 divides, without those that 100 divides but 400 does not.", ((2024,), (1900,), (2000,))),
    CodingTask("queue place", "waiting, priority", "sum(one >= priority for one in waiting) + 1", "sum(one > priority for one in waiting) + 1", "The queue place is behind everybody of the same or a higher priority.", (([3, 1], 2), ([3, 2, 2], 2))),
)  # fmt: skip


def write_files(task: CodingTask, folder: Path) -> None:
    """Write the repository of a task into an empty folder."""
    random = Random(task.name)
    (folder / "stages").mkdir()
    (folder / "stages" / "__init__.py").write_text('"""The stages of a call, in order."""\n')
    for place, stage in enumerate(_STAGES):
        text = _render_stage(task, place, random)
        (folder / "stages" / f"{stage}.py").write_text(text)
    (folder / "app.py").write_text(
        f'"""Where calls begin."""\n\nfrom stages.{_STAGES[0]} import pass_{_STAGES[0]}\n\n\n'
        f'def {task.name}({task.parameters}):\n    """Compute the {task.title}."""\n'
        f"    return pass_{_STAGES[0]}({task.parameters})\n"
    )
    (folder / "RULES.md").write_text(_render_rules(task, random))
    (folder / _TEST).write_text(render_test(task))
    check = folder / CHECK
    check.write_text(f"#!/bin/sh\nexec '{sys.executable}' -B -m unittest {_TEST[:-3]}\n")
    check.chmod(0o755)


def list_files() -> list[str]:
    """List what an agent reads until it has found the fault, in order."""
    return ["RULES.md", _TEST, "app.py", *(f"stages/{stage}.py" for stage in _STAGES)]


def render_test(task: CodingTask) -> str:
    """Render the test of a task."""
    lines = [
        '"""The test of the repository."""',
        "",
        "import unittest",
        "",
        f"from app import {task.name}",
        "",
        "",
        "class Test(unittest.TestCase):",
        f"    def test_{task.name}(self):",
    ]
    for arguments in task.examples:
        call = f"{task.name}({', '.join(map(repr, arguments))})"
        lines.append(f"        self.assertEqual({call}, {task.compute_result(arguments)!r})")
    return "\n".join([*lines, "", "", 'if __name__ == "__main__":', "    unittest.main()", ""])


async def is_solved(task: CodingTask, folder: Path) -> bool:
    """Run the test, as it was at the beginning; it must pass."""
    (folder / _TEST).write_text(render_test(task))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-B", "-m", "unittest", "-q", _TEST[:-3]),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        return await asyncio.wait_for(process.wait(), _SECONDS) == 0
    except TimeoutError:
        process.kill()
        await process.wait()
        return False


def _render_stage(task: CodingTask, place: int, random: Random) -> str:
    stage, last = _STAGES[place], place == len(_STAGES) - 1
    following = "" if last else _STAGES[place + 1]
    purpose = f"Compute the {task.title}." if last else f"Pass the {task.title} on to {following}."
    body = task.wrong if last else f"pass_{following}({task.parameters})"
    functions = [_render_filler(stage, number, random) for number in range(_FILLERS)]
    functions.insert(
        random.randint(6, _FILLERS - 6),
        f'def pass_{stage}({task.parameters}):\n    """{purpose}"""\n    return {body}\n',
    )
    imports = "" if last else f"from stages.{following} import pass_{following}\n\n\n"
    head = f'"""The stage {stage}, and helpers of its own."""\n\n'
    return head + imports + "\n\n".join(functions)


def _render_filler(stage: str, number: int, random: Random) -> str:
    verb, field, limit = random.choice(_VERBS), random.choice(_FIELDS), random.randint(2, 99)
    return (
        f"def {verb}_{field}_{stage}_{number}(rows, limit={limit}):\n"
        f'    """{verb.capitalize()} the rows by their {field}, up to a limit."""\n'
        f"    found = []\n    for row in rows:\n"
        f'        if row.get("{field}", {random.randint(0, 9)}) <= limit:\n'
        f"            found.append(row)\n    return found[:{random.randint(3, 60)}]\n"
    )


def _render_rules(task: CodingTask, random: Random) -> str:
    rules = [
        f"The {random.choice(_FIELDS)} of a {random.choice(_STAGES)} row is checked against a limit "
        f"of {random.randint(2, 99)} in helper {random.randint(0, _FILLERS - 1)}."
        for _ in range(_RULES)
    ]
    rules.insert(random.randint(10, _RULES - 10), task.rule)
    return "# Rules\n\n" + "".join(f"{at}. {rule}\n" for at, rule in enumerate(rules, 1))
