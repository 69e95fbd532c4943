"""The audit log's file: rotated by others, full, or on a disk that is gone."""

import json
import logging
import os
from time import sleep

import pytest

from foldline.apps.gateway import audit
from foldline.apps.gateway.audit import Audit, Note
from foldline.errors import BadInput


def write(log, *routes):
    for route in routes:
        log.write(Note(route=route))


def routes_of(path):
    return [json.loads(line)["route"] for line in path.read_text().splitlines()]


def test_a_file_that_was_moved_away_is_begun_anew_and_no_line_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "_LOOK", 0.05)
    path, old = tmp_path / "audit", tmp_path / "audit.1"
    log = Audit(path)
    write(log, "GET /1", "GET /2")
    path.rename(old)
    sleep(0.06)
    write(log, "GET /3")
    path.unlink()
    sleep(0.06)
    write(log, "GET /4")
    log.close()
    assert routes_of(old) == ["GET /1", "GET /2"]
    assert routes_of(path) == ["GET /4"]


def test_a_file_that_cannot_be_begun_anew_is_written_into_no_other(tmp_path, monkeypatch):
    """The number of a closed file is soon another's: a client's connection, say."""
    monkeypatch.setattr(audit, "_LOOK", 0.0)
    folder, other = tmp_path / "logs", tmp_path / "other"
    folder.mkdir()
    log = Audit(folder / "audit")
    folder.rename(tmp_path / "gone")
    write(log, "GET /1")
    with other.open("wb"):
        monkeypatch.setattr(audit, "_LOOK", 60.0)
        write(log, "GET /2")
    assert other.read_bytes() == b""
    assert routes_of(tmp_path / "gone" / "audit") == ["GET /2"]
    log.close()


def test_two_processes_append_to_one_file(tmp_path):
    path = tmp_path / "audit"
    one, another = Audit(path), Audit(path)
    write(one, "GET /1")
    write(another, "GET /2")
    write(one, "GET /3")
    assert routes_of(path) == ["GET /1", "GET /2", "GET /3"]


@pytest.mark.parametrize("room", range(1, 40, 7))
@pytest.mark.parametrize("whose", ["its own", "another's", "one's before"])
def test_half_a_line_of_a_full_disk_is_on_a_line_of_its_own(tmp_path, monkeypatch, room, whose):
    """Whoever writes the next line: this process, another one, or the one that is started again."""
    path = tmp_path / "audit"
    one, another = Audit(path), Audit(path)
    write(one, "GET /1")
    with monkeypatch.context() as full:
        append = os.write
        full.setattr(audit.os, "write", lambda file, line: append(file, line[:room]))
        write(one, "GET /2")
    log = {"its own": one, "another's": another, "one's before": Audit(path)}[whose]
    write(log, "GET /3", "GET /4")
    lines = path.read_text().splitlines()
    assert len(lines[1]) == room
    assert [json.loads(line)["route"] for line in (lines[0], *lines[2:])] == [
        "GET /1",
        "GET /3",
        "GET /4",
    ]


def test_a_pipe_may_take_the_lines(tmp_path):
    pipe = tmp_path / "audit"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    log = Audit(pipe)
    write(log, "GET /1", "GET /2")
    lines = os.read(reading, 10_000).splitlines()
    assert [json.loads(line)["route"] for line in lines] == ["GET /1", "GET /2"]
    log.close()
    os.close(reading)


def test_a_line_that_cannot_be_written_is_said_and_stops_nobody(caplog):
    log = Audit("/dev/full")
    with caplog.at_level(logging.WARNING):
        write(log, "GET /1")
    assert "an audit line was not written" in caplog.text
    log.close()


def test_a_file_that_cannot_be_opened_is_refused_at_the_start(tmp_path):
    with pytest.raises(BadInput, match="--audit"):
        Audit(tmp_path / "no folder" / "audit")
