"""A session is asked at its own host: two servers on loopback, and the second never gets a byte."""

import asyncio
import socket
import threading
from pathlib import Path

import pytest

import foldline
from foldline.apps.cli.build_agent import Wish
from foldline.apps.cli.context import Desk
from foldline.session.stored_session import open_stored_session
from foldline.stores.base import Name
from foldline.stores.open_store import store_at
from foldline.testing import Provider


class Silent:
    """A server that takes whatever comes and only counts it."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self.came = 0
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self):
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError:
                return
            self.came += 1
            line.close()

    def close(self):
        """Take no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with nobody's settings in it, and no address in the environment."""
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "FOLDLINE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(
        "HTTPS_PROXY", "http://127.0.0.1:9"
    )  # no broken rule sends words out of here
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FOLDLINE_STORE", str(tmp_path / "talks.db"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def here():
    """The server that sessions are begun at."""
    with Provider() as one:
        yield one


@pytest.fixture
def other():
    """The server that is to hear nothing."""
    one = Silent()
    yield one
    one.close()


def at(provider):
    return f"{provider.url}/v1"


def turns(provider):
    """What a model was asked; a server is also asked how large its window is."""
    return [one for one in provider.asked if "messages" in one]


def says(folder, text):
    """The user's own settings."""
    path = folder / "config" / "foldline" / "foldline.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def kept(name="one"):
    """Where a session is asked, by its log, and how long that is."""

    async def look():
        store = store_at(Path("talks.db"))
        session = await open_stored_session(store, Name("local", name))
        await store.close()
        return session.live.view

    view = asyncio.run(look())
    return view.settings.get("base_url"), view.head


@pytest.fixture
def begun(cli, here):
    """A session with words in it, begun at the first server."""
    done = cli("chat", "one", "-m", "a secret", "--model", "m", "--base-url", at(here)).tidy()
    assert (done.code, done.out) == (0, "ok\n")
    return cli


# One message


def test_a_session_goes_on_where_it_was_begun_without_the_flag(begun, here):
    """C-1: it went to the provider's own address."""
    done = begun("chat", "one", "-m", "and again").tidy()
    assert (done.code, done.out) == (0, "ok\n")
    assert len(turns(here)) == 2
    assert kept()[0] == at(here)


