"""Made-up conversations with planted facts, and whether a text still holds a fact.

    make_conversation(seed, messages, flavour)   the messages, and the facts planted in them
    is_in_view(fact, text)                       subject and value stand together
    is_stale_alone(fact, text)                   only the old value of a corrected fact stands

A fact has a subject, an attribute and a value: "the service port of the north hangar is 5123". It
is said by the user, by the assistant or in a tool's result, between much that nobody asks for.
Values are drawn at random, so no model can guess them, and stand nowhere else in the conversation.
The same seed always makes the same conversation.

Four kinds: `single`, said once; `corrected`, an old value and later a new one; `two-part`, two
sentences in different messages which only together give the answer; `never`, asked but never said.
"""
# ruff: noqa: E501, S311 - made-up texts; reproducible, not secret

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

Flavour: TypeAlias = Literal["prose", "code"]
FactKind: TypeAlias = Literal["single", "corrected", "two-part", "never"]
FactSpeaker: TypeAlias = Literal["user", "assistant", "result"]
ChatMessage: TypeAlias = dict[str, Any]
"""A message as Chat Completions has it."""

FLAVOURS: tuple[Flavour, ...] = ("prose", "code")
SPEAKERS: tuple[FactSpeaker, ...] = ("user", "assistant", "result")
UNKNOWN = "UNKNOWN"
"""The right answer to what was never said."""
_SHORTEST = 12  # messages that have room for facts of every kind
_MOST_FACTS = 100  # for which there are names enough


@dataclass(frozen=True, slots=True)
class PlantedFact:
    """A fact of a made-up conversation, and the question that asks for it."""

    kind: FactKind
    speaker: FactSpeaker
    subject: str
    question: str
    value: str
    """The right answer; `UNKNOWN` if it was never said."""
    stale: str = ""
    """The old value, if it was corrected."""
    link: str = ""
    """The name that both sentences of a two-part fact share."""
    place: int = -1
    """The message that says it last, from 0; -1 if none does."""
    earlier: int = -1
    """The message of the old value, or of the other part."""


def is_in_view(fact: PlantedFact, text: str) -> bool:
    """Tell whether subject and value stand together, in one line or sentence.

    Of a two-part fact, both parts must. What was never said is never in view.
    """
    match fact.kind:
        case "never":
            return False
        case "two-part":
            return _stand_together(text, fact.subject, fact.link) and _stand_together(
                text, fact.link, fact.value
            )
        case _:
            return _stand_together(text, fact.subject, fact.value)


def is_stale_alone(fact: PlantedFact, text: str) -> bool:
    """Tell whether the old value stands with its subject, and the new one does not."""
    return (
        fact.kind == "corrected"
        and _stand_together(text, fact.subject, fact.stale)
        and not _stand_together(text, fact.subject, fact.value)
    )


def _stand_together(text: str, one: str, other: str) -> bool:
    wanted = [
        re.compile(rf"(?<![a-z0-9]){re.escape(_normalise(word))}(?![a-z0-9])")
        for word in (one, other)
    ]
    return any(
        all(pattern.search(sentence) for pattern in wanted)
        for sentence in map(_normalise, re.split(r"\n|(?<=[.!?])\s+", text))
    )


def _normalise(text: str) -> str:
    """Names are the same with spaces, hyphens and underscores, in any case."""
    return re.sub(r"[\s_-]+", " ", text).casefold()


