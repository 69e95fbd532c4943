r"""Permission rules: how they are written, and which calls a rule allows or forbids.

    shell: git status -s     exactly this command
    shell: git status *      every simple command that begins with these words
    write: src/a.py          writing this file
    write: src/*             writing anything below src
    read: /etc/*             reading there; reading inside the working folder needs no rule
    github__create_issue     every call of the tool of this name

A literal `*` is written `\*`. A command is simple if each of its characters is known to be
harmless: with `;`, `&`, `|`, `$`, a backtick, a redirection, a bracket or a line end in it, it is
matched by its exact text only. A forbidding rule is looked for anywhere in a command. That is a
fence for a model that means well, not a wall: if you need a wall, run the agent in a container.
"""

import re
import shlex
from itertools import chain

from foldline.agent.tool import Intent

# Outside quotes only what no shell expands, inside them what it leaves alone. Linear time.
# Groups are atomic, not possessive: Python before 3.11.5 mismatches `(?:…)++` (gh-106052).
_WORD = r"""(?>(?:[A-Za-z0-9_./:=@,+%^-]|(?<=[A-Za-z0-9])~|'[^'\n\r\0]*'|"[^"$`\\!\n\r\0]*")+)"""
_SIMPLE = re.compile(rf" *+{_WORD}(?>(?: ++{_WORD})*) *+")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*+")
_BREAKS = re.compile(r"[;&|()<>`${}\n\r]+")
_QUOTES = re.compile(r"['\"\\]")
# They run or destroy whatever they are given: `env *` would allow everything.
_RUNNERS = frozenset(
    {
        *("bash", "sh", "zsh", "dash", "ksh", "fish", "env", "sudo", "doas", "su", "xargs", "ssh"),
        *("nohup", "time", "timeout", "nice", "ionice", "setsid", "stdbuf", "watch", "parallel"),
        *("exec", "eval", "source", ".", "command", "builtin", "trap", "coproc", "alias"),
        *("find", "awk", "gawk", "sed", "perl", "python", "python2", "python3", "node", "deno"),
        *("bun", "ruby", "php", "lua", "osascript", "strace", "gdb", "npx", "uvx"),
        *("rm", "chmod", "chown", "dd", "mkfs", "kill", "pkill", "killall"),
        *("tar", "rsync", "docker", "podman", "vim", "vi", "emacs", "less", "man"),
        *("if", "while", "until", "for", "case", "function", "select"),
    }
)
_THROUGH = frozenset(  # so do these: they run the word that follows
    {
        *(("uv", "run"), ("poetry", "run"), ("pdm", "run"), ("pipx", "run"), ("npm", "exec")),
        *(("python", "-m"), ("python3", "-m"), ("npm", "run"), ("pnpm", "run"), ("yarn", "run")),
    }
)
# Of these only two words make a rule: `git *` would allow `git -c alias.x='!…' x`.
_HEADS = frozenset({"git", *(head for head, _ in _THROUGH)})
_GUARDED = frozenset({".git", ".hg", ".foldline", "foldline.toml", "foldline.yaml", "foldline.yml"})
"""Writing there makes other programs run, or changes what this agent may do."""


def for_command(command: str) -> tuple[str, ...]:
    """List the rules a command may be remembered by, the narrowest first."""
    exact = _format_exact_rule("shell", command)
    words = split_simple_command(command)
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
    """List the rules for a path: the file, its folder, and everything inside the root."""
    exact = _format_exact_rule(kind, name)
    folder, _, _ = name.rpartition("/")
    if is_guarded_path(name) or "*" in name:
        return (exact,)
    below = (f"{kind}: {folder}/*",) if folder else ()
    everything = () if name.startswith("/") else (f"{kind}: *",)
    return (exact, *below, *everything)