def test_what_is_carried_on_goes_where_it_was_begun(begun, here, other, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", other.url)
    done = begun("chat", "two", "--carry", "one", "-m", "on", "--model", "m")
    assert done.code == 2
    assert f"session 'one' is asked at {at(here)}, and " in done.err
    assert (other.came, kept("two")) == (0, (None, -1))
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert begun("chat", "two", "--carry", "one", "-m", "on").code == 0, "its model goes on, too"
    assert "a secret" in str(turns(here)[-1]["messages"])
    assert kept("two")[0] == at(here)


@pytest.mark.parametrize("named_by", ["OPENAI_BASE_URL", "FOLDLINE_MODEL__BASE_URL", "file"])
def test_another_address_in_environment_or_settings_is_refused(  # noqa: PLR0913, PLR0917 - fixtures
    begun, here, other, place, monkeypatch, named_by
):
    if named_by == "file":
        says(place, f'model.base_url = "{other.url}"')
    else:
        monkeypatch.setenv(named_by, other.url)
    before = kept()
    done = begun("chat", "one", "-m", "and again")
    assert done.code == 2
    assert f"session 'one' is asked at {at(here)}, and " in done.err
    assert f"names {other.url}; --base-url {other.url} moves it there" in done.err
    assert (other.came, len(turns(here)), kept()) == (0, 1, before)
    done = begun("chat", "one", "-m", "and again", "--base-url", at(here))
    assert (done.code, other.came, len(turns(here))) == (0, 0, 2)


def test_a_flag_moves_it_and_it_stays_there(begun, here):
    with Provider() as there:
        done = begun("chat", "one", "-m", "over", "--base-url", at(there))
        assert done.code == 0
        assert f"moved from {at(here)}: this session is asked at {at(there)} from here" in done.err
        assert begun("chat", "one", "-m", "and on").code == 0
        assert (len(turns(here)), len(turns(there))) == (1, 2)
        assert kept()[0] == at(there)


def test_what_the_environment_said_at_first_is_remembered_when_it_says_no_more(
    cli, here, monkeypatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", at(here))
    assert cli("chat", "one", "-m", "a secret", "--model", "m").code == 0
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert cli("chat", "one", "-m", "and again").code == 0
    assert len(turns(here)) == 2


def test_names_and_keys_in_an_address_are_used_and_never_written_down(cli, here, place):
    url = at(here).replace("http://", "http://ann:hunter2@") + "?token=t0ken"
    assert cli("chat", "one", "-m", "x", "--model", "m", "--base-url", url).code == 0
    assert kept()[0] == at(here)
    assert b"hunter2" not in (place / "talks.db").read_bytes()
    assert b"t0ken" not in (place / "talks.db").read_bytes()
    says(place, f'model.base_url = "{url}"')
    assert cli("chat", "one", "-m", "again").code == 0, "it is the same address"


def test_one_from_before_is_written_down_and_told_once(cli, here, monkeypatch):
    async def old():
        async with foldline.aopen("talks.db", model="m", session="one") as session:
            await session.add("a secret")

    asyncio.run(old())
    monkeypatch.setenv("OPENAI_BASE_URL", at(here))
    done = cli("chat", "one", "-m", "x").tidy()
    told = f"this session had no address on record; it is asked at {at(here)} from here on"
    assert (done.code, done.err.count(told)) == (0, 1)
    monkeypatch.delenv("OPENAI_BASE_URL")
    done = cli("chat", "one", "-m", "x").tidy()
    assert (done.code, told in done.err, len(turns(here))) == (0, False, 2)


@pytest.mark.usefixtures("begun")
def test_a_program_that_opens_it_does_not_make_it_forget(here):
    async def opened():
        async with foldline.aopen("talks.db", model="m", session="one", window=9_000) as session:
            await session.add("beside")

    asyncio.run(opened())
    assert kept()[0] == at(here)


# Another model


def test_another_model_of_the_same_dialect_is_asked_at_the_same_host(begun, here):
    assert begun("chat", "one", "-m", "x", "--model", "gpt-5").code == 0
    assert turns(here)[-1]["model"] == "gpt-5"


def test_a_model_of_another_provider_is_refused_unless_the_address_is_said(begun, here):
    before = kept()
    done = begun("chat", "one", "-m", "x", "--model", "claude-sonnet-5.5")
    assert done.code == 2
    assert f"session 'one' is asked at {at(here)}" in done.err
    assert "--model claude-sonnet-5.5 --base-url URL" in done.err
    assert kept() == before
    with Provider() as there:
        done = begun("chat", "one", "-m", "x", "--model", "claude-sonnet-5.5", "--base-url", there.url)  # fmt: skip
        assert (done.code, len(turns(there))) == (0, 1)
        assert begun("chat", "one", "-m", "x").code == 0
        assert len(turns(there)) == 2


# A fork, a file, a stranger's file


def test_a_fork_goes_where_its_origin_went(begun, here, other, monkeypatch):
    async def fork():
        async with foldline.aopen("talks.db", model="m", session="one") as session:
            await session.fork("two")

    asyncio.run(fork())
    monkeypatch.setenv("OPENAI_BASE_URL", other.url)
    assert begun("chat", "two", "-m", "x").code == 2
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert begun("chat", "two", "-m", "x").code == 0
    assert (len(turns(here)), other.came) == (2, 0)


def test_an_exported_log_keeps_its_address_and_a_stranger_cannot_name_one(begun, here, place):
    """A key goes along with every request: a file that was sent to you must not say where to."""
    text = begun("export", "one", "--format", "jsonl").out
    (place / "theirs.jsonl").write_text(text)
    assert begun("import", "theirs.jsonl", "--as", "mine").code == 0
    assert kept("mine")[0] == at(here)
    assert begun("chat", "mine", "-m", "x").code == 0, "this store's sessions are asked there"
    elsewhere = ("--store", place / "elsewhere.db")
    assert begun("import", "theirs.jsonl", *elsewhere).code == 0
    done = begun("chat", "theirs", "-m", "x", *elsewhere)
    assert done.code == 2
    assert f"says that it is asked at {at(here)}, where nothing from here was sent" in done.err
    done = begun("fold", "theirs", "--summarizer", "m", *elsewhere)
    assert (done.code, "it may be a stranger's log" in done.err) == (2, True)
    assert len(turns(here)) == 2
    assert begun("chat", "theirs", "-m", "x", "--base-url", at(here), *elsewhere).code == 0
    assert begun("chat", "theirs", "-m", "x", *elsewhere).code == 0, "that was agreeing"


# Who tells what is folded


def fill(cli, provider, name="one"):
    words = "many words are said here, and each is another one. " * 60
    for _ in range(4):
        given = ("--base-url", at(provider), "--window", "6000", "--summarizer", "off")
        assert cli("chat", name, "-m", words, *given).code == 0
    return len(turns(provider))


@pytest.mark.parametrize("other_named", [False, True])
def test_a_fold_by_hand_is_told_at_the_sessions_host(begun, here, other, monkeypatch, other_named):
    before = fill(begun, here)
    if other_named:
        monkeypatch.setenv("OPENAI_BASE_URL", other.url)
    done = begun("fold", "one", "--summarizer", "teller")
    assert done.code == 0
    assert [one["model"] for one in turns(here)[before:]][:1] == ["teller"]
    assert other.came == 0


def test_a_summarizer_of_another_provider_is_named_with_its_address(begun, here):
    before = fill(begun, here)
    done = begun("fold", "one", "--summarizer", "claude-haiku-4.5")
    assert done.code == 2
    assert "write claude-haiku-4.5@https://api.anthropic.com to send it there" in done.err
    with Provider() as there:
        done = begun("fold", "one", "--summarizer", f"claude-haiku-4.5@{there.url}")
        assert (done.code, len(turns(here))) == (0, before)
        assert turns(there)[0]["model"] == "claude-haiku-4.5"


def test_a_talks_summarizer_is_refused_before_anything_is_sent(begun, here):
    before = kept()
    done = begun("chat", "one", "-m", "x", "--summarizer", "claude-haiku-4.5")
    assert (done.code, "to send it there" in done.err) == (2, True)
    assert (len(turns(here)), kept()) == (1, before)


# The schedule


DAILY = ("--session", "one", "--cron", "0 9 * * *", "--say", "What is new?")


def test_an_entry_speaks_where_its_session_is_asked(begun, here, other, monkeypatch):
    assert begun("schedule", "add", "news", *DAILY).code == 0
    monkeypatch.setenv("OPENAI_BASE_URL", other.url)
    done = begun("schedule", "fire", "news")
    assert (done.code, f"is asked at {at(here)}" in done.err) == (1, True)
    assert (len(turns(here)), other.came) == (1, 0)
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert begun("schedule", "fire", "news").code == 0
    assert len(turns(here)) == 2


def test_an_entry_with_a_session_of_its_own_is_asked_where_it_is_first_fired(
    cli, here, other, monkeypatch
):
    """Nothing was sent when it was made: the worker's environment says where."""
    assert cli("schedule", "add", "news", *DAILY, "--new", "--model", "m").code == 0
    monkeypatch.setenv("OPENAI_BASE_URL", at(here))
    assert cli("schedule", "fire", "news").code == 0
    monkeypatch.setenv("OPENAI_BASE_URL", other.url)
    assert cli("schedule", "fire", "news").code == 1
    assert (len(turns(here)), other.came, kept()[0]) == (1, 0, at(here))


# The terminal: /model and /open, by the plain face


class Script:
    """A person who enters lines one after the other."""

    bar = words = stop = None
    expands = False
    columns, rows = 100, 30

    def __init__(self, *lines):
        self.lines, self.text = [*lines], ""

    async def said(self):
        """The next line."""
        return self.lines.pop(0) if self.lines else None

    async def ask(self, question):
        """Yes to everything."""
        self.text += question
        return "y"

    def above(self, text):
        """Keep it."""
        self.text += text

    def live(self, text):
        """Nothing."""

    def refresh(self):
        """Nothing."""

    def leave(self):
        """End."""
        self.lines.clear()


def talk(place, *lines, name="one", **flags):
    face = Script(*lines)
    wish = Wish(desk=Desk(str(place / "talks.db"), given=True), name=name, flags=flags, tools=False)
    asyncio.run(wish.run_chat(face))
    return face.text.replace("\n", " ")


@pytest.mark.usefixtures("begun")
def test_the_command_for_another_model_does_not_change_the_host(here, place):
    text = talk(place, "/model claude-sonnet-5.5", "hello", "/model gpt-5", "hello")
    assert "--base-url URL" in text
    assert text.count("Switch?") == 2, "asked and answered once: the first was refused before"
    assert [one["model"] for one in turns(here)] == ["m", "m", "gpt-5"]


@pytest.mark.usefixtures("begun")
def test_a_fold_in_a_talk_is_told_at_the_sessions_host(here, place, cli):
    before = fill(cli, here)
    text = talk(place, "/compact", **{"summarizer": "teller", "model.max_input_tokens": 6_000})
    assert "tokens became" in text
    assert turns(here)[before]["model"] == "teller"


@pytest.mark.usefixtures("begun")
def test_a_session_that_is_opened_later_keeps_its_own_model(here, place, cli):
    says(place, '[model]\nname = "of-the-settings"\n')
    for name in ("two", "three"):
        assert cli("chat", name, "-p", "hi", "--base-url", at(here), "--model", name).code == 0
    before = len(turns(here))
    flags = {"model": "m", "model.max_input_tokens": 9_000, "model.base_url": at(here)}
    text = talk(place, "hi", "/open two", "hi", "/new three", "hi", "/new four", "hi", **flags)
    models = [one["model"] for one in turns(here)[before:]]
    assert models == ["m", "two", "three", "three"], text
    assert "two goes on · two" in text
    assert text.count("/ 9,000") == 2, "the window was said of the first session's model"


def test_a_session_that_is_picked_from_the_list_keeps_its_own_model(here, place, cli):
    assert cli("chat", "two", "-p", "hi", "--base-url", at(here), "--model", "own").code == 0
    text = talk(place, "1", "hi", name=None, **{"model": "m", "model.base_url": at(here)})
    assert [one["model"] for one in turns(here)] == ["own", "own"], text
    assert [one["session"] for one in cli("sessions", "--json").json["sessions"]] == ["two"]


def test_a_chat_without_a_word_leaves_no_session(here, place, cli):
    flags = {"model": "m", "model.base_url": at(here)}
    assert "lists commands" in talk(place, "/tokens", "/new", "/model other", name=None, **flags)
    assert cli("sessions", "--json").json["sessions"] == []
    talk(place, "/new", "Something.", name=None, **flags)
    assert [one["words"] for one in cli("sessions", "--json").json["sessions"]] == ["Something."]


@pytest.mark.usefixtures("begun")
def test_a_flag_for_one_session_does_not_move_another(here, place):
    with Provider() as there:
        flags = {"model": "m", "model.base_url": at(there)}
        text = talk(place, "hi", "/open one", "still two", "/new one", "and still", name="two", **flags)  # fmt: skip
        assert text.count(f"session 'one' is asked at {at(here)}, and the command line names") == 2
        assert (len(turns(here)), len(turns(there))) == (1, 3)
    assert kept()[0] == at(here)
