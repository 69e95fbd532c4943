"""A made-up repository: files whose content edits really change, and tests that depend on it.

Knows how code, listings, matches and test runs look, and that a test fails as long as its fault
stands in a file. Refuses to know who works on it, and what of it anybody remembers.
"""

# ruff: noqa: SIM905 - lists of words that are to be read

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

_NOUNS = (
    "ledger invoice parcel depot courier manifest tariff shelf basket voucher sensor reading alarm "
    "gauge probe beacon relay packet channel frame carrier tenant quota lease shard replica bucket "
    "cursor journal digest token claim scope grant policy badge roster shift rota absence payroll "
    "chapter volume margin glyph ligature canvas layer stencil palette sprite anchor route segment "
    "waypoint harbour berth tide pilot cargo vessel crane module kernel buffer slot queue worker"
).split()
_VERBS = (
    "collect merge settle resolve encode decode rotate drain flush schedule reserve release rank "
    "prune expand fold align project sample clamp weigh split stitch render parse verify restore "
    "publish subscribe archive hydrate balance route trace audit normalise reconcile"
).split()
_QUALITIES = (
    "stale pending nested partial signed remote local idle dirty frozen lazy eager shared spare "
    "primary fallback cached sorted bounded sparse dense opaque final open"
).split()
_TOP = ("engine", "billing", "transport", "storage", "views", "access", "planner", "intake")
_SIZES = (3, 4, 5, 6, 8, 9, 11, 14, 18, 24, 48)  # functions of one module: a heavy tail


@dataclass(slots=True)
class MadeFault:
    """A wrong line; while it stands, a test fails."""

    path: str
    wrong: str
    right: str
    test: str
    code: str
    """What the failing test prints."""
    function: str

    @property
    def place(self) -> str:
        """The file of its test."""
        return self.test.partition("::")[0]


@dataclass(slots=True)
class Vocabulary:
    """The words of one package: its names share them, and share few with other packages."""

    random: Random
    nouns: Sequence[str]
    verbs: Sequence[str]
    qualities: Sequence[str]
    used: set[str] = field(default_factory=set[str])

    def make_function_name(self) -> str:
        """A name of a function, new."""
        return self._make_unique_name(
            lambda: f"{self._choose_verb()}_{self._choose_quality()}_{self._choose_noun()}"
        )

    def make_class_name(self) -> str:
        """A name of a class, new."""
        parts = (self._choose_quality, self._choose_noun, self._choose_noun)
        return self._make_unique_name(lambda: "".join(part().capitalize() for part in parts))

    def make_constant_name(self) -> str:
        """A name of a constant, new."""
        return self._make_unique_name(
            lambda: f"{self._choose_quality().upper()}_{self._choose_noun().upper()}"
        )

    def make_variable_name(self) -> str:
        """A name of something local."""
        return f"{self._choose_quality()}_{self._choose_noun()}"

    def make_module_name(self) -> str:
        """A name of a module, new."""
        return self._make_unique_name(lambda: f"{self._choose_noun()}_{self._choose_noun()}")

    def make_phrase(self) -> str:
        """A few words of prose."""
        return (
            f"{self._choose_verb()} the {self._choose_quality()} {self._choose_noun()} "
            f"of a {self._choose_noun()}"
        )

    def _make_unique_name(self, draw: Callable[[], str]) -> str:
        name = draw()
        while name in self.used:
            name = f"{draw()}{self.random.randint(2, 99)}" if name.isupper() else draw()
        self.used.add(name)
        return name

    def _choose_noun(self) -> str:
        return self.random.choice(self.nouns)

    def _choose_verb(self) -> str:
        return self.random.choice(self.verbs)

    def _choose_quality(self) -> str:
        return self.random.choice(self.qualities)