def is_allowed_by(rule: str, name: str, intent: Intent) -> bool:
    """Whether a rule allows what a call of the tool `name` is about to do."""
    if rule == name or rule in intent.rules:
        return True
    kind, text, what = _split_rule(rule, intent)
    match kind:
        case "shell":
            words = split_simple_command(what)
            return text.endswith("*") and words is not None and _is_command_match(words, text)
        case "read" | "write":
            if is_guarded_path(what) or what.startswith("/") != text.startswith("/"):
                return False
            return "*" in text and _is_name_match(text, what)
        case _:
            return False


def is_forbidden_by(rule: str, name: str, intent: Intent) -> bool:
    """Whether a rule forbids any part of what a call is about to do."""
    if rule == name or rule in intent.rules:
        return True
    kind, text, what = _split_rule(rule, intent)
    match kind:
        case "shell":
            return any(_is_command_match(words, text) for words in _all_commands(what))
        case "read" | "write":
            return _is_name_match(text, what)
        case _:
            return any(_is_name_match(rule, one) for one in intent.rules)


def kind_of(intent: Intent) -> str:
    """Return the intent's kind: `read`, `write`, `shell`, or another tool's own word."""
    return intent.rules[0].partition(": ")[0] if intent.rules else ""


def is_write_inside_root(intent: Intent) -> bool:
    """Whether it writes a file inside the root that is not guarded."""
    name = _strip_escapes(intent.rules[0].partition(": ")[2]) if intent.rules else "/"
    return kind_of(intent) == "write" and not name.startswith("/") and not is_guarded_path(name)


def split_simple_command(command: str) -> list[str] | None:
    """Split a simple command, without expansions, into words; None for any other."""
    if len(command) > 10_000 or not _SIMPLE.fullmatch(command):  # noqa: PLR2004
        return None
    return shlex.split(command)


def is_guarded_path(name: str) -> bool:
    """Whether only an exact rule may allow this file."""
    return any(part.casefold() in _GUARDED for part in name.split("/"))


def _format_exact_rule(kind: str, text: str) -> str:
    return f"{kind}: {text}".replace("*", r"\*")


def _strip_escapes(text: str) -> str:
    return text.replace(r"\*", "*")


def _split_rule(rule: str, intent: Intent) -> tuple[str, str, str]:
    """Return the rule's kind and text, and the intent's subject if it is of that kind."""
    kind, _, text = rule.partition(": ")
    if kind != kind_of(intent):
        return "", text, ""
    return kind, text.strip(), _strip_escapes(intent.rules[0].partition(": ")[2])


def _is_command_match(words: list[str], text: str) -> bool:
    """Whether words match a rule: all of them, or the first if the rule ends in `*`."""
    wanted = text.split()
    if not wanted or not words:
        return False
    least = wanted[:-1] if wanted[-1] == "*" else wanted
    if wanted[-1] != "*" and len(words) != len(wanted):
        return False
    return words[: len(least)] == [*map(_strip_escapes, least)]


def _is_name_match(text: str, what: str) -> bool:
    """Whether a name matches a rule; `*` is any characters, also across folders."""
    pieces = [re.escape(_strip_escapes(one)) for one in re.split(r"(?<!\\)\*", text)]
    return re.fullmatch(".*".join(pieces), what, re.DOTALL) is not None


def _all_commands(text: str) -> list[list[str]]:
    """List whatever may be a command in a text: too many rather than too few."""
    from foldline.core.ledger.shell_commands import parse_commands  # noqa: PLC0415 - slow import

    found = [[*one.words] for one in parse_commands(text)]
    for plain in (_QUOTES.sub("", text), _QUOTES.sub(";", text)):
        for part in _BREAKS.split(plain):
            words = part.split()
            found += (
                words[at:] for at in range(len(words)) if at == 0 or _is_runner_prefix(words[:at])
            )
    named = ([words[0].rpartition("/")[2], *words[1:]] for words in found if words)
    return [*chain(found, named)]


def _is_runner_prefix(words: list[str]) -> bool:
    """Whether these words may run the next one: assignments, options, `sudo` and similar."""
    return all("=" in one or one.startswith("-") or one in _RUNNERS for one in words)
