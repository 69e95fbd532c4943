"""What each role may do, written down by hand: a table that knows nothing of the gateway's code.

A route that is in the gateway and not in this table fails the test.
"""

OK, ABSENT, FORBIDDEN, UNKNOWN = "answered", "as if it were not there", "403", "401"

OWN, SHARED, TENANT, ELSEWHERE = "own", "shared", "tenant", "elsewhere"
"""Whose a session is for a client: its owner's; shared with its owner; another's of its tenant;
another tenant's, or none."""

ANSWERED = {
    "figures": {"client": {OWN, SHARED}, "reader": {OWN, SHARED, TENANT}, "admin": {OWN, SHARED, TENANT}},
    "words": {"client": {OWN, SHARED}, "reader": {SHARED}, "admin": {OWN, SHARED, TENANT}},
    "owner": {"client": {OWN}, "reader": set(), "admin": {OWN, SHARED, TENANT}},
}  # fmt: skip
"""By what a route shows or changes, and by role: which sessions it is answered for. An operator is
an admin of each tenant."""
REFUSED = {
    "figures": {"client": ABSENT, "reader": ABSENT, "admin": ABSENT},
    "words": {"client": ABSENT, "reader": FORBIDDEN, "admin": ABSENT},
    "owner": {"client": ABSENT, "reader": FORBIDDEN, "admin": ABSENT},
}
"""How it is refused for all others."""

GENERAL = {
    "anybody": {"client": OK, "reader": OK, "admin": OK},
    "relay": {"client": OK, "reader": FORBIDDEN, "admin": OK},
    "closed": {"client": FORBIDDEN, "reader": FORBIDDEN, "admin": FORBIDDEN},
    "monitor": {"client": FORBIDDEN, "reader": OK, "admin": OK},
}
"""Routes that are about no session of theirs."""

API = {
    ("GET", "/sessions"): "anybody",
    ("POST", "/sessions"): "relay",
    ("GET", "/sessions/{name}"): "figures",
    ("DELETE", "/sessions/{name}"): "owner",
    ("POST", "/sessions/{name}/messages"): "owner",
    ("POST", "/sessions/{name}/events"): "owner",
    ("GET", "/sessions/{name}/events"): "words",
    ("POST", "/sessions/{name}/request"): "owner",
    ("GET", "/sessions/{name}/requests/{at}"): "words",
    ("GET", "/sessions/{name}/context"): "words",
    ("GET", "/sessions/{name}/tokens"): "figures",
    ("POST", "/sessions/{name}/fold"): "owner",
    ("POST", "/sessions/{name}/undo"): "owner",
    ("POST", "/sessions/{name}/redo"): "owner",
    ("POST", "/sessions/{name}/pin"): "owner",
    ("POST", "/sessions/{name}/unpin"): "owner",
    ("POST", "/sessions/{name}/exclude"): "owner",
    ("GET", "/sessions/{name}/recall"): "words",
    ("GET", "/sessions/{name}/search"): "words",
    ("GET", "/sessions/{name}/history"): "words",
    ("GET", "/sessions/{name}/instructions"): "words",
    ("PUT", "/sessions/{name}/instructions"): "owner",
    ("PUT", "/sessions/{name}/model"): "owner",
    ("GET", "/sessions/{name}/cost"): "figures",
    ("GET", "/sessions/{name}/export"): "words",
    ("POST", "/sessions/{name}/fork"): "owner",
    ("GET", "/sessions/{name}/shares"): "owner",
    ("PUT", "/sessions/{name}/shares/{owner}"): "owner",
    ("DELETE", "/sessions/{name}/shares/{owner}"): "owner",
}
"""The routes of the OpenAPI document."""

PAGES = {
    ("GET", "/"): "anybody",
    ("GET", "/search"): "relay",
    ("GET", "/session"): "words",
    ("GET", "/picture.svg"): "words",
    ("GET", "/original"): "words",
    ("GET", "/edit"): "words",
    ("GET", "/change.svg"): "words",
    ("GET", "/fold"): "owner",
    ("GET", "/undo"): "owner",
    ("GET", "/pin"): "owner",
    ("GET", "/what-if"): "words",
    ("GET", "/fleet"): "anybody",
    ("GET", "/fleet.csv"): "anybody",
    ("POST", "/fold"): "owner",
    ("POST", "/undo"): "owner",
    ("POST", "/pin"): "owner",
    ("POST", "/what-if"): "words",
}
"""The pages below /ui, for browsers that are signed in."""

