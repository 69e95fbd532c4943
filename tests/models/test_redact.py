"""R-70: the shapes of keys are found anywhere, nothing else is touched, and nothing is stopped."""

import json
import logging
import random
import re
import sys
import time
from base64 import b64encode
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.models.redact import SHAPES, Redacting, make_mark, redact_text

sys.path.insert(0, str(Path(__file__).parent))
from samples import SAMPLES

EVERY = [(kind, sample) for kind, samples in SAMPLES.items() for sample in samples]
CALM = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(
    lambda text: re.sub(r"[A-Za-z0-9]", "é", text)  # no letter of it belongs to a key
)
INNOCENT = """\
token = tokens[0]
password: str
def login(user: str, password: str = "", *, token: Optional[str] = None) -> Token:
API_KEY=$API_KEY
API_KEY=${API_KEY:-none} password="$PASSWORD" secret={{ secrets.PYPI }} token: ${{ secrets.GITHUB_TOKEN }}
max_tokens=800 max_tokens: 128000 "prompt_tokens": 123456 num_tokens=1000000 tokens_per_second: 59.123
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
commit 588a73a41b9cd8017e821e5017544faedc6588a7 (HEAD -> main)
id: 123e4567-e89b-12d3-a456-426614174000
password = getpass.getpass("Password: ")
password=os.environ["DB_PASSWORD2"] api_key=settings.openai_api_key2 secret = config.secret1.value2
api_key="your-api-key-here-123" token: <your token> password: ******** secret: xxxxxxxx1234
Authorization: Bearer $TOKEN
curl -H "Authorization: Bearer ${TOKEN}" -H 'Authorization: Bearer <token>'
the bearer of this letter, basic understanding1, a token of friendship
docker run -u 1000:1000 image; ps -u postgres:postgres9
https://example.org:8080/path@2x.png http://[::1]:80/ git@github.com:owner/repo.git
next_page_token: CAUQAA1b2c3d4e5f6g7h8 nextToken=a1b2c3d4e5f6g7h8i9j0 cache_key: a1b2c3d4e5f6g7h8
password_hash: e3b0c44298fc1c149afbf4c8 token_type: bearer2
"password": "Must be at least 8 characters" password must contain1 digit
task-0123456789abcdef01234567 risk-a1b2c3d4e5f6a7b8c9d0e1f2 this.someLongMethodName12345678
tokenizer = AutoTokenizer.from_pretrained("gpt2") key: a1b2c3d4e5f6g7h8i9j0 keyboard=a1b2c3d4e5f6
-----BEGIN CERTIFICATE-----
MIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ
-----END CERTIFICATE-----
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7 and a line that says -----BEGIN RSA PRIVATE KEY----- only
from foldline.models.redact import redact; PWD=/home/me2 OLDPWD=/tmp/x1 pwd: /srv/app1
"""


def kinds(text):
    return [one.kind for one in redact_text(text).found]


def test_there_are_forty_shapes_and_each_has_samples():
    assert len(SHAPES) >= 40
    assert sorted(SAMPLES) == sorted({shape.kind for shape in SHAPES})


@pytest.mark.parametrize(("kind", "sample"), EVERY, ids=[kind for kind, _ in EVERY])
def test_each_shape_is_found_and_the_rest_of_the_line_is_kept(kind, sample):
    line = f'run "it" with {sample.text} , then (stop).'
    clean = redact_text(line)
    assert sample.secret not in clean.text
    assert [(one.kind, one.times) for one in clean.found] == [(kind, 1)]
    before, after = clean.text.split(make_mark(kind))
    assert line.startswith(before)
    assert line.endswith(after)
    assert after.endswith(" , then (stop).")
    assert redact_text(clean.text).text == clean.text
    for quote in ('"', "'", "`"):
        quoted = redact_text(f"{quote}{sample.text}{quote}").text
        assert sample.secret not in quoted
        assert quoted.startswith(quote)
        assert quoted.endswith(quote)


@pytest.mark.parametrize("row", range(len(SHAPES)), ids=[shape.kind for shape in SHAPES])
def test_every_row_is_needed(row):
    """The mutants: without its row, some sample of a shape survives or is named otherwise."""
    fewer = SHAPES[:row] + SHAPES[row + 1 :]
    samples = SAMPLES[SHAPES[row].kind]
    assert any(
        [one.kind for one in redact_text(sample.text, shapes=fewer).found] != [SHAPES[row].kind]
        for sample in samples
    )


@pytest.mark.parametrize(
    ("kind", "word"), [(shape.kind, word) for shape in SHAPES for word in shape.words]
)
def test_every_word_is_needed(kind, word):
    """A row without one of its words misses a sample, or the word is there for nothing."""
    fewer = [
        shape._replace(words=tuple(one for one in shape.words if one != word))
        if shape.kind == kind
        else shape
        for shape in SHAPES
    ]
    assert any(
        redact_text(sample.text, shapes=fewer) != redact_text(sample.text)
        for sample in SAMPLES[kind]
    )


@pytest.mark.parametrize("line", INNOCENT.splitlines())
def test_names_of_secrets_are_no_secrets(line):
    assert redact_text(line).text == line


def test_innocent_lines_together():
    assert redact_text(INNOCENT).text == INNOCENT
    assert not redact_text(INNOCENT)


