r"""Rules: what an answer may be remembered for, and what such a rule lets through.

    shell: git status -s     this command, to the letter
    shell: git status *      every command that begins with these words and does one thing
    write: src/a.py          writing this file
    write: src/*             and whatever is below src
    read: /etc/*             reading there: what is inside the working folder is never asked about
    github__create_issue     everything that a tool of this name does

A `*` that stands for itself is written `\*`. Knows how rules are written and matched. Refuses to
know who remembers them. A command does one thing where each of its characters is known to be
harmless: with `;`, `&`, `|`, `$`, a backtick, a redirection, a bracket or a line end in it, it is
matched by its exact text only. What a rule forbids is looked for anywhere in a command; that is a
fence for a model that means well, not a wall: whoever wants one runs the agent in a container.
"""

import re
import shlex
from itertools import chain

from foldline.agent.tool import Intent

# Outside of quotes only what no shell expands, inside of them what it leaves alone. Linear.
_WORD = r"""(?:[A-Za-z0-9_./:=@,+%^-]|(?<=[A-Za-z0-9])~|'[^'\n\r\0]*'|"[^"$`\\!\n\r\0]*")++"""
_SIMPLE = re.compile(rf" *+{_WORD}(?: ++{_WORD})*+ *+")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*+")
_BREAKS = re.compile(r"[;&|()<>`${}\n\r]+")
_QUOTES = re.compile(r"['\"\\]")
# They run, or undo, whatever they are given: `env *` would be everything.
_RUNNERS = frozenset(
    {
        *("bash", "sh", "zsh", "dash", "ksh", "fish", "env", "sudo", "doas", "su", "xargs", "ssh"),
        *("nohup", "time", "timeout", "nice", "ionice", "setsid", "stdbuf", "watch", "parallel"),
        *("exec", "eval", "source", ".", "command", "builtin", "trap", "coproc", "alias"),
        *("find", "awk", "gawk", "sed", "perl", "python", "python2", "python3", "node", "deno"),
        *("bun", "ruby", "php", "lua", "osascript", "strace", "gdb", "npx", "uvx"),
        *("rm", "chmod", "chown", "dd", "mkfs", "kill", "pkill", "killall"),
        *("if", "while", "until", "for", "case", "function", "select"),
    }
)
_THROUGH = frozenset(  # and so do these: the word behind them is what is run
    {
        *(("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipx", "run"), ("npm", "exec")),
        *(("python", "-m"), ("python3", "-m"), ("npm", "run"), ("pnpm", "run"), ("yarn", "run")),
    }
)
_HEADS = frozenset(head for head, _ in _THROUGH)
_GUARDED = frozenset({".git", ".hg", ".foldline", "foldline.toml", "foldline.yaml", "foldline.yml"})
"""Whoever writes there has other programs run, or decides what this agent may do."""


def for_command(command: str) -> tuple[str, ...]:
    """What a command may be remembered for, the narrowest first."""
    exact = _exact("shell", command)
    words = simple(command)
    if words is None or not _PLAIN.fullmatch(words[0]):
        return (exact,)
    head = [words[0]]
    if tuple(words[:2]) in _THROUGH:
        head = words[:3]
        if len(head) < 3 or head[2] in _RUNNERS or not _PLAIN.fullmatch(head[2]):  # noqa: PLR2004
            return (exact,)
        return (exact, f"shell: {' '.join(head)} *")
    if words[0] in _RUNNERS:
        return (exact,)
    more = len(words) > 1 and _PLAIN.fullmatch(words[1]) and "." not in words[1]
    two = (f"shell: {words[0]} {words[1]} *",) if more else ()
    one = () if words[0] in _HEADS else (f"shell: {words[0]} *",)
    return (exact, *two, *one)


def for_path(kind: str, name: str) -> tuple[str, ...]:
    """What a file may be remembered for: it, its folder, and all that is inside the root."""
    exact = _exact(kind, name)
    folder, _, _ = name.rpartition("/")
    if guarded(name) or "*" in name:
        return (exact,)
    below = (f"{kind}: {folder}/*",) if folder else ()
    everything = () if name.startswith("/") else (f"{kind}: *",)
    return (exact, *below, *everything)


