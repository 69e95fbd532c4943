"""Thinking that a model signs together with all that stands before it."""

import hashlib
import json


def bind_thoughts(messages, end):
    """A signature over all that stands before a message, but for thoughts and cache marks."""

    def strip(node):
        if isinstance(node, dict):
            kept = {key: strip(one) for key, one in node.items() if key != "cache_control"}
            if isinstance(text := kept.get("content"), str):  # both forms are the same words
                kept["content"] = [{"type": "text", "text": text}]
            return kept
        if isinstance(node, list):
            kept = (
                one for one in node if not (isinstance(one, dict) and one.get("type") == "thinking")
            )
            return [strip(one) for one in kept]
        return node

    return hashlib.sha256(json.dumps(strip(messages[:end])).encode()).hexdigest()


def has_foreign_thought(messages):
    blocks = (
        (at, one)
        for at, said in enumerate(messages)
        for one in said["content"]
        if isinstance(one, dict)
    )
    return any(one["type"] == "thinking" and one["signature"] != bind_thoughts(messages, at) for at, one in blocks)  # fmt: skip