@given(st.lists(st.tuples(CALM, st.sampled_from(EVERY)), min_size=1, max_size=4), CALM)
def test_planted_anywhere_nothing_survives_and_nothing_else_changes(planted, last):
    text = "".join(f"{calm} {sample.text} " for calm, (_, sample) in planted) + last
    clean = redact_text(text)
    for _, (_, sample) in planted:
        assert sample.secret not in clean.text
    for calm, _ in planted:
        assert calm in clean.text
    assert clean.text.endswith(last)
    assert sum(one.times for one in clean.found) == len(planted)
    assert redact_text(clean.text).text == clean.text


@given(CALM, st.text(max_size=60))
def test_a_text_without_secrets_is_unchanged(calm, text):
    assert redact_text(calm).text == calm
    again = redact_text(text).text
    assert redact_text(again).text == again


@given(st.lists(st.one_of(st.sampled_from([one.text for _, one in EVERY]), st.text(max_size=8))))
def test_twice_is_as_once_however_they_are_glued(pieces):
    once = redact_text("".join(pieces)).text
    assert redact_text(once).text == once


def test_found_never_holds_the_secret():
    for _, sample in EVERY:
        assert sample.secret not in repr(redact_text(sample.text).found)


@cache
def hostile():
    draw = random.Random(1)
    base64 = b64encode(draw.randbytes(750_000)).decode()
    begin = "-----BEGIN RSA PRIVATE " + "KEY-----"
    pieces = {
        "base64": base64,
        "base64url": base64.replace("+", "-").replace("/", "_"),
        "hex": draw.randbytes(500_000).hex(),
        "eyJ": "eyJ",
        "eyJ.": "eyJaaaaaaaaa.",
        "begin": begin,
        "begin, lines": begin + "\n" + base64[:64] * 2 + "\n",
        "begin, base64": begin + base64[:900_000],
        "begin, blanks": begin + " " * 200,
        "begin, heads": begin + "\nProc: aaa" * 20,
        "every word": " ".join(word for shape in SHAPES for word in shape.words),
        "one password": "password=" + "a" * 10**6,
        "one url": "://a:" + "b" * 10**6,
        "at": "://a:" + "@" * 10**6,
        "digits": "1",
        "İ": "İ",
    }
    again = [
        "password=",
        "password: ",
        "token:x",
        'token:"',
        "token",
        "api_key ",
        "://",
        "://a:",
        "MDAw",
    ]
    again += ["sk-", " -u a:b", "bearer aaaaaaaaaaaaaaa ", "s.", "secret_", "SK", " ", "\\n"]
    return pieces | {piece: piece for piece in again}


@pytest.mark.parametrize("name", hostile())
def test_a_megabyte_takes_less_than_a_second(name, timed):
    piece = hostile()[name]
    text = (piece * (10**6 // len(piece) + 1))[: 10**6]
    start = time.process_time()
    redact_text(text)
    took = time.process_time() - start
    print(f"{name}: {took:.2f} s of the processor for 1 MB")
    assert took < timed(1.0)


def strings(value):
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from strings(inner)
        case list():
            for inner in value:
                yield from strings(inner)


@pytest.mark.parametrize(
    "name",
    ["pi_session_opus45.jsonl.gz", "pi_session_sonnet45.jsonl.gz", "swe_agent_demo_trajs.jsonl.gz"],
)
def test_recorded_sessions_have_next_to_no_marks(recorded, name):
    """Each was looked at: none of these sessions shows a live credential."""
    texts = list(strings(recorded(name)))
    size = sum(map(len, texts)) / 10**6
    marks = sum(one.times for text in texts for one in redact_text(text).found)
    print(f"{name}: {marks} marks in {size:.1f} MB")
    assert marks <= size
    planted = redact_text(texts[0] + " " + EVERY[0][1].text)
    assert planted.found  # the control


class Kept(logging.Handler):
    """Keeps what a formatter would have written."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):  # noqa: D102
        self.lines.append(self.format(record))


@pytest.fixture
def logged():
    handler = Kept()
    handler.addFilter(Redacting())
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.Logger("test")  # noqa: LOG001 - of its own, beside the tree
    log.addHandler(handler)
    return log, handler


SECRET = SAMPLES["github token"][0].text


def test_logs_are_cleaned(logged):
    log, handler = logged
    log.warning("pushing with %s to %s", SECRET, "origin")
    log.warning("a dict %(a)s", {"a": json.dumps({"token": SECRET})})
    log.warning("nothing of %d", 7)
    log.warning("arguments that do not fit %d %d", SECRET)  # noqa: PLE1206 - on purpose
    log.warning("stack", stack_info=True)
    try:
        raise ValueError(SECRET)  # noqa: TRY301
    except ValueError:
        log.exception("failed")
    assert SECRET not in "\n".join(handler.lines)
    assert handler.lines[0] == f"pushing with {make_mark('github token')} to origin"
    assert handler.lines[2] == "nothing of 7"
    assert "Traceback" in handler.lines[-1]
    assert make_mark("github token") in handler.lines[-1]


def test_a_record_without_secrets_is_untouched_and_extra_fields_are_cleaned():
    record = logging.makeLogRecord({"msg": "%s of %d", "args": ("one", 7), "header": SECRET})
    assert Redacting().filter(record)
    assert (record.msg, record.args) == ("%s of %d", ("one", 7))
    assert record.header == make_mark("github token")


def test_without_the_filter_the_secret_is_there(logged):
    """The control."""
    log, handler = logged
    handler.filters.clear()
    log.warning("pushing with %s", SECRET)
    assert SECRET in handler.lines[0]
