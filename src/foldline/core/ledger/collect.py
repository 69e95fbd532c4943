"""Facts kept without a model: read from calls and their results, in the order they happened.

Knows how one thing follows from another: a file that was created and then removed, a test that
failed and then passed, a relative path whose folder was told before. Refuses to know how many facts
there is room for. Goals and rules are no facts: they are the user's words, and stay verbatim.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from foldline.core.item import Item
from foldline.core.ledger import shell
from foldline.core.ledger.calls import Act, act, links
from foldline.core.ledger.merge import Facts, merge
from foldline.core.ledger.results import Outcome, outcome
from foldline.core.ledger.shell import Touch
from foldline.core.log import Event, ModelSaid, ToolReturned
from foldline.core.names import names
from foldline.core.parts import Call, Fact, FactKind, calls_of, spoken, text_of

_WIDTH = 110
_DECIDED = re.compile(
    r"\b(?:decided|decide to|chose|choosing|going with|opted for|settled on|instead of|will use)\b",
    re.IGNORECASE,
)
_TASK = re.compile(r"^[ \t]*[-*] \[([ xX~-])\] (\S.*)$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s")
_RUNNERS = re.compile(r"\b(?:pytest|unittest|go test|cargo test|jest|vitest|npm test|tox|mocha)\b")
_CHOOSES = re.compile(r"-(?:k|m|t|run|-lf|-last-failed|-only|-grep|-testNamePattern)(?:=|$)")
_OTHER = re.compile(r"(?!discover$|run$)[\w:]{2,}")  # no option and no path: the name of some tests
_ESCAPED = re.compile(r"\\[nrt\"]")  # in JSON: no letter of the name behind it
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MOVING = re.compile(r"(?:^|[;&|\n]\s?)(?:cd|pushd|popd)\b")
_EDITING = ("edit", "insert", "append", "replace")  # shell words that act on the file that is open
_NAMED = 1_200  # items, the newest, whose names are collected: older ones would fade anyway
_LOOK = 65_536  # characters of one text that are read for names


def collect(
    items: Iterable[Item], events: Mapping[int, Event], *, older: Sequence[Fact] = ()
) -> Facts:
    """The facts of some items, whose originals are in `events`; `older` ones only explain them."""
    found = _Collector(older)
    read = list(items)
    for place, item in enumerate(read):
        found.naming = place >= len(read) - _NAMED
        event = events.get(item.seq)
        if item.role == "model" and isinstance(event, ModelSaid):
            found.answer(item, event)
        elif item.role == "result":
            found.result(item, text_of(event.parts) if isinstance(event, ToolReturned) else "")
    return found.facts()


class _Collector:
    """What is known so far, and the calls that wait for their results."""

    def __init__(self, older: Sequence[Fact]) -> None:
        self._older = {(fact.kind, fact.key): fact for fact in older}
        self._found: dict[tuple[FactKind, str], Fact] = {}
        self._calls: dict[str, tuple[int, Call]] = {}
        self._names: dict[str, Fact] = {}
        self._opened = ""
        self.naming = True
        """Whether names are collected now."""

    def facts(self) -> Facts:
        """What was found, newest last; what is settled and was never told is left out."""
        known = [
            fact
            for place, fact in self._found.items()
            if not (fact.kind == "test" and fact.text == "passed" and place not in self._older)
        ]
        return merge((), [*known, *self._names.values()])

    def answer(self, item: Item, event: ModelSaid) -> None:
        """The model's words and calls."""
        words = spoken(event.parts)
        if sentence := _sentence(words):
            self._add(item.seq, "said", str(item.seq), sentence)
        for part in _SENTENCE.split(words[:_LOOK]):
            if _DECIDED.search(part):
                self._add(item.seq, "decision", _line(part))
        if tasks := _TASK.findall(words[:_LOOK]):
            self._add(item.seq, "todo", "list", "\n".join(f"[{mark}] {t}" for mark, t in tasks))
        self._see(item.seq, words, wrote=True)
        self._calls = {call.id: (item.seq, call) for call in calls_of(item.parts)}
        for call in calls_of(item.parts):
            self._see(item.seq, _ESCAPED.sub(" ", call.arguments), wrote=True)

    def result(self, item: Item, text: str) -> None:
        """What came of a call."""
        if item.call_id not in self._calls:
            return
        at, call = self._calls.pop(item.call_id)
        if item.state == "interrupted":
            self._add(item.seq, "call", f"{call.name} {_line(call.arguments)}", f"since {at}")
            return
        doing = act(call)
        told = outcome(text, ok=item.ok, shell=bool(doing.command))
        here = text.strip() if doing.command.strip() == "pwd" else ""
        if told.where or (here.startswith("/") and "\n" not in here):
            self._add(item.seq, "where", "folder", told.where or here)
        elif _MOVING.search(doing.command):
            self._add(item.seq, "where", "folder", "")  # it may have gone elsewhere
        if doing.todos is not None and told.ok:
            self._add(item.seq, "todo", "list", doing.todos)
        self._touch(item.seq, doing, told)
        self._run(item.seq, doing, told)
        for url in links(f"{call.arguments}\n{text[:_LOOK]}")[:20]:
            self._add(item.seq, "link", url)
        self._see(item.seq, _COLOURS.sub("", text[:_LOOK]), wrote=False)

    def _touch(self, seq: int, doing: Act, told: Outcome) -> None:
        hashes = {**dict(doing.hashes), **told.hashes}
        for path, digest in told.hashes.items():
            if path not in [touch.path for touch in doing.touches]:
                self._file(seq, Touch("read", self._known(path)), digest)
        # What a command did before its last step is done, although that one failed.
        done = doing.touches if told.ok else () if told.missed else doing.before
        for touch in done:
            stated = told.stated.endswith(f"/{touch.path}") and not touch.path.startswith("/")
            if stated and told.stated.startswith("/"):
                folder = told.stated.removesuffix(touch.path).rstrip("/") or "/"
                self._add(seq, "where", "folder", folder)
            path = told.stated if stated else self._known(touch.path)
            self._file(seq, Touch(touch.state, path, touch.to), hashes.get(touch.path, ""))
        if told.ok and told.stated and not doing.touches:
            verb = doing.command.split(maxsplit=1)[0] if doing.command.strip() else ""
            state = "written" if verb in _EDITING else "read"
            self._file(seq, Touch(state, self._edited(seq, told.stated)), "")

    def _edited(self, seq: int, stated: str) -> str:
        """The file that an editor shows; told by its name alone before, it is the same file."""
        short = self._opened
        if short and stated.startswith("/") and stated.endswith(f"/{short}"):
            self._opened = ""
            self._add(seq, "where", "folder", stated.removesuffix(short).rstrip("/"))
            old = self._found.pop(("file", short), None)
            if old is not None:
                self._found["file", stated] = msgspec.structs.replace(old, key=stated)
            return stated
        path = self._known(stated)
        if not path.startswith("/"):
            self._opened = path
        return path

    def _file(self, seq: int, touch: Touch, digest: str) -> None:
        state = f"moved to {touch.to or '?'}" if touch.state == "moved" else touch.state
        self._add(seq, "file", touch.path, f"{state} {digest}" if digest else state)
        if not touch.path.startswith("/"):
            self._opened = touch.path
        if touch.to:
            self._add(seq, "file", touch.to, "written")

    def _run(self, seq: int, doing: Act, told: Outcome) -> None:
        if doing.command:
            status = f"exit {told.exit}" if told.exit is not None else "ok" if told.ok else "error"
            self._add(seq, "command", _line(doing.command), status)
        for line in told.faults:
            self._add(seq, "error", line)
        for test in told.failed:
            self._add(seq, "test", test, "failed")
        passed = {*told.passed} - {*told.failed}
        if told.all_passed and not told.selected and _RUNNERS.search(doing.command):
            passed |= self._covered(doing.command)
        for test in sorted(passed):
            if self._fact("test", test):
                self._add(seq, "test", test, "passed")

    def _covered(self, command: str) -> set[str]:
        """The tests known to fail that a run covered: all, unless it chose some."""
        known = {key for kind, key in (*self._older, *self._found) if kind == "test"}
        texts = (" ".join(one.words) for one in shell.commands(command))
        runs = [text[run.end() :].split() for text in texts if (run := _RUNNERS.search(text))]
        words = [word for run in runs for word in run if word not in (".", "./...")]
        paths = [word.removeprefix("./") for word in words if "/" in word or ".py" in word]
        if any(_CHOOSES.match(word) or _OTHER.fullmatch(word) for word in {*words} - {*paths}):
            return set()
        return {test for test in known if not paths or any(test.startswith(p) for p in paths)}

    def _known(self, path: str) -> str:
        """The path in the folder that was told; else as it is."""
        here = self._where()
        if not path or path.startswith(("/", "~")) or not here:
            return path
        return posixpath.normpath(posixpath.join(here, path))

    def _where(self) -> str:
        folder = self._fact("where", "folder")
        return folder.text if folder else ""

    def _fact(self, kind: FactKind, key: str) -> Fact | None:
        return self._found.get((kind, key)) or self._older.get((kind, key))

    def _add(self, seq: int, kind: FactKind, key: str, text: str = "") -> None:
        # One line each, whatever a reader takes for a line's end: a tool's words forge no heading.
        key = " ".join(key.split())
        text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
        new = Fact(seq, kind, key, text if kind == "todo" else " ".join(text.split()))
        old = self._found.pop((kind, key), None)
        self._found[kind, key] = merge((old,), (new,))[0] if old else new

    def _see(self, seq: int, text: str, *, wrote: bool) -> None:
        for name, times in names(text[:_LOOK]).items() if self.naming else ():
            new = Fact(seq, "name", name, "" if wrote else "seen", times)
            old = self._names.get(name)
            self._names[name] = merge((old,), (new,))[0] if old else new


def _sentence(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    return _line(_SENTENCE.split(line.strip(), maxsplit=1)[0])


def _line(text: str) -> str:
    flat = " ".join(text[: 4 * _WIDTH].split())
    return flat if len(flat) <= _WIDTH else flat[: _WIDTH - 1] + "…"