def covers(rule: str, name: str, intent: Intent) -> bool:
    """Whether a rule lets through what a call of the tool `name` is about to do."""
    if rule == name or rule in intent.rules:
        return True
    kind, text, what = _apart(rule, intent)
    match kind:
        case "shell":
            words = simple(what)
            return text.endswith("*") and words is not None and _begins(words, text)
        case "read" | "write":
            if guarded(what) or what.startswith("/") != text.startswith("/"):
                return False
            return "*" in text and _like(text, what)
        case _:
            return False


def forbids(rule: str, name: str, intent: Intent) -> bool:
    """Whether a rule meets anything of what a call is about to do."""
    if rule == name or rule in intent.rules:
        return True
    kind, text, what = _apart(rule, intent)
    match kind:
        case "shell":
            return any(_begins(words, text) for words in _all_commands(what))
        case "read" | "write":
            return _like(text, what)
        case _:
            return any(_like(rule, one) for one in intent.rules)


def kind_of(intent: Intent) -> str:
    """`read`, `write`, `shell`, or whatever another tool calls it."""
    return intent.rules[0].partition(": ")[0] if intent.rules else ""


def inside(intent: Intent) -> bool:
    """Whether it writes a file inside of the root, and none that others act upon."""
    name = _unescaped(intent.rules[0].partition(": ")[2]) if intent.rules else "/"
    return kind_of(intent) == "write" and not name.startswith("/") and not guarded(name)


def simple(command: str) -> list[str] | None:
    """The words of a command that does one thing and has nothing expanded; None of any other."""
    if len(command) > 10_000 or not _SIMPLE.fullmatch(command):  # noqa: PLR2004
        return None
    return shlex.split(command)


def guarded(name: str) -> bool:
    """Whether a file is one that only its own exact rule is for."""
    return any(part.casefold() in _GUARDED for part in name.split("/"))


def _exact(kind: str, text: str) -> str:
    return f"{kind}: {text}".replace("*", r"\*")


def _unescaped(text: str) -> str:
    return text.replace(r"\*", "*")


def _apart(rule: str, intent: Intent) -> tuple[str, str, str]:
    """The kind of a rule and what it says; and what the intent is about, where it is of that."""
    kind, _, text = rule.partition(": ")
    if kind != kind_of(intent):
        return "", text, ""
    return kind, text.strip(), _unescaped(intent.rules[0].partition(": ")[2])


def _begins(words: list[str], text: str) -> bool:
    """Whether words are those of a rule: all of them, or with a `*` at its end the first."""
    wanted = text.split()
    if not wanted or not words:
        return False
    least = wanted[:-1] if wanted[-1] == "*" else wanted
    if wanted[-1] != "*" and len(words) != len(wanted):
        return False
    return words[: len(least)] == [*map(_unescaped, least)]


def _like(text: str, what: str) -> bool:
    """Whether a name is as a rule says; `*` is any characters, also across folders."""
    pieces = [re.escape(_unescaped(one)) for one in re.split(r"(?<!\\)\*", text)]
    return re.fullmatch(".*".join(pieces), what, re.DOTALL) is not None


def _all_commands(text: str) -> list[list[str]]:
    """Whatever may be a command in a text: too many rather than too few."""
    from foldline.core.ledger.shell import commands  # noqa: PLC0415 - only where rules forbid

    found = [[*one.words] for one in commands(text)]
    for plain in (_QUOTES.sub("", text), _QUOTES.sub(";", text)):
        for part in _BREAKS.split(plain):
            words = part.split()
            found += (words[at:] for at in range(len(words)) if at == 0 or _carries(words[:at]))
    named = ([words[0].rpartition("/")[2], *words[1:]] for words in found if words)
    return [*chain(found, named)]


def _carries(words: list[str]) -> bool:
    """Whether what stands before a word may run it: assignments, options, `sudo` and its like."""
    return all("=" in one or one.startswith("-") or one in _RUNNERS for one in words)
