"""What other libraries show of a conversation at its end: the child of `benches/answers.py --peers`.

Runs in the environment of `just peers`. Reads JSON lines from stdin, each a window and the messages of a
conversation; answers each with one JSON line per library: its name and the text of the request that it
would send behind the last message, or why it failed. Summaries are scripted (`Scribe`): first lines of what
they replace, evenly.
"""

import json
import logging
import os
import sys

from sessions import events_of

from foldline.core.log import Instructed, ModelSaid, UserSaid
from foldline.core.parts import Text
from foldline.lab.recorded import Recorded
from rivals.__main__ import peers
from rivals.base import Peer


def show(maker: type[Peer], window: int, system: str, messages: list[dict[str, object]]) -> str:
    """The text of a library's last request; nothing if a provider would refuse it."""
    events = (Instructed((Text(system),)), *events_of(messages), UserSaid((Text("And now?"),)))
    peer = maker(Recorded("talk", "local", events), window)
    text = ""
    for event, following in zip(events, (*events[1:], None), strict=True):
        peer.take(event)
        if isinstance(following, ModelSaid | None):
            pieces = peer.offer(seconds=0.0, missed=False).pieces
            text = "\n".join(piece.text for piece in pieces) if peer.total <= window else ""
    return text


def main() -> None:
    """One answer per conversation and library."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    logging.disable(logging.CRITICAL)
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks the network
    os.environ["OPENHANDS_SUPPRESS_BANNER"] = "1"
    os.environ["OTEL_SDK_DISABLED"] = "true"
    found, _ = peers([])
    for line in sys.stdin:
        talk = json.loads(line)
        for maker in found[1:]:  # the first sends everything
            try:
                row = {"text": show(maker, talk["window"], talk["system"], talk["messages"])}
            except Exception as error:  # noqa: BLE001 - a peer that fails is a result too
                row = {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
            answers.write(json.dumps({"talk": talk["talk"], "peer": maker.label, **row}) + "\n")


if __name__ == "__main__":
    main()