@dataclass(slots=True)
class Repository:
    """Files, and the faults in them."""

    name: str
    files: dict[str, str]
    faults: list[MadeFault]
    vocabularies: dict[str, Vocabulary]
    """By package."""

    @property
    def root(self) -> str:
        """Where it lies."""
        return f"/work/{self.name}"

    def replace_text(self, path: str, old: str, new: str) -> bool:
        """Change a text that stands exactly once; False where it does not."""
        content = self.files.get(path, "")
        if content.count(old) != 1:
            return False
        self.files[path] = content.replace(old, new)
        return True

    def render_listing(self, under: str) -> str:
        """What `find` prints."""
        return "\n".join(sorted(path for path in self.files if path.startswith(under)))

    def render_matches(self, word: str, under: str = "", *, most: int = 120) -> str:
        """What `grep -rn` prints of the files under a folder."""
        found: list[str] = []
        for path in sorted(path for path in self.files if path.startswith(under)):
            lines = self.files[path].splitlines()
            found += [f"{path}:{n}:{line}" for n, line in enumerate(lines, 1) if word in line]
        return "\n".join(found[:most])

    def list_open_faults(self, under: Sequence[str] = ()) -> list[MadeFault]:
        """The faults that stand and whose tests are among some files, or among all."""
        return [
            fault
            for fault in self.faults
            if fault.wrong in self.files.get(fault.path, "")
            and fault.place in self.files
            and (not under or fault.place in under)
        ]

    def render_test_run(self, under: Sequence[str] = ()) -> str:
        """What pytest prints for some test files, or for all."""
        places = [path for path in sorted(self.files) if "/test_" in path]
        places = [path for path in places if not under or path in under]
        failed = self.list_open_faults(under)
        number = {path: self.files[path].count("\ndef test_") for path in places}
        lines = [
            "============================= test session starts ==============================",
            "platform linux -- Python 3.12.4, pytest-8.3.3, pluggy-1.5.0",
            f"rootdir: {self.root}",
            "configfile: pyproject.toml",
            f"collected {sum(number.values())} items",
            "",
        ]
        for path in places:
            dots = "F" * sum(fault.place == path for fault in failed)
            lines.append(f"{path} {dots}{'.' * (number[path] - len(dots))}")
        if failed:
            lines += ["", "=================== FAILURES ==================="]
        for fault in failed:
            lines += self._render_traceback(fault)
        passed = sum(number.values()) - len(failed)
        if failed:
            lines.append("=================== short test summary info ===================")
            lines += [f"FAILED {fault.test} - AssertionError: {fault.code}" for fault in failed]
            lines.append(f"========= {len(failed)} failed, {passed} passed in 1.37s =========")
        else:
            lines.append(f"============================== {passed} passed in 1.12s ====")
        return "\n".join(lines)

    def _render_traceback(self, fault: MadeFault) -> Iterable[str]:
        name = fault.test.rpartition("::")[2]
        body = _extract_definition(self.files[fault.place], f"def {name}(")
        source = self.files[fault.path].splitlines()
        at = next(n for n, line in enumerate(source) if fault.wrong.splitlines()[0] == line)
        yield f"________________ {name} ________________"
        yield ""
        yield from (f"    {line}" for line in body)
        yield f"E       AssertionError: {fault.code}"
        yield ""
        yield f"{fault.place}:{self.files[fault.place].count(chr(10), 0, 400)}: in {name}"
        yield from (f"    {line}" for line in source[max(at - 4, 0) : at + 2])
        yield f"{fault.path}:{at + 1}: AssertionError"


