"""The words of shell text: quotes, comments, heredocs, redirections, substitutions.

Knows where a simple command ends and which words are certain. Refuses to know what any command
does. Every match moves behind what it has read, and matches are counted: any text takes linear
time, and a text that would take more than patience ends at the last whole command.
"""

import re
from typing import NamedTuple

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
_INSIDE = {  # by what closes it: up to the next character that matters
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
_MOST = 20  # words from one word with braces


class Word(NamedTuple):
    """A word without its quotes; what the shell would expand stands as it was written."""

    text: str
    paths: tuple[str, ...]  # what it stands for; "" where only the shell knows


class Simple(NamedTuple):
    """A simple command as it stands: no assignment or reserved word is told apart yet."""

    words: list[Word]
    turns: list[tuple[str, Word]]  # redirections
    bodies: list[str]  # of heredocs, which come after the words
    stop: str = ""  # what ended it: `;`, `|`, `)`, a line's end


def simples(text: str) -> list[Simple]:
    """The simple commands of a text, in order."""
    return _Reader(text).simples()


class _Reader:
    """A place in a text, and the patience that is left."""

    __slots__ = ("at", "patience", "text")

    def __init__(self, text: str) -> None:
        self.text, self.at, self.patience = text.replace("\0", ""), 0, _PATIENCE

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.patience -= 1
        if self.patience < 0:
            self.at = len(self.text)
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def simples(self) -> list[Simple]:
        done: list[Simple] = []
        awaited: list[tuple[Simple, str, str]] = []
        now, turn = Simple([], [], []), ""
        edits = "\nend_of_edit" in self.text
        while self.at < len(self.text):
            token = self.take(_TOKEN)
            if token is None:
                word = self.word()
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
                        simple.bodies.append(self.body(delimiter, kind))
                    awaited = []
        return done if self.patience < 0 else [*done, now]

    def word(self) -> Word:
        parts: list[str] = []
        sure, inside = True, False
        while found := self.take(_QUOTED if inside else _PIECE):
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
                    self.skip({"`": "`", "$'": "'"}.get(piece, ")"))
                    piece = self.text[found.start() : self.at]
                case "unsure":
                    sure = False
                case _:
                    pass
            parts.append(piece)
        marked = "".join(parts)
        text = marked.replace("\0", "")
        return Word(text, _expanded(marked) if sure and not inside else ("",))

    def skip(self, closer: str) -> None:
        """Move behind a substitution, with all that is nested in it."""
        closers = [closer]
        while closers and (found := self.take(_INSIDE[closers[-1]])):
            mark = found[1]
            if mark == closers[-1]:
                closers.pop()
            elif mark in {'"', "`"}:
                closers.append(mark)
            elif mark in {"(", "$("}:
                closers.append(")")
            elif mark in {"<<", "<<-"} and (named := self.take(_DELIMITER)):
                self.at = (self.text.find("\n", self.at) + 1) or len(self.text)
                self.body(named[1], mark)
        if closers:
            self.at = len(self.text)

    def body(self, delimiter: str, turn: str) -> str:
        """A heredoc's body, from the start of a line; behind it stands the next command."""
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


def _expanded(marked: str) -> tuple[str, ...]:
    """A word's brace lists, written out; NUL marks the braces that were not quoted."""
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