def make_conversation(
    seed: int, messages: int, flavour: Flavour = "prose", *, facts: int | None = None
) -> tuple[list[ChatMessage], list[PlantedFact]]:
    """Make a conversation of so many messages, and the facts in it in the order they are said.

    Without `facts`, there is one for every five messages, from 6 to 24. An odd number of messages
    is rounded up, as every turn ends with an answer.
    """
    if messages < _SHORTEST:
        raise ValueError(f"{messages} messages: at least {_SHORTEST} have room for facts")
    wanted = min(max(messages // 5, 6), 24) if facts is None else facts
    if wanted > _MOST_FACTS:
        raise ValueError(f"{wanted} facts: at most {_MOST_FACTS} have names of their own")
    maker = _Maker(Random(f"{flavour}:{seed}"), flavour)
    turns = maker.make_turns(messages + messages % 2)
    planted = maker.plant_facts(turns, wanted)
    said, places = _render_turns(turns, seed)
    return said, sorted(
        (_set_places(fact, spots, places) for fact, spots in planted),
        key=lambda fact: (fact.place, fact.subject),
    )


class _Spot(NamedTuple):
    """Where a sentence is: in which turn, and there in which result (-1: not in a result)."""

    turn: int
    speaker: FactSpeaker
    result: int = -1


@dataclass(slots=True)
class _MadeTurn:
    user: list[str]
    """Sentences."""
    results: list[tuple[str, str, list[str]]]
    """For each call: the tool, its arguments, the lines of its result."""
    assistant: list[str]


class _Attribute(NamedTuple):
    """What is said of a subject, and the form of its value."""

    name: str
    form: str
    hint: str = ""
    """What the question adds, so that only one spelling is right."""

    @property
    def key(self) -> str:
        return self.name.replace(" ", "_")


class _Tables(msgspec.Struct, frozen=True):
    """Sentences and words, from `planted.json`."""

    attributes: dict[Flavour, tuple[_Attribute, ...]]
    qualities: tuple[str, ...]
    things: dict[Flavour, tuple[str, ...]]
    first: tuple[str, ...]
    last: tuple[str, ...]
    roots: tuple[str, ...]
    verbs: tuple[str, ...]
    months: tuple[str, ...]
    crews: tuple[str, ...]
    said: dict[FactSpeaker, tuple[str, ...]]
    corrected: dict[FactSpeaker, tuple[str, ...]]
    linked: dict[FactSpeaker, tuple[str, ...]]
    open: tuple[str, ...]
    questions: tuple[str, ...]
    chat: dict[Flavour, tuple[str, ...]]
    acks: tuple[str, ...]


TABLES = msgspec.json.decode((files("foldline.lab") / "planted.json").read_bytes(), type=_Tables)
TOOLS: tuple[dict[str, Any], ...] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name.replace('_', ' ').capitalize()} of a unit.",
            "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    }
    for name in ("read_log", "show_overview", "list_records", "read_file", "run_tests")
)
"""The tools whose calls the conversations have."""