def generate_repository(random: Random) -> Repository:
    """A repository: packages with words of their own, modules, tests, and some other files."""
    name = f"{random.choice(_NOUNS)}-{random.choice(_NOUNS)}"
    nouns, verbs = random.sample(_NOUNS, len(_NOUNS)), random.sample(_VERBS, len(_VERBS))
    qualities = random.sample(_QUALITIES, len(_QUALITIES))
    repository = Repository(name, {}, [], {})
    packages = random.sample(_TOP, 5)
    for at, package in enumerate(packages):
        share = slice(at * len(nouns) // 5, (at + 1) * len(nouns) // 5)
        verb = slice(at * len(verbs) // 5, (at + 1) * len(verbs) // 5)
        words = Vocabulary(random, nouns[share], verbs[verb], qualities[at * 4 : at * 4 + 6])
        repository.vocabularies[package] = words
        _add_package(repository, random, package, words)
    repository.files["README.md"] = "\n".join(
        [f"# {name}", *(f"- `{path}`" for path in sorted(repository.files)), ""]
    )
    repository.files["Makefile"] = "test:\n\tpython -m pytest -q\nlint:\n\truff check src tests\n"
    repository.files["pyproject.toml"] = _render_pyproject(name, random)
    return repository


def _add_package(repository: Repository, random: Random, package: str, words: Vocabulary) -> None:
    known: list[str] = []
    for _ in range(random.randint(5, 8)):
        module = words.make_module_name()
        path, place = f"src/{package}/{module}.py", f"tests/{package}/test_{module}.py"
        functions = [words.make_function_name() for _ in range(random.choice(_SIZES))]
        lines = [f'"""{package}: {words.make_phrase()}."""', ""]
        lines += [
            f"from {package}.{other} import {name}"
            for other, name in _choose_imports(known, random)
        ]
        lines += ["", f"{words.make_constant_name()} = {random.randint(10, 99_999)}", "", ""]
        lines += [
            f"class {words.make_class_name()}(Exception):",
            f'    """Cannot {words.make_phrase()}."""',
            "",
            "",
        ]
        tests = [f'"""What {module} promises."""', "", f"from {package} import {module}", ""]
        for function in functions:
            body = _render_function(function, words, random)
            repository.faults += _insert_fault(path, place, body, function, random)
            lines += [*body, "", ""]
            tests += _render_test(module, function, random)
        repository.files[path] = "\n".join(lines).rstrip() + "\n"
        repository.files[place] = "\n".join(tests) + "\n"
        known += [f"{module}.{function}" for function in functions[:3]]


def _choose_imports(known: Sequence[str], random: Random) -> list[tuple[str, str]]:
    drawn = random.sample(known, min(len(known), random.randint(1, 4))) if known else []
    pairs = [name.partition(".") for name in drawn]
    return [(module, name) for module, _, name in pairs]


def _render_function(name: str, words: Vocabulary, random: Random) -> list[str]:
    """A function; every line of its body has a name or a number of its own."""
    given, other, total = (
        words.make_variable_name(),
        words.make_variable_name(),
        words.make_variable_name(),
    )
    number = random.randint(3, 9_999)
    lines = [
        f"def {name}({given}: int, {other}: list[int]) -> int:",
        f'    """{words.make_phrase().capitalize()}."""',
        f"    {total} = {given} * {number}",
    ]
    for _ in range(random.choice((0, 1, 1, 2, 3, 5))):
        step = words.make_variable_name()
        lines += random.choice(
            (
                [f"    for {step} in {other}:", f"        {total} += {step} % {number + 7}"],
                [f"    if {total} > {random.randint(100, 99_999)}:", f"        {total} -= {given}"],
                [f"    {step} = max({other}, default={random.randint(1, 999)})"],
                [f"    # {words.make_phrase()}, else {step} would be read twice"],
                [f"    {total} = min({total}, {random.randint(1_000, 99_999)}, {number})"],
            )
        )
    return [*lines, f"    return {total} + {given} - {number}"]


def _render_test(module: str, function: str, random: Random) -> list[str]:
    given = [random.randint(1, 900) for _ in range(3)]
    return [
        "",
        f"def test_{function}():",
        f"    got = {module}.{function}({given[0]}, {given[1:]})",
        f"    assert got == {sum(given)}, f'{{got}} is not what {function} promises'",
        "",
    ]


def _insert_fault(
    path: str, place: str, body: list[str], function: str, random: Random
) -> Iterable[MadeFault]:
    """A fault in one function of ten: its last line has the wrong sign."""
    if random.random() > 0.1:
        return
    right = body[-1]
    wrong = right.replace(" - ", " + ")
    body[-1] = wrong
    code = f"E{random.randint(1_000, 9_999)}: got {random.randint(10, 9_999)} from {function}"
    yield MadeFault(path, wrong, right, f"{place}::test_{function}", code, function)


def _render_pyproject(name: str, random: Random) -> str:
    pins = "\n".join(
        f'    "{noun}-kit=={random.randint(0, 9)}.{n}",' for n, noun in enumerate(_NOUNS[:9])
    )
    head = f'[project]\nname = "{name}"\nversion = "0.{random.randint(1, 40)}.0"'
    return f"{head}\ndependencies = [\n{pins}\n]\n"


def _extract_definition(content: str, opening: str) -> list[str]:
    """The lines of a function, up to the blank line behind it."""
    lines = content.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith(opening)), 0)
    end = next((n for n in range(start, len(lines)) if not lines[n].strip()), len(lines))
    return lines[start:end]


def extract_function(content: str, name: str) -> str:
    """The whole text of a function of a file."""
    return "\n".join(_extract_definition(content, f"def {name}("))


def list_function_names(content: str) -> list[str]:
    """The names of a file's functions."""
    return re.findall(r"^def (\w+)\(", content, re.MULTILINE)
