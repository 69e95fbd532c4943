"""Shell text as agents write it: its simple commands, and the files that they touch.

Knows what some seventy commands do to the files they name, and where `cd` leads. Refuses to know
events, results, the log and the file system. What only a running shell could tell (globs,
variables, substitutions) is no path: a path left out is better than a wrong one.
"""

import posixpath
import re
from typing import Literal, NamedTuple

from foldline.core.ledger.words import LONGEST, Word, simples

State = Literal["read", "written", "removed", "moved"]


class Touch(NamedTuple):
    """What a command does to one file."""

    state: State
    path: str
    to: str = ""  # where it was moved to; empty where only the shell knows


class Command(NamedTuple):
    """One simple command: its words without quotes, and what it touches."""

    words: tuple[str, ...]
    touches: tuple[Touch, ...]


def commands(text: str, *, cwd: str = "") -> list[Command]:
    """The simple commands of a text, in order; `bash -c` gives those of its script."""
    return _run(text, cwd, 4)


def touches(text: str, *, cwd: str = "") -> list[Touch]:
    """What a text touches, in order; paths are normalised and joined to where it stands."""
    return [touch for command in commands(text, cwd=cwd) for touch in command.touches]


# What is known of commands: kind | options that take a value / may have one attached | names

_TABLE = """
read | | cat tac rev zcat comm
page | | less more view
page | ncs lines bytes pid | head tail
read | rlH line-range language style theme color | bat batcat
read | bdfhilnsvw | nl
read | AjNtSw files0-from | wc od
read | enfst bytes | hexdump strings
read | bcdfw delimiter fields output-delimiter wrap | cut paste fold base64
read | kotST key output field-separator | sort
read | UCxXWFILin unified context exclude label | diff cmp
open | cglosfw | open source . xxd uniq
write | drts date reference size | tee touch truncate
create | | create
remove | ns iterations size | rm unlink rmdir shred
copy | tSmog target-directory suffix mode owner group | cp install
move | tS target-directory suffix | mv
search | efmABCdD regexp file max-count context include exclude exclude-dir | grep egrep fgrep zgrep
search | efmABCgtTjMrE regexp file max-count context glob iglob type type-not replace | rg
program | efl/i expression file line-length | sed
program | Fvfi field-separator assign file | awk gawk
program | eEI/iM0lFCx | perl
program | fL arg argjson slurpfile rawfile indent from-file | jq
load | oHdXFuAebTmwxKcrEzU output header data data-raw data-binary request form user max-time | curl
load | OoPUtTeaiBQwlARDXI output-document user-agent header tries timeout directory-prefix | wget
patch | pidoDBFrVYz strip input directory | patch
tar | fCXTbgI file directory exclude files-from | tar
zip | xinbtP | zip
dd | | dd
apply | | apply_patch applypatch
run | ugpChrtUT user group | sudo doas
run | uCS unset chdir | env
run | foioe | time stdbuf nohup exec
run | skn signal kill-after adjustment | timeout nice
run | InPLdsaE max-args max-procs delimiter arg-file | xargs
"""
_NONE, _UNSURE, _HOME = Word("", ("",)), Word("?", ("",)), Word("~", ("~",))
_ROWS = [row.split("|") for row in _TABLE.strip().splitlines()]
_KNOWN = {name: (row[0].strip(), row[1].strip(" ")) for row in _ROWS for name in row[2].split()}
_PAIRS = {"arg", "argjson", "slurpfile", "rawfile"}  # options that take two values
_RESERVED = {*["if", "then", "elif", "else", "fi", "while", "until", "do", "done", "esac"], *"{}!"}
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=")
_NAMED = re.compile(r"[^/]\.\w{1,10}$")
_URL = re.compile(r"(?:\w+://)?[^/?#]+/(?:[^?#]*/)?([^/?#$`*{[]+)(?:[?#]|$)")
_PATCHED = re.compile(r"^\*\*\* (\w+) File: (.+)(?:\n\*\*\* Move to: (.+))?", re.MULTILINE)


def _run(text: str, cwd: str | None, depth: int) -> list[Command]:
    """The commands of a text, followed from directory to directory; None is an unknown one."""
    done: list[Command] = []
    outer: list[str | None] = []
    back, piped = cwd, ""
    for simple in simples(text):
        words, args = _bare(simple.words)
        name = posixpath.basename(words[0].text) if words else ""
        body = "".join(simple.bodies) or piped
        piped = body if simple.stop in {"|", "|&"} else ""
        script = _script(args) if depth and name in {"bash", "sh", "zsh", "dash"} else None
        if script is not None:
            done += _run(script, cwd, depth - 1)
            words = []
        found = [] if script is not None else _acts(name, args, body)
        if name != "[[" and args[-1:] != [Word("]]", ("]]",))]:
            found += _turned(simple.turns)
        found = _placed(found, cwd)
        if words or found:
            done.append(Command(tuple(word.text for word in words), tuple(found)))
        if name in {"cd", "pushd", "popd"}:
            target = next((word for word in args if word.text not in {"--", "-P", "-L"}), _HOME)
            known = name != "popd" and target.text != "-"
            cwd, back = (_place(target.paths[0], cwd) or None) if known else back, cwd
        if simple.stop == "(":
            outer.append(cwd)
        elif simple.stop == ")" and outer:
            cwd = outer.pop()
    return done


