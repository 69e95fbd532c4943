"""Texts as tools print them, of every kind that a clip knows, and junk; the same seed, the same text."""

import json
from collections.abc import Callable
from random import Random

WORDS = "alpha beta gamma delta index parser token cache shard node query worker signal".split()  # noqa: SIM905
ENDINGS = (".py", ".py", ".py", ".ts", ".md", ".lock")


def word(random: Random) -> str:
    return random.choice(WORDS)


def path(random: Random) -> str:
    folders = "/".join(word(random) for _ in range(random.randint(1, 3)))
    return f"src/{folders}/{word(random)}_{random.randint(0, 99)}{random.choice(ENDINGS)}"


def make_log(random: Random, size: int) -> str:
    lines = []
    for n in range(size):
        time = f"2024-05-{1 + n // 86_400:02}T{n // 3_600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}.{random.randint(100, 999)}Z"
        level = random.choices(["INFO", "DEBUG", "WARN", "ERROR"], [80, 30, 3, 1])[0]
        lines.append(
            f"{time} {level} [{random.choice(WORDS[:4])}] {random.choice(WORDS[:4])} id={random.getrandbits(32):08x} job={random.choice('kx')}{n}{random.choice('wy')} took {n} ms"
        )
        if level == "ERROR" and random.random() < 0.5:
            lines += ["  caused by a timeout", f"  in {path(random)}"]
    return "\n".join(lines)


def make_syslog(random: Random, size: int) -> str:
    return "\n".join(
        f"May {1 + n // 900 % 28:2} 12:{n // 60 % 60:02}:{n % 60:02} host {word(random)}[{random.randint(1, 9_999)}]: {word(random)} {n}"
        for n in range(size)
    )


def fail(random: Random) -> bool:
    return random.random() < 0.02


def make_pytest(random: Random, size: int) -> str:
    names = [(path(random), f"test_{word(random)}_{n}") for n in range(size)]
    bad = [one for one in names if fail(random)]
    lines = [f"{'=' * 20} test session starts {'=' * 20}", f"collected {size} items", ""]
    lines += [
        f"{file}::{name} {'FAILED' if (file, name) in bad else 'PASSED'} [ {n}%]"
        for n, (file, name) in enumerate(names)
    ]
    lines += [
        f"worker: ERROR {word(random)} {n} was lost" for n in range(random.choice([0, 0, 300]))
    ]
    lines += ["", f"{'=' * 30} FAILURES {'=' * 30}"] if bad else []
    for file, name in bad:
        lines += [
            f"{'_' * 20} {name} {'_' * 20}",
            "",
            f"    def {name}():",
            f">       assert {word(random)} == 3",
            "E       assert 4 == 3",
        ]
        lines += [f"        {word(random)} = {n}" for n in range(random.randint(0, 8))]
        lines += ["", f"{file}:12: AssertionError"]
    lines += [f"{'=' * 10} short test summary info {'=' * 10}"] if bad else []
    lines += [f"FAILED {file}::{name} - assert 4 == 3" for file, name in bad]
    lines.append(f"{'=' * 10} {len(bad)} failed, {size - len(bad)} passed in 3.21s {'=' * 10}")
    return "\n".join(lines) + "\n"


def make_unittest(random: Random, size: int) -> str:
    names = [f"test_{word(random)}_{n}" for n in range(size)]
    bad = [name for name in names if fail(random)]
    lines = [
        f"{name} (tests.{word(random)}.Case) ... {'FAIL' if name in bad else 'ok'}"
        for name in names
    ]
    for name in bad:
        lines += [
            "",
            "=" * 70,
            f"FAIL: {name} (tests.Case)",
            "-" * 70,
            "Traceback (most recent call last):",
        ]
        lines += [
            f'  File "{path(random)}", line 3, in {name}',
            "    self.assertEqual(1, 2)",
            "AssertionError: 1 != 2",
        ]
    lines += [
        "",
        "-" * 70,
        f"Ran {size} tests in 0.123s",
        "",
        f"FAILED (failures={len(bad)})" if bad else "OK",
    ]
    return "\n".join(lines)


def make_go_test(random: Random, size: int) -> str:
    lines = []
    for n in range(size):
        name, bad = f"Test{word(random).title()}{n}", fail(random)
        lines += [f"=== RUN   {name}", f"--- {'FAIL' if bad else 'PASS'}: {name} (0.0{n % 10}s)"]
        lines += [f"    {word(random)}_test.go:{n}: got 3, want 4"] if bad else []
    return "\n".join([*lines, "FAIL", f"FAIL\texample.com/{word(random)}\t1.234s", "FAIL"])


