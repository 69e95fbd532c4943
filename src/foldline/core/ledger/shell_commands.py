"""Parse shell text as agents write it: its simple commands, and the files they touch.

Text becomes words, words become simple commands, and a table of some seventy commands says what
each does to the files it names; `cd` is followed. What only a running shell could tell (globs,
variables, substitutions) is not a path: a path left out is better than a wrong one.

Parsing takes linear time on any text: every match moves past what it has read, and matches are
counted. A text that needs more than `_PATIENCE` matches ends at its last whole command.
"""

import posixpath
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

_PATIENCE = 60_000  # matches; a character of a text takes at most three
_TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t\r]|\\\r?\n)+)
    | (?P<note>\#[^\n]*)
    | (?P<sum>\(\([^()\n]{0,500}\)\))
    | (?:\d{1,3}(?=[<>]))? (?P<turn>&>>?|<<<|<<-?|<>|<&|<(?!\()|>>|>\||>&|>(?!\())
    | (?P<stop>\n|&&?|\|[|&]?|;{1,2}&?|[()])""",
    re.VERBOSE,
)
_PIECE = re.compile(
    r"""(?P<bare>[^ \t\r\n;&|<>()'"\\`$]+)
    | '(?P<single>[^']*)'
    | "(?P<double>[^"\\$`]*)"
    | (?P<quote>")
    | (?P<open>[$<>]\(|(?<==)\(|`|\$')
    | \\(?:\r?\n|(?P<escaped>.))
    | (?P<unsure>\$(?:\{[^}]*\}?)?|'[^']*|\\)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(
    r"""(?P<plain>[^"\\$`]+|\\(?![$`"\\\r\n]))
    | (?P<quote>")
    | (?P<open>\$\(|`)
    | \\(?:\r?\n|(?P<escaped>.))
    | (?P<unsure>\$|\\)""",
    re.VERBOSE | re.DOTALL,
)
_INSIDE = {  # by closing mark: up to the next character that matters
    ")": re.compile(
        r"""[^\\'"`()<]*+(\\.?|'[^']*'?|["`()]|<<-?(?=[ \t]*['"\\]?[A-Za-z_])|<+)""", re.DOTALL
    ),
    '"': re.compile(r"""[^\\"`$]*+(\\.?|["`]|\$\(?)""", re.DOTALL),
    "`": re.compile(r"[^\\`]*+(\\.?|`)", re.DOTALL),
    "'": re.compile(r"[^\\']*+(\\.?|')", re.DOTALL),
}
_DELIMITER = re.compile(r"""[ \t]*['"\\]?(\w+)""")
_GLOB = re.compile(r"[*?\[]")
_BRACE = re.compile(r"[{},]")
_LIST = re.compile(r"\0\{([^\0]*(?:\0,[^\0]*)+)\0\}")
LONGEST = 4096  # characters of a path
_MOST = 20  # words that one word with braces may expand to


class Word(NamedTuple):
    """A word without its quotes; what the shell would expand is left as written."""

    text: str
    paths: tuple[str, ...]  # after brace expansion; "" where only the shell knows


class Simple(NamedTuple):
    """A simple command as written, with its assignments and reserved words."""

    words: list[Word]
    turns: list[tuple[str, Word]]  # redirections
    bodies: list[str]  # of heredocs
    stop: str = ""  # what ended it: `;`, `|`, `)`, a line end


def parse_simple_commands(text: str) -> list[Simple]:
    """Parse the simple commands of a text, in order."""
    return _Reader(text).read_commands()


class _Reader:
    """A position in a text, and the matches that are left."""

    __slots__ = ("at", "patience", "text")

    def __init__(self, text: str) -> None:
        self.text, self.at, self.patience = text.replace("\0", ""), 0, _PATIENCE

    def take_match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.patience -= 1
        if self.patience < 0:
            self.at = len(self.text)
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def read_commands(self) -> list[Simple]:
        done: list[Simple] = []
        awaited: list[tuple[Simple, str, str]] = []
        now, turn = Simple([], [], []), ""
        edits = "\nend_of_edit" in self.text
        while self.at < len(self.text):
            token = self.take_match(_TOKEN)
            if token is None:
                word = self.read_word()
                if turn.startswith("<<") and turn != "<<<":
                    awaited.append((now, word.text, turn))
                elif turn:
                    now.turns.append((turn, word))
                else:
                    now.words.append(word)
                turn = ""
            elif token.lastgroup == "turn":
                turn = token["turn"]
            elif token.lastgroup == "stop":
                self.patience -= 2  # a command costs more than a character
                if now.words or now.turns or token[0] in "()":
                    done.append(now._replace(stop=token[0]))
                if edits and now.words and now.words[0].text == "edit":
                    awaited.append((now, "end_of_edit", "<<"))  # SWE-agent's own heredoc
                now, turn = Simple([], [], []), ""
                if token[0] == "\n":
                    for simple, delimiter, kind in awaited:
                        simple.bodies.append(self.read_heredoc(delimiter, kind))
                    awaited = []
        return done if self.patience < 0 else [*done, now]

    def read_word(self) -> Word:
        parts: list[str] = []
        sure, inside = True, False
        while found := self.take_match(_QUOTED if inside else _PIECE):
            kind = found.lastgroup or ""
            piece = found[kind] if kind else ""
            match kind:
                case "bare":
                    sure = sure and len(piece) <= LONGEST and not _GLOB.search(piece)
                    piece = _BRACE.sub("\0\\g<0>", piece) if sure else piece
                case "quote":
                    inside, piece = not inside, ""
                case "open":
                    sure = False
                    self.skip_substitution({"`": "`", "$'": "'"}.get(piece, ")"))
                    piece = self.text[found.start() : self.at]
                case "unsure":
                    sure = False
                case _:
                    pass
            parts.append(piece)
        marked = "".join(parts)
        text = marked.replace("\0", "")
        return Word(text, _expand_braces(marked) if sure and not inside else ("",))

    def skip_substitution(self, closer: str) -> None:
        """Move past a substitution and all that is nested in it."""
        closers = [closer]
        while closers and (found := self.take_match(_INSIDE[closers[-1]])):
            mark = found[1]
            if mark == closers[-1]:
                closers.pop()
            elif mark in {'"', "`"}:
                closers.append(mark)
            elif mark in {"(", "$("}:
                closers.append(")")
            elif mark in {"<<", "<<-"} and (named := self.take_match(_DELIMITER)):
                self.at = (self.text.find("\n", self.at) + 1) or len(self.text)
                self.read_heredoc(named[1], mark)
        if closers:
            self.at = len(self.text)

    def read_heredoc(self, delimiter: str, turn: str) -> str:
        """Read a heredoc's body and move past its delimiter; starts at the start of a line."""
        text, begin = self.text, self.at
        while (at := text.find(delimiter, self.at)) >= 0:
            start = text.rfind("\n", self.at, at) + 1 or self.at
            end = text.find("\n", at + len(delimiter))
            self.at = len(text) if end < 0 else end + 1
            before = text[start:at].lstrip("\t" if turn == "<<-" else "")
            if not before and not text[at + len(delimiter) : self.at].strip("\r\n"):
                return text[begin:start]
            if end < 0:
                break
        self.at = len(text)
        return text[begin:]


def _expand_braces(marked: str) -> tuple[str, ...]:
    """Expand a word's brace lists; NUL marks the braces that were not quoted."""
    words: list[str] = [marked] if len(marked) <= 2 * LONGEST else []
    while 0 < len(words) <= _MOST and _LIST.search(words[0]):
        words = [
            word[: found.start()] + piece + word[found.end() :]
            for word in words
            if (found := _LIST.search(word))
            for piece in found[1].split("\0,")[: _MOST + 1]
        ]
    if not words or len(words) > _MOST or "\0{" in words[0] or "\0}" in words[0]:
        return ("",)
    return tuple(dict.fromkeys(word.replace("\0", "") for word in words))


State = Literal["read", "written", "removed", "moved"]


class Touch(NamedTuple):
    """What a command does to one file."""

    state: State
    path: str
    to: str = ""  # the new path of a moved file; "" where only the shell knows


class Command(NamedTuple):
    """One simple command: its words without quotes, and the files it touches."""

    words: tuple[str, ...]
    touches: tuple[Touch, ...]


def parse_commands(text: str, *, cwd: str = "") -> list[Command]:
    """Parse the commands of a text, in order; `bash -c` yields those of its script."""
    return _follow_commands(text, cwd, 4)


def list_touches(text: str, *, cwd: str = "") -> list[Touch]:
    """List the files a text touches, in order, with paths normalised and joined to `cwd`."""
    return [touch for command in parse_commands(text, cwd=cwd) for touch in command.touches]


def only_shows_files(text: str) -> bool:
    """True if every command of a text shows files, or cuts what is shown; `cd` may be there."""
    commands = [one for one in parse_commands(text) if one.words[:1] != ("cd",)]
    kinds = {
        _KNOWN.get(posixpath.basename(one.words[0]), ("",))[0] for one in commands if one.words
    }
    touches = [touch for command in commands for touch in command.touches]
    only_read = bool(touches) and all(touch.state == "read" for touch in touches)
    return only_read and all(one.words for one in commands) and kinds <= _SHOWS


# Rows: kind | options that take a value / that may have one attached | commands.
# `_LIST_TOUCHES` says what each kind does; `run` commands run the command that follows them.
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
_SHOWS = {"read", "page", "program"}
_KNOWN = {name: (row[0].strip(), row[1].strip(" ")) for row in _ROWS for name in row[2].split()}
_PAIRS = {"arg", "argjson", "slurpfile", "rawfile"}  # options that take two values
_RESERVED = {*["if", "then", "elif", "else", "fi", "while", "until", "do", "done", "esac"], *"{}!"}
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=")
_NAMED = re.compile(r"[^/]\.\w{1,10}$")
_URL = re.compile(r"(?:\w+://)?[^/?#]+/(?:[^?#]*/)?([^/?#$`*{[]+)(?:[?#]|$)")
_PATCHED = re.compile(r"^\*\*\* (\w+) File: (.+)(?:\n\*\*\* Move to: (.+))?", re.MULTILINE)


def _follow_commands(text: str, cwd: str | None, depth: int) -> list[Command]:
    """Follow a text's commands from directory to directory; None is an unknown directory."""
    done: list[Command] = []
    outer: list[str | None] = []  # the directory before each open parenthesis
    back, piped = cwd, ""
    for simple in parse_simple_commands(text):
        words, args = _strip_prefix_words(simple.words)
        name = posixpath.basename(words[0].text) if words else ""
        body = "".join(simple.bodies) or piped
        piped = body if simple.stop in {"|", "|&"} else ""
        script = _find_script(args) if depth and name in {"bash", "sh", "zsh", "dash"} else None
        if script is not None:
            done += _follow_commands(script, cwd, depth - 1)
            words = []
        touches = [] if script is not None else _list_command_touches(name, args, body)
        if name != "[[" and args[-1:] != [Word("]]", ("]]",))]:
            touches += _list_redirect_touches(simple.turns)
        touches = _resolve_touches(touches, cwd)
        if words or touches:
            done.append(Command(tuple(word.text for word in words), tuple(touches)))
        if name in {"cd", "pushd", "popd"}:
            target = next((word for word in args if word.text not in {"--", "-P", "-L"}), _HOME)
            known = name != "popd" and target.text != "-"
            cwd, back = (_resolve_path(target.paths[0], cwd) or None) if known else back, cwd
        if simple.stop == "(":
            outer.append(cwd)
        elif simple.stop == ")" and outer:
            cwd = outer.pop()
    return done


def _strip_prefix_words(words: list[Word]) -> tuple[list[Word], list[Word]]:
    """Return a command's words from its name on, and the arguments it is run with.

    Drops reserved words, assignments and commands such as `sudo` and `xargs`.
    """
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
        options, words = _split_options(words[1:], takes, first=True)
        words = words[1:] if name == "timeout" else words
        if name == "xargs":
            hole = options.get("I", _NONE).text
            more = [] if hole else [_UNSURE]
    return words, [_UNSURE if hole and hole in word.text else word for word in words[1:]] + more


def _split_options(
    words: list[Word], takes: str, *, first: bool = False
) -> tuple[dict[str, Word], list[Word]]:
    """Split off options with their values; `first` stops at the first word that is no option."""
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


def _find_script(args: list[Word]) -> str | None:
    """Find the script that `bash -lc` is given to run."""
    options, words = _split_options(args, "oO rcfile", first=True)
    return words[0].text if "c" in options and words else None


def _resolve_path(path: str, cwd: str | None) -> str:
    """Join a path to `cwd` and normalise it; "" for devices and for what is unknown."""
    if path in {"", "-"} or len(path) > LONGEST or (cwd is None and path[0] not in "/~"):
        return ""
    whole = posixpath.normpath(path if path[0] == "~" else posixpath.join(cwd or "", path))
    whole = whole[1:] if whole.startswith("//") else whole
    return "" if whole.startswith("/dev/") or len(whole) > LONGEST else whole


def _resolve_touches(touches: list[Touch], cwd: str | None) -> list[Touch]:
    return [
        Touch(state, resolved, _resolve_path(to, cwd))
        for state, path, to in touches
        if (resolved := _resolve_path(path, cwd))
    ]


def _make_touches(state: State, words: list[Word]) -> list[Touch]:
    return [Touch(state, path) for word in words for path in word.paths]


def _list_redirect_touches(turns: list[tuple[str, Word]]) -> list[Touch]:
    """List the files of redirections; `>&1` and `<<<` name none."""
    touches: list[Touch] = []
    for turn, word in turns:
        if turn not in {"<<<", "<&"} and not (turn == ">&" and re.match(r"\d|-$", word.text)):
            touches += _make_touches("read" if turn == "<" else "written", [word])
    return touches


class _Invocation(NamedTuple):
    """A known command, with its arguments split into options and other words."""

    name: str
    args: list[Word]
    options: dict[str, Word]
    words: list[Word]
    body: str  # its heredoc, or the one piped into it

    def has(self, *names: str) -> bool:
        return not self.options.keys().isdisjoint(names)

    def find_option(self, *names: str) -> Word:
        return next((self.options[name] for name in names if name in self.options), _NONE)


def _list_command_touches(name: str, args: list[Word], body: str) -> list[Touch]:
    if name == "git":
        return _list_git_touches(args)
    kind, takes = _KNOWN.get(name, ("", ""))
    if kind not in _LIST_TOUCHES:
        return []
    if kind == "tar" and args and args[0].text[:1] != "-":
        args = [Word(f"-{args[0].text}", ("",)), *args[1:]]
    return _LIST_TOUCHES[kind](_Invocation(name, args, *_split_options(args, takes), body))


def _list_read_touches(run: _Invocation) -> list[Touch]:
    if run.name == "diff" and run.has("r", "recursive"):
        return []
    output = [run.find_option("o", "output")] if run.name == "sort" else []
    return _make_touches("read", run.words) + _make_touches("written", output)


def _list_removed_touches(run: _Invocation) -> list[Touch]:
    kept = run.name == "shred" and not run.has("u", "remove")
    return _make_touches("written" if kept else "removed", run.words)


def _list_copy_touches(run: _Invocation) -> list[Touch]:
    if run.name == "install" and run.has("d", "directory"):
        return []
    pairs = _list_path_pairs(run)
    return [Touch("read", a) for a, _ in pairs] + [Touch("written", b) for _, b in pairs]


def _list_move_touches(run: _Invocation) -> list[Touch]:
    return [Touch("moved", a, b) if a else Touch("written", b) for a, b in _list_path_pairs(run)]


def _list_path_pairs(run: _Invocation) -> list[tuple[str, str]]:
    """Pair each source with its destination, which lies in the target if that is a directory."""
    paths = [path for word in run.words for path in word.paths]
    into = run.options.get("t", run.options.get("target-directory"))
    target = into.paths[0] if into else paths.pop() if paths else ""
    inside = into or len(paths) > 1 or posixpath.basename(target) in {"", ".", ".."}
    pairs: list[tuple[str, str]] = []
    for path in paths:
        to = posixpath.join(target, posixpath.basename(path.rstrip("/"))) if inside else target
        # The shell may expand a source to many files; the target then is their directory.
        sure = target and (path or (not inside and _NAMED.search(target)))
        pairs.append((path, to if sure else ""))
    return pairs


def _list_search_touches(run: _Invocation) -> list[Touch]:
    words = run.words if run.has("e", "f", "regexp", "file", "files") else run.words[1:]
    deep = run.name == "rg" or run.has("r", "R", "recursive")
    touches = _make_touches("read", words)
    return [t for t in touches if _NAMED.search(t.path) or ("/" in t.path[:-1] and not deep)]


def _list_program_touches(run: _Invocation) -> list[Touch]:
    """List the files that a program in an argument prints, or changes in place."""
    name, words = run.name, run.words
    changed = run.has("i", "in-place") and name in {"sed", "perl"}
    if name == "perl" and not run.has("i", "n", "p"):
        return []
    if name == "sed" and changed and words and re.fullmatch(r"(\.\w+)?", words[0].text):
        words = words[1:]  # the BSD form: -i ''
    program_options = {"sed": "ef", "perl": "eE"}.get(name, "f")
    if not run.has(*program_options, "expression", "file", "from-file"):
        words = words[1:]
    if name.endswith("awk"):
        words = [word for word in words if not _ASSIGNED.match(word.text)]
        changed = run.find_option("i").text == "inplace"
    return _make_touches("written" if changed else "read", words)


def _list_download_touches(run: _Invocation) -> list[Touch]:
    curl = run.name == "curl"
    file = run.find_option("o", "output") if curl else run.find_option("O", "output-document")
    if file is not _NONE:
        return _make_touches("written", [file])
    if curl and not run.has("O", "remote-name"):
        return []
    if run.has("spider", "r", "m", "i", "P", "directory-prefix", "output-dir"):
        return []
    urls = [_URL.match(word.text) for word in run.words]  # the `?` of a URL is no glob
    return [Touch("written", url[1]) for url in urls if url]


def _list_patch_touches(run: _Invocation) -> list[Touch]:
    diff = run.words[1:2] or [run.find_option("i")]
    return _make_touches("read", diff) + _make_touches("written", run.words[:1])


def _list_tar_touches(run: _Invocation) -> list[Touch]:
    writes = run.has("c", "r", "u", "create")
    return _make_touches("written", [run.find_option("f", "file")]) if writes else []


def _list_zip_touches(run: _Invocation) -> list[Touch]:
    paths = [path for word in run.words[:1] for path in word.paths if path]
    return [Touch("written", path if _NAMED.search(path) else f"{path}.zip") for path in paths]


def _list_dd_touches(run: _Invocation) -> list[Touch]:
    states: dict[str, State] = {"if": "read", "of": "written"}
    pairs = [path.partition("=") for word in run.words for path in word.paths]
    return [Touch(states[key], path) for key, _, path in pairs if key in states]


def _list_git_touches(args: list[Word]) -> list[Touch]:
    """List the files that git writes, removes or moves in the working tree."""
    before, words = _split_options(args, "Cc git-dir work-tree", first=True)
    verb = words[0].text if words else ""
    options, rest = _split_options(words[1:], "s source" if verb == "restore" else "")
    texts = [word.text for word in words]
    has = options.keys()
    touches: list[Touch] = []
    if verb == "checkout" and "--" in texts:
        touches = _make_touches("written", words[texts.index("--") + 1 :])
    elif verb == "restore" and (has & {"W", "worktree"} or not has & {"S", "staged"}):
        touches = _make_touches("written", rest)
    elif verb == "rm" and "cached" not in has:
        touches = _make_touches("removed", rest)
    elif verb == "mv":
        touches = _list_command_touches("mv", words[1:], "")
    touches = [touch for touch in touches if touch.path != "."]  # the whole tree is no file
    return _resolve_touches(touches, before["C"].paths[0] or None) if "C" in before else touches


def parse_codex_patch(text: str) -> list[Touch]:
    """Parse the files that a patch in Codex's format touches."""
    touches: list[Touch] = []
    for action, path, to in _PATCHED.findall(text):
        state: State = "moved" if to else "removed" if action == "Delete" else "written"
        touches.append(Touch(state, path.strip(), to.strip()))
    return touches


_LIST_TOUCHES: dict[str, Callable[[_Invocation], list[Touch]]] = {
    "read": _list_read_touches,
    "page": lambda run: _make_touches("read", [w for w in run.words if w.text[:1] != "+"]),
    "open": lambda run: _make_touches("read", run.words[:1]),
    "create": lambda run: _make_touches("written", run.words[:1]),
    "write": lambda run: _make_touches("written", run.words),
    "remove": _list_removed_touches,
    "copy": _list_copy_touches,
    "move": _list_move_touches,
    "search": _list_search_touches,
    "program": _list_program_touches,
    "load": _list_download_touches,
    "patch": _list_patch_touches,
    "tar": _list_tar_touches,
    "zip": _list_zip_touches,
    "dd": _list_dd_touches,
    "apply": lambda run: parse_codex_patch("\n".join([*(w.text for w in run.args), run.body])),
}