def _bare(words: list[Word]) -> tuple[list[Word], list[Word]]:
    """A command's words without what stands before its name; and its arguments as it gets them."""
    more: list[Word] = []
    hole = ""
    for _ in range(8):
        at = 0
        while at < len(words) and (words[at].text in _RESERVED or _ASSIGNED.match(words[at].text)):
            at += 1
        words = words[at:]
        name = words[0].text if words else ""
        kind, takes = _KNOWN.get(name, ("", ""))
        if kind != "run":
            break
        options, words = _split(words[1:], takes, first=True)
        words = words[1:] if name == "timeout" else words
        if name == "xargs":
            hole = options.get("I", _NONE).text
            more = [] if hole else [_UNSURE]
    return words, [_UNSURE if hole and hole in word.text else word for word in words[1:]] + more


def _split(
    words: list[Word], takes: str, *, first: bool = False
) -> tuple[dict[str, Word], list[Word]]:
    """Options with their values, and the other words; with `first`, all from the first other."""
    short, *names = takes.split(" ")
    letters, _, attached = short.partition("/")
    options: dict[str, Word] = {}
    others: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        text, at = word.text, at + 1
        if text == "--":
            return options, others + words[at:]
        if text.startswith("--"):
            name, equals, value = text[2:].partition("=")
            options[name] = Word(value, tuple(path.partition("=")[2] for path in word.paths))
            if not equals and name in names:
                options[name] = words[at] if at < len(words) else _NONE
                at += 2 if name in _PAIRS else 1
        elif text.startswith("-") and text != "-":
            for end, letter in enumerate(text[1:64], 2):
                options[letter] = _NONE
                if letter in attached or (letter in letters and text[end:]):
                    options[letter] = Word(text[end:], tuple(path[end:] for path in word.paths))
                    break
                if letter in letters:
                    options[letter] = words[at] if at < len(words) else _NONE
                    at += 1
                    break
        elif first:
            return options, words[at - 1 :]
        else:
            others.append(word)
    return options, others


def _script(args: list[Word]) -> str | None:
    """What `bash -lc` is given to run."""
    options, words = _split(args, "oO rcfile", first=True)
    return words[0].text if "c" in options and words else None


def _place(path: str, cwd: str | None) -> str:
    """A path from where the shell stands, normalised; empty for what is no file of ours."""
    if path in {"", "-"} or len(path) > LONGEST or (cwd is None and path[0] not in "/~"):
        return ""
    whole = posixpath.normpath(path if path[0] == "~" else posixpath.join(cwd or "", path))
    whole = whole[1:] if whole.startswith("//") else whole
    return "" if whole.startswith("/dev/") or len(whole) > LONGEST else whole


def _placed(found: list[Touch], cwd: str | None) -> list[Touch]:
    places = [Touch(state, _place(path, cwd), _place(to, cwd)) for state, path, to in found]
    return [touch for touch in places if touch.path]


def _each(state: State, words: list[Word]) -> list[Touch]:
    return [Touch(state, path) for word in words for path in word.paths]


def _turned(turns: list[tuple[str, Word]]) -> list[Touch]:
    """Files of redirections; `>&1` and `<<<` name none."""
    found: list[Touch] = []
    for turn, word in turns:
        if turn not in {"<<<", "<&"} and not (turn == ">&" and re.match(r"\d|-$", word.text)):
            found += _each("read" if turn == "<" else "written", [word])
    return found