SHOWN = {
    *(f"GET /sessions/{{name}}/{one}" for one in ("events", "recall", "search", "history", "instructions", "export", "requests/{at}")),
    "GET /ui/session", "GET /ui/original", "GET /ui/pin",
}  # fmt: skip
"""Routes in which an owner sees words of the session: the control of the canaries."""

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello."}]}
CLAUDE = {**CHAT, "max_tokens": 9}
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "Hello."}]}]}
INPUT = {"model": "m", "input": "Hello."}
DIALECT_PATHS = {
    "/chat/completions": ("/v1/chat/completions", CHAT),
    "/v1/messages": ("/v1/messages", CLAUDE),
    ":generateContent": ("/v1beta/models/m:generateContent", CONTENTS),
    ":streamGenerateContent": ("/v1beta/models/m:streamGenerateContent?alt=sse", CONTENTS),
    ":countTokens": ("/v1beta/models/m:countTokens", {**CONTENTS, "model": "m"}),
    "/interactions": ("/v1beta/interactions", INPUT),
    "/responses": ("/v1/responses", INPUT),
    "/responses/compact": ("/v1/responses/compact", INPUT),
    "/responses/input_tokens": ("/v1/responses/input_tokens", INPUT),
}
"""By the endings that dialects are known by: what is posted where."""
OPEN = [
    ("POST", "/v1/messages/count_tokens", CLAUDE), ("POST", "/v1/embeddings", INPUT),
    ("POST", "/v1/completions", {"model": "m", "prompt": "x"}), ("POST", "/v1/moderations", INPUT),
    ("POST", "/openai/deployments/m/chat/completions", CHAT), ("POST", "/v1/audio/speech", INPUT),
    ("POST", "/model/m/converse", CHAT), ("POST", "/v1/images/generations", INPUT),
]  # fmt: skip
"""Other routes that ask a model."""
CLOSED = [
    *((method, path) for path in ("/v1/files", "/v1/batches", "/v1/vector_stores", "/v1/assistants", "/v1/fine_tuning/jobs", "/v1/messages/batches", "/v1beta/files", "/v1beta/cachedContents", "/v1beta/batches") for method in ("GET", "POST")),
    ("GET", "/v1/files/f"), ("GET", "/v1/files/f/content"), ("DELETE", "/v1/files/f"), ("POST", "/upload/v1beta/files"),
    ("GET", "/v1/responses/r"), ("DELETE", "/v1/responses/r"), ("GET", "/v1/responses/r/input_items"), ("POST", "/v1/responses/r/cancel"),
    ("GET", "/v1/chat/completions"), ("GET", "/v1/chat/completions/c"), ("DELETE", "/v1/chat/completions/c"), ("GET", "/v1/chat/completions/c/messages"),
    ("GET", "/v1/conversations/c/items"), ("POST", "/v1/conversations"), ("GET", "/v1/threads/t/messages"), ("POST", "/v1/threads/t/runs"),
    ("GET", "/v1/organization/users"), ("GET", "/v1/organization/admin_api_keys"), ("POST", "/v1/organization/projects"), ("GET", "/v1/organizations/usage_report/messages"),
    ("DELETE", "/v1/models/ft:m"), ("PATCH", "/v1beta/tunedModels/t"), ("GET", "/v1beta/models/m/operations/o"), ("POST", "/v1/containers"), ("GET", "/v1/containers/c/files/f/content"),
    ("GET", "/v1/interactions/i"), ("DELETE", "/v1beta/interactions/i"), ("PUT", "/v1/chat/completions"), ("GET", "/"), ("GET", "/v1"), ("POST", "/v1/realtime/sessions"), ("OPTIONS", "/v1/models"),
]  # fmt: skip
"""Routes that belong to whoever has the provider's key."""
READ_OPEN = [("GET", "/v1/models"), ("GET", "/v1/models/m"), ("GET", "/v1beta/models"), ("GET", "/v1/models/vendor/m")]  # fmt: skip