class _Maker:
    """Draws turns, names and values of one conversation; a value is never drawn twice."""

    def __init__(self, random: Random, flavour: Flavour) -> None:
        self.random = random
        self.flavour: Flavour = flavour
        pairs = [
            f"{quality} {thing}" for quality in TABLES.qualities for thing in TABLES.things[flavour]
        ]
        self.subjects = random.sample(pairs, len(pairs))
        self.mentioned = self.subjects[:24] + self.subjects[-24:]
        """Subjects that occur in results; about half of them have a fact, too."""
        self.crews = random.sample(TABLES.crews, len(TABLES.crews))
        self.taken: list[str] = []
        self.noise = ""
        self.heartbeat = f"heartbeat from node {random.randint(2, 9)}: all checks passed"

    def make_turns(self, messages: int) -> list[_MadeTurn]:
        """Make the turns without facts. A turn has a user's message, calls and an answer."""
        turns: list[_MadeTurn] = []
        most = 3 if self.flavour == "code" and messages >= 2 * _SHORTEST else 1
        while messages:
            # The first turns have calls, so that two results can always hold a fact.
            least = 1 if len(turns) < 2 else 0  # noqa: PLR2004
            calls = min(self.random.randint(least, most), (messages - 2) // 2)
            results = [self._make_result() for _ in range(calls)]
            turns.append(_MadeTurn(self._choose_chat(), results, self._choose_acks()))
            messages -= 2 + 2 * calls
        self.noise = _normalise(
            "\n".join(
                text
                for turn in turns
                for text in (
                    *turn.user,
                    *turn.assistant,
                    *(line for _, _, lines in turn.results for line in lines),
                )
            )
        )
        return turns

    def _choose_chat(self) -> list[str]:
        return self.random.sample(TABLES.chat[self.flavour], self.random.randint(1, 3))

    def _choose_acks(self) -> list[str]:
        return self.random.sample(TABLES.acks, self.random.randint(1, 3))

    def plant_facts(
        self, turns: list[_MadeTurn], wanted: int
    ) -> list[tuple[PlantedFact, tuple[_Spot, ...]]]:
        """Plant facts of all kinds and speakers; returns each with the spots of its sentences."""
        kinds: Sequence[FactKind] = ("single", "corrected", "single", "two-part", "single", "never")
        planted: list[tuple[PlantedFact, tuple[_Spot, ...]]] = []
        start = self.random.randrange(len(SPEAKERS))
        for number in range(wanted):
            kind = kinds[number % len(kinds)]
            # Shifts by one in each round of kinds, so that every speaker has facts of every kind.
            speaker = SPEAKERS[(start + number + number // len(kinds)) % len(SPEAKERS)]
            planted.append(self._plant_fact(turns, kind, speaker))
        return planted

    def _plant_fact(
        self, turns: list[_MadeTurn], kind: FactKind, speaker: FactSpeaker
    ) -> tuple[PlantedFact, tuple[_Spot, ...]]:
        subject = self.subjects.pop()
        attribute = self.random.choice(TABLES.attributes[self.flavour])
        if kind == "never":
            return self._plant_open_question(turns, speaker, subject, attribute)
        value, stale, link = self._draw_value(attribute.form), "", ""
        asked = f"the {subject}"
        said = self.random.choice(TABLES.said[speaker])
        if kind == "corrected":
            stale = self._draw_value(attribute.form)
            old = _fill_template(said, subject, attribute, value=stale)
            again = self.random.choice(TABLES.corrected[speaker])
            sentences = [old, _fill_template(again, subject, attribute, value=value, stale=stale)]
        elif kind == "two-part":
            link = self.crews.pop()
            asked = f"the crew that looks after the {subject}"
            linked = self.random.choice(TABLES.linked[speaker])
            sentences = [
                _fill_template(linked, subject, attribute, value=value, link=link),
                _fill_template(said, f"{link} crew", attribute, value=value),
            ]
            self.random.shuffle(sentences)  # either part may come first
        else:
            sentences = [_fill_template(said, subject, attribute, value=value)]
        spots = self._choose_spots(turns, speaker, len(sentences))
        for sentence, spot in zip(sentences, spots, strict=True):
            self._insert_sentence(turns, spot, sentence)
        question = self._make_question(asked, attribute)
        return PlantedFact(kind, speaker, subject, question, value, stale, link), spots

    def _plant_open_question(
        self, turns: list[_MadeTurn], speaker: FactSpeaker, subject: str, attribute: _Attribute
    ) -> tuple[PlantedFact, tuple[_Spot, ...]]:
        """Say that the value is not known, or nothing; a result says another attribute's value."""
        others = [one for one in TABLES.attributes[self.flavour] if one.form != attribute.form]
        other = self.random.choice(others)
        if speaker == "result":
            said = _fill_template(
                self.random.choice(TABLES.said[speaker]),
                subject,
                other,
                value=self._draw_value(other.form),
            )
        else:
            said = _fill_template(self.random.choice(TABLES.open), subject, attribute)
        for spot in self._choose_spots(turns, speaker, 1):
            self._insert_sentence(turns, spot, said)
        question = self._make_question(f"the {subject}", attribute)
        return PlantedFact("never", speaker, subject, question, UNKNOWN), ()

    def _make_question(self, asked: str, attribute: _Attribute) -> str:
        form = self.random.choice(TABLES.questions)
        return form.format(what=attribute.name, it=asked, hint=attribute.hint)

    def _choose_spots(
        self, turns: list[_MadeTurn], speaker: FactSpeaker, count: int
    ) -> tuple[_Spot, ...]:
        """Choose different messages, in order; the last turn has no facts."""
        free: list[_Spot] = []
        for number, turn in enumerate(turns[:-1]):
            if speaker == "result":
                free += [_Spot(number, speaker, result) for result in range(len(turn.results))]
            else:
                free.append(_Spot(number, speaker))
        return tuple(sorted(self.random.sample(free, count)))

    def _insert_sentence(self, turns: list[_MadeTurn], spot: _Spot, sentence: str) -> None:
        turn = turns[spot.turn]
        if spot.speaker == "result":
            lines = turn.results[spot.result][2]
        else:
            lines = turn.user if spot.speaker == "user" else turn.assistant
        lines.insert(self.random.randint(0, len(lines)), sentence)

    def _draw_value(self, form: str) -> str:
        """Draw a value that occurs nowhere else, not even within another."""
        while True:
            value = self._draw_form(form)
            plain = _normalise(value)
            if plain not in self.noise and not any(
                plain in one or one in plain for one in self.taken
            ):
                self.taken.append(plain)
                return value

    def _draw_form(self, form: str) -> str:
        random = self.random
        root = random.choice(TABLES.roots)
        match form:
            case "port":
                return str(random.randint(2048, 48999))
            case "person":
                return f"{random.choice(TABLES.first)} {random.choice(TABLES.last)}"
            case "date" if random.random() < 0.5:  # noqa: PLR2004 - one half in each form
                return f"{random.randint(1, 28)} {random.choice(TABLES.months)} {random.randint(2032, 2039)}"
            case "date":
                return f"{random.randint(2032, 2039)}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
            case "host":
                return (
                    f"{root}{random.randint(11, 98)}.{random.choice(('lan', 'intern', 'example'))}"
                )
            case "word":
                return f"{root}-{random.choice(TABLES.roots)}"
            case "path":
                return f"/srv/{root}/{random.choice(TABLES.roots)}-{random.randint(10, 99)}"
            case "file":
                return f"tests/{root}/{random.choice(TABLES.roots)}_{random.randint(10, 99)}.json"
            case "version":
                return f"{random.randint(2, 19)}.{random.randint(10, 49)}.{random.randint(10, 99)}"
            case "hash":
                return f"{random.getrandbits(40):010x}"
            case "weight":
                return f"{random.randint(1100, 9899)} kg"
            case "money":
                return f"{random.randint(1100, 98999)} {random.choice(('EUR', 'CHF', 'NOK'))}"
            case "time":
                return f"{random.randint(1100, 98999)} ms"
            case "permit":
                return f"{random.choice('BDFGKLMNR')}{random.choice('BDFGKLMNR')}-{random.randint(1000, 9999)}-{random.choice('STVXZ')}"
            case "function":
                return f"{random.choice(TABLES.verbs)}_{root}_{random.choice(TABLES.roots)}"
            case "setting":
                return f"{root}/{random.randint(110, 989)}"
            case _:
                return f"enable-{root}-{random.choice(TABLES.roots)}"

    def _make_result(self) -> tuple[str, str, list[str]]:
        """Make a tool's result that nobody asks about."""
        random = self.random
        makers = (
            self._make_log,
            self._make_table,
            self._make_records,
            *((self._make_source, self._make_test_output) if self.flavour == "code" else ()),
        )
        tool, lines = random.choice(makers)(random.randint(6, 18))
        subject = random.choice(self.mentioned).replace(" ", "-")
        return tool, json.dumps({"name": subject}), lines

    def _make_log(self, count: int) -> tuple[str, list[str]]:
        """Latencies, and one line again and again."""
        random = self.random
        return (
            "read_log",
            [
                self.heartbeat
                if random.random() < 0.4  # noqa: PLR2004 - a share
                else f"08:{random.randint(10, 59)}:{random.randint(10, 59)} probe {random.choice(self.mentioned)} answered in {random.randint(3, 900)}ms"
                for _ in range(count)
            ],
        )

    def _make_table(self, count: int) -> tuple[str, list[str]]:
        random = self.random
        rows = [
            f"| {random.choice(self.mentioned)} | {random.choice(('open', 'done', 'waiting'))} | {random.randint(1, 99)} % |"
            for _ in range(count)
        ]
        return "show_overview", ["| unit | state | progress |", "|---|---|---|", *rows]

    def _make_records(self, count: int) -> tuple[str, list[str]]:
        random = self.random
        return "list_records", [
            json.dumps(
                {
                    "unit": random.choice(self.mentioned),
                    "visits": random.randint(1, 999),
                    "ok": True,
                }
            )
            for _ in range(count)
        ]

    def _make_source(self, count: int) -> tuple[str, list[str]]:
        random = self.random
        lines = ["from dataclasses import dataclass", ""]
        for _ in range(count // 3):
            name = f"{random.choice(TABLES.verbs)}_rows_{random.randint(1, 99)}"
            lines += [
                f"def {name}(rows, limit={random.randint(1, 60)}):",
                f'    """{random.choice(("Return", "Drop", "Count"))} the rows that are {random.choice(("late", "empty", "new", "known"))}."""',
                f"    return [row for row in rows if row.size > limit][:{random.randint(2, 60)}]",
                "",
            ]
        return "read_file", lines

    def _make_test_output(self, count: int) -> tuple[str, list[str]]:
        random = self.random
        cases = [
            f"tests/test_{random.choice(TABLES.verbs)}.py::test_case_{random.randint(1, 99)} PASSED [{100 * (number + 1) // count:3}%]"
            for number in range(count)
        ]
        return "run_tests", [*cases, f"{count} passed in {random.random() * 9:.2f}s"]


def _fill_template(form: str, subject: str, attribute: _Attribute, **words: str) -> str:
    slug = subject.replace(" ", "_" if "{shout}" in form or "load(" in form else "-").lower()
    said = form.format(
        it=f"the {subject}",
        It=f"The {subject}",
        slug=slug,
        shout=f"{slug}_{attribute.key}".upper(),
        what=attribute.name,
        key=attribute.key,
        **words,
    )
    return said[0].upper() + said[1:] if said.startswith("the ") else said


def _render_turns(
    turns: Iterable[_MadeTurn], seed: int
) -> tuple[list[ChatMessage], dict[_Spot, int]]:
    """Render the turns as messages, and say at which message each spot is."""
    said: list[ChatMessage] = []
    places: dict[_Spot, int] = {}
    for number, turn in enumerate(turns):
        places[_Spot(number, "user")] = len(said)
        said.append({"role": "user", "content": " ".join(turn.user)})
        for result, (tool, arguments, lines) in enumerate(turn.results):
            call_id = f"call_{seed}_{number}_{result}"
            function = {"name": tool, "arguments": arguments}
            call = {"id": call_id, "type": "function", "function": function}
            said.append({"role": "assistant", "content": None, "tool_calls": [call]})
            places[_Spot(number, "result", result)] = len(said)
            said.append({"role": "tool", "tool_call_id": call_id, "content": "\n".join(lines)})
        places[_Spot(number, "assistant")] = len(said)
        said.append({"role": "assistant", "content": " ".join(turn.assistant)})
    return said, places


def _set_places(fact: PlantedFact, spots: Sequence[_Spot], places: dict[_Spot, int]) -> PlantedFact:
    at = [places[spot] for spot in spots]
    return PlantedFact(
        fact.kind,
        fact.speaker,
        fact.subject,
        fact.question,
        fact.value,
        fact.stale,
        fact.link,
        place=at[-1] if at else -1,
        earlier=at[0] if len(at) > 1 else -1,
    )