def make_cargo_test(random: Random, size: int) -> str:
    names = [f"{word(random)}::tests::{word(random)}_{n}" for n in range(size)]
    bad = [name for name in names if fail(random)]
    lines = ["", f"running {size} tests"]
    lines += [f"test {name} ... {'FAILED' if name in bad else 'ok'}" for name in names]
    lines += ["", "failures:", ""] if bad else []
    for name in bad:
        lines += [
            f"---- {name} stdout ----",
            f"thread '{name}' panicked at src/lib.rs:12:5:",
            "assertion `left == right` failed",
            "  left: 1",
            " right: 2",
            "",
        ]
    lines += ["failures:", *(f"    {name}" for name in bad), ""] if bad else []
    state = "FAILED" if bad else "ok"
    return "\n".join(
        [
            *lines,
            f"test result: {state}. {size - len(bad)} passed; {len(bad)} failed; 0 ignored; finished in 0.12s",
        ]
    )


def make_jest(random: Random, size: int) -> str:
    lines, blocks, failed = [], [], 0
    for n in range(size // 5 + 1):
        file = f"src/{word(random)}{n}.test.ts"
        bad = [fail(random) for _ in range(5)]
        failed += sum(bad)
        lines.append(f"{'FAIL' if any(bad) else 'PASS'} {file}")
        for at, is_bad in enumerate(bad):
            lines.append(f"    {'✕' if is_bad else '✓'} {word(random)} works {at} (3 ms)")
            if is_bad:
                blocks += [
                    f"  ● {word(random)} › works {n}",
                    "",
                    "    expect(received).toBe(expected)",
                    "",
                    "    Expected: 1",
                    "    Received: 2",
                    "",
                    f"      at {file}:3:4",
                    "",
                ]
    return "\n".join(
        [
            *lines,
            "",
            *blocks,
            f"Test Suites: {failed} failed, {size} total",
            f"Tests:       {failed} failed, {size} passed, {size} total",
            "Time:        3.2 s",
        ]
    )


def make_python_trace(random: Random, size: int) -> str:
    lines = ["Traceback (most recent call last):"]
    for n in range(size):
        frame = random.randint(0, 5)
        lines += [
            f'  File "{path(random)}", line {frame}, in f{frame}',
            f"    return f{frame}({n % 3})",
        ]
        if random.random() < 0.01:
            lines += [
                "KeyError: 'x'",
                "",
                "During handling of the above exception, another exception occurred:",
                "",
                "Traceback (most recent call last):",
            ]
    return "\n".join([*lines, "RecursionError: maximum recursion depth exceeded"])


def make_java_trace(random: Random, size: int) -> str:
    lines = [f'Exception in thread "main" java.lang.IllegalStateException: {word(random)}']
    for n in range(size):
        lines.append(f"\tat com.example.{word(random)}.Service.call{n % 7}(Service.java:{n % 90})")
        if random.random() < 0.02:
            lines += [
                f"Caused by: java.io.IOException: {word(random)} is gone",
                "\tat com.example.Net.read(Net.java:3)",
                "\t... 12 more",
            ]
    return "\n".join(lines)


def make_go_trace(random: Random, size: int) -> str:
    lines = ["panic: runtime error: index out of range [5] with length 3", ""]
    for n in range(size):
        if n % 200 == 0:
            lines += [f"goroutine {n + 1} [running]:"]
        lines += [f"main.{word(random)}(0xc0000{n})", f"\t/src/{word(random)}.go:{n} +0x1d"]
    return "\n".join([*lines, "exit status 2"])


def make_js_trace(random: Random, size: int) -> str:
    lines = [f"TypeError: {word(random)} is not a function"]
    lines += [f"    at {word(random)} (/app/{path(random)}:{n}:7)" for n in range(size)]
    return "\n".join([*lines, "", "Node.js v20.1.0"])


def make_rust_trace(random: Random, size: int) -> str:
    lines = [
        "thread 'main' panicked at src/main.rs:3:5:",
        "index out of bounds",
        "stack backtrace:",
    ]
    for n in range(size):
        lines += [
            f"   {n}: core::{word(random)}::run",
            f"             at /rustc/{path(random)}:{n}:5",
        ]
    return "\n".join(lines)


def make_vitest(random: Random, size: int) -> str:
    bad = [n for n in range(size) if fail(random)]
    lines = [f" {'✗' if n in bad else '✓'} src/a{n}.test.ts > works {n} 3ms" for n in range(size)]
    for n in bad:
        lines += [
            "",
            f" FAIL  src/a{n}.test.ts > works {n}",
            "AssertionError: expected 1 to be 2",
            f" ❯ src/a{n}.test.ts:3:4",
        ]
    return "\n".join(
        [
            *lines,
            "",
            f" Test Files  {len(bad)} failed | {size} passed ({size})",
            f"      Tests  {len(bad)} failed | {size} passed ({size})",
            "   Duration  3.2s",
        ]
    )


def make_quiet_pytest(random: Random, size: int) -> str:
    rows = [
        "".join("F" if fail(random) else "." for _ in range(60)) + f" [{n:3}%]" for n in range(size)
    ]
    bad = sum(row.count("F") for row in rows)
    lines = [f"FAILED tests/a.py::test_{n}" for n in range(bad)]
    return "\n".join([*rows, *lines, f"{bad} failed, {size * 60} passed in 12.31s"])


def make_compiler_output(random: Random, size: int) -> str:
    return "\n".join(
        f"{path(random)}({n},3): error TS2304: Cannot find name '{word(random)}_{n}'."
        for n in range(size)
    )


def make_records(random: Random, size: int) -> list[dict]:
    rows = []
    for n in range(size):
        row = {
            "id": n,
            "name": f"{word(random)}_{n}",
            "status": "ok",
            "took": random.randint(1, 50),
            "tags": [word(random)],
        }
        if fail(random):
            row |= {"status": "failed", "error": f"{word(random)} timed out"}
        rows.append(row)
    return rows


def make_json(random: Random, size: int) -> str:
    return json.dumps(make_records(random, size), indent=random.choice([None, 2]))


def make_json_inside(random: Random, size: int) -> str:
    return json.dumps(
        {"total": size, "items": make_records(random, size), "next": None},
        indent=random.choice([None, 2]),
    )


def make_json_lines(random: Random, size: int) -> str:
    return "\n".join(json.dumps(row) for row in make_records(random, size))


def make_json_numbers(random: Random, size: int) -> str:
    return json.dumps([random.randint(0, 9_999) for _ in range(size)])


def make_status(random: Random, size: int) -> str:
    lines = [
        "On branch main",
        "Changes not staged for commit:",
        '  (use "git add <file>..." to update what will be committed)',
    ]
    lines += [f"\tmodified:   {path(random)}" for _ in range(size)]
    lines += ["", "Untracked files:", *(f"\t{path(random)}" for _ in range(size // 3)), ""]
    return "\n".join([*lines, 'no changes added to commit (use "git add" and/or "git commit -a")'])


def make_short_status(random: Random, size: int) -> str:
    return "\n".join(
        f"{random.choice([' M', '??', 'A ', 'MM', ' D'])} {path(random)}" for _ in range(size)
    )


def make_git_log(random: Random, size: int) -> str:
    lines = []
    for n in range(size):
        lines += [
            f"commit {random.getrandbits(160):040x}",
            "Author: A B <a@example.com>",
            f"Date:   Mon May 6 12:00:{n % 60:02} 2024 +0200",
            "",
        ]
        lines += [f"    {word(random).title()} the {word(random)} {n}", ""]
        lines += [
            f"    It was {word(random)} before, and {word(random)} is better."
            for _ in range(random.randint(0, 4))
        ] + [""]
    return "\n".join(lines)


def make_short_log(random: Random, size: int) -> str:
    return "\n".join(
        f"{random.getrandbits(28):07x} {word(random).title()} the {word(random)} {n}"
        for n in range(size)
    )


def make_diff(random: Random, size: int) -> str:
    lines = []
    for _ in range(size // 12 + 1):
        file = path(random)
        lines += [
            f"diff --git a/{file} b/{file}",
            "index 1234567..89abcde 100644",
            f"--- a/{file}",
            f"+++ b/{file}",
        ]
        for at in range(random.randint(1, 4)):
            lines.append(f"@@ -{at * 40 + 1},6 +{at * 40 + 1},7 @@ def {word(random)}():")
            lines += [
                f"{random.choice(' +-')}    {word(random)} = {word(random)}({at})"
                for _ in range(random.randint(3, 14))
            ]
    return "\n".join(lines)


def make_find(random: Random, size: int) -> str:
    odd = [f"./src/{word(random)}/odd.sql"] * (random.random() < 0.5)
    return "\n".join(sorted([*(f"./{path(random)}" for _ in range(size)), *odd]))


def make_ls(random: Random, size: int) -> str:
    return "\n".join(
        [
            f"total {size}",
            *(
                f"-rw-r--r-- 1 me me {random.randint(10, 99_999):6} May  6 12:00 {word(random)}_{n}{random.choice(ENDINGS)}"
                for n in range(size)
            ),
        ]
    )


def make_tree(random: Random, size: int) -> str:
    lines = ["."]
    for n in range(size // 4 + 1):
        lines += [
            f"├── {word(random)}_{n}",
            *(f"│   ├── {word(random)}_{m}{random.choice(ENDINGS)}" for m in range(3)),
        ]
    return "\n".join([*lines, "", f"{size} directories, {size * 3} files"])


def make_csv(random: Random, size: int) -> str:
    return "\n".join(
        [
            "id,name,status,took",
            *(
                f"{n},{word(random)},{'failed' if fail(random) else 'ok'},{random.randint(1, 50)}"
                for n in range(size)
            ),
        ]
    )


def make_markdown(random: Random, size: int) -> str:
    return "\n".join(
        [
            "| id | name | took |",
            "|---|---|---|",
            *(f"| {n} | {word(random)} | {random.randint(1, 50)} |" for n in range(size)),
        ]
    )


def make_columns(random: Random, size: int) -> str:
    rows = [
        (
            f"{word(random)}-{n}",
            "Error" if fail(random) else "Running",
            random.randint(0, 9),
            f"{n}d",
        )
        for n in range(size)
    ]
    return "\n".join(
        f"{a:<24}{b:<12}{c:<10}{d}" for a, b, c, d in [("NAME", "STATUS", "RESTARTS", "AGE"), *rows]
    )


def make_grep(random: Random, size: int) -> str:
    files = sorted({path(random) for _ in range(size // 6 + 1)})
    return "\n".join(
        f"{file}:{n * 7 + 1}:    {word(random)} = {word(random)}({n})"
        for file in files
        for n in range(random.randint(1, 10))
    )


def make_junk(random: Random, size: int) -> str:
    signs = [
        "\n",
        "\r\n",
        " ",
        "\t",
        "[",
        "]",
        "{",
        "}",
        '"',
        ",",
        ":",
        "|",
        "\x1b[31m",
        "\x1b",
        "é",
        "日",
        "\ud800",
        "\x00",
        "\u2028",
        "0",
        "a",
        "-",
        "=",
        "@@",
        "diff --git a/x b/x\n",
        "FAILED ",
        "PASSED",
        "Error",
        "commit ",
        "[cut: 3 lines]\n",
    ]
    return "".join(random.choice(signs) for _ in range(size * 20))


def make_prose(random: Random, size: int) -> str:
    return "\n".join(
        " ".join(word(random) for _ in range(random.randint(0, 14))) for _ in range(size)
    )


KINDS: dict[str, tuple[str, Callable[[Random, int], str]]] = {
    "log": ("log", make_log),
    "syslog": ("log", make_syslog),
    "pytest": ("test run", make_pytest),
    "unittest": ("test run", make_unittest),
    "go test": ("test run", make_go_test),
    "cargo test": ("test run", make_cargo_test),
    "jest": ("test run", make_jest),
    "python trace": ("stack trace", make_python_trace),
    "java trace": ("stack trace", make_java_trace),
    "go trace": ("stack trace", make_go_trace),
    "js trace": ("stack trace", make_js_trace),
    "rust trace": ("stack trace", make_rust_trace),
    "vitest": ("test run", make_vitest),
    "quiet pytest": ("test run", make_quiet_pytest),
    "compiler": ("matches", make_compiler_output),
    "json": ("json", make_json),
    "json inside": ("json", make_json_inside),
    "json lines": ("json", make_json_lines),
    "json numbers": ("json", make_json_numbers),
    "git status": ("git status", make_status),
    "short status": ("git status", make_short_status),
    "git log": ("git log", make_git_log),
    "short log": ("git log", make_short_log),
    "diff": ("diff", make_diff),
    "find": ("paths", make_find),
    "ls": ("paths", make_ls),
    "tree": ("paths", make_tree),
    "csv": ("table", make_csv),
    "markdown": ("table", make_markdown),
    "columns": ("table", make_columns),
    "grep": ("matches", make_grep),
}
"""By name: what it is recognised as, and how it is made."""
OTHERS = {"junk": make_junk, "prose": make_prose}
"""What may be recognised as anything, or as nothing."""