def _acts(name: str, args: list[Word], body: str) -> list[Touch]:
    """What a command does to the files it names."""
    if name not in _KNOWN:
        return _git(args) if name == "git" else []
    kind, takes = _KNOWN[name]
    if kind == "tar" and args and args[0].text[:1] != "-":
        args = [Word(f"-{args[0].text}", ("",)), *args[1:]]
    options, words = _split(args, takes)
    has = options.keys()
    match kind:
        case "read" if name != "diff" or not has & {"r", "recursive"}:
            output = [options.get("o", options.get("output", _NONE))] if name == "sort" else []
            return _each("read", words) + _each("written", output)
        case "page":
            return _each("read", [word for word in words if word.text[:1] != "+"])
        case "open" | "create":
            return _each("read" if kind == "open" else "written", words[:1])
        case "write":
            return _each("written", words)
        case "remove":
            kept = name == "shred" and not has & {"u", "remove"}
            return _each("written" if kept else "removed", words)
        case "copy" if not (name == "install" and has & {"d", "directory"}):
            pairs = _pairs(options, words)
            return [Touch("read", a) for a, _ in pairs] + [Touch("written", b) for _, b in pairs]
        case "move":
            pairs = _pairs(options, words)
            return [Touch("moved", a, b) if a else Touch("written", b) for a, b in pairs]
        case "search":
            named = words if has & {"e", "f", "regexp", "file", "files"} else words[1:]
            deep = name == "rg" or has & {"r", "R", "recursive"}
            found = _each("read", named)
            return [t for t in found if _NAMED.search(t.path) or ("/" in t.path[:-1] and not deep)]
        case "program":
            return _programmed(name, options, words)
        case "load":
            return _loaded(name, options, words)
        case "patch":
            diff = words[1:2] or [options.get("i", _NONE)]
            return _each("read", diff) + _each("written", words[:1])
        case "tar" if has & {"c", "r", "u", "create"}:
            return _each("written", [options.get("f", options.get("file", _NONE))])
        case "zip":
            paths = [path for word in words[:1] for path in word.paths if path]
            return [Touch("written", p if _NAMED.search(p) else f"{p}.zip") for p in paths]
        case "dd":
            keys: dict[str, State] = {"if": "read", "of": "written"}
            found = [path.partition("=") for word in words for path in word.paths]
            return [Touch(keys[key], path) for key, _, path in found if key in keys]
        case "apply":
            return patched("\n".join([*(word.text for word in args), body]))
        case _:
            return []


def _pairs(options: dict[str, Word], words: list[Word]) -> list[tuple[str, str]]:
    """Sources with their destinations: in a directory for several, or behind a slash."""
    paths = [path for word in words for path in word.paths]
    into = options.get("t", options.get("target-directory"))
    target = into.paths[0] if into else paths.pop() if paths else ""
    inside = into or len(paths) > 1 or posixpath.basename(target) in {"", ".", ".."}
    pairs: list[tuple[str, str]] = []
    for path in paths:
        to = posixpath.join(target, posixpath.basename(path.rstrip("/"))) if inside else target
        # What the shell expands may be many files, and the target then is their directory.
        sure = target and (path or (not inside and _NAMED.search(target)))
        pairs.append((path, to if sure else ""))
    return pairs


def _programmed(name: str, options: dict[str, Word], words: list[Word]) -> list[Touch]:
    """Files that a program in an argument prints, or changes in place."""
    has = options.keys()
    changed = bool(has & {"i", "in-place"}) and name in {"sed", "perl"}
    if name == "perl" and not has & {"i", "n", "p"}:
        return []
    if name == "sed" and changed and words and re.fullmatch(r"(\.\w+)?", words[0].text):
        words = words[1:]  # the BSD form: -i ''
    given = {"sed": "ef", "perl": "eE"}.get(name, "f")
    if not has & {*given, "expression", "file", "from-file"}:
        words = words[1:]
    if name.endswith("awk"):
        words = [word for word in words if not _ASSIGNED.match(word.text)]
        changed = options.get("i", _NONE).text == "inplace"
    return _each("written" if changed else "read", words)


def _loaded(name: str, options: dict[str, Word], words: list[Word]) -> list[Touch]:
    """Files that a download is written to."""
    named = "output" if name == "curl" else "output-document"
    file = options.get("o" if name == "curl" else "O", options.get(named))
    if file and file is not _NONE:
        return _each("written", [file])
    if name == "curl" and not options.keys() & {"O", "remote-name"}:
        return []
    if options.keys() & {"spider", "r", "m", "i", "P", "directory-prefix", "output-dir"}:
        return []
    urls = [_URL.match(word.text) for word in words]  # their `?` is no glob
    return [Touch("written", url[1]) for url in urls if url]


def _git(args: list[Word]) -> list[Touch]:
    """Files that git writes, removes or moves in the working tree."""
    before, words = _split(args, "Cc git-dir work-tree", first=True)
    verb = words[0].text if words else ""
    options, rest = _split(words[1:], "s source" if verb == "restore" else "")
    texts = [word.text for word in words]
    has = options.keys()
    found: list[Touch] = []
    if verb == "checkout" and "--" in texts:
        found = _each("written", words[texts.index("--") + 1 :])
    elif verb == "restore" and (has & {"W", "worktree"} or not has & {"S", "staged"}):
        found = _each("written", rest)
    elif verb == "rm" and "cached" not in has:
        found = _each("removed", rest)
    elif verb == "mv":
        found = _acts("mv", words[1:], "")
    found = [touch for touch in found if touch.path != "."]  # the whole tree is no file
    return _placed(found, before["C"].paths[0] or None) if "C" in before else found


def patched(text: str) -> list[Touch]:
    """Files of a patch in the Codex form."""
    found: list[Touch] = []
    for action, path, to in _PATCHED.findall(text):
        state: State = "moved" if to else "removed" if action == "Delete" else "written"
        found.append(Touch(state, path.strip(), to.strip()))
    return found
