"""Sessions: they use stores, models and clocks, and `core` decides for them.

arguments         Checks what a caller passes to a session
carry             Carries the record of an earlier session, or parts of it, into a new one
client_row        A client's messages as a log has them, in the client's order
cold_call         What the next call costs if the cache has expired
export_log        Exports a session as JSONL, provider messages or Markdown
fold_queue        The queue of folds on PostgreSQL
fold_records      What each fold did: turns, tokens, cost, ratio
fold_worker       Folds sessions in the background, and the worker processes for it
given_objects     Reads objects of SDKs and LangChain, and events of streams; the SDKs' clients
history           The past of a session: turns, past requests, search, trimming
hooks             Watchers of folds and narratives, and vetoes on folds
host              The server that a session's model is asked at
ledger            What the calls of a session took and cost
log_handle        A log and its view, kept in step
log_lines         The lines that sessions log
message_search    Search for messages, without the question, each with a passage
metrics           Prometheus metrics and OpenTelemetry spans
model_facts       The facts that plans use: policy, limits and prices of a model
open              Opens a session, new or stored
planning          Plans a request, records it, and rebuilds it byte for byte
recall_tool       The tool `recall` as data, and the answers to its calls
refusals          What a refusal for length teaches, and the smaller request that follows
retention         Erases what is older than its rule, on a schedule
session           A session: one conversation, recorded, planned and sent
session_settings  The settings that a session keeps in its log
spending          Caps on tokens and money, folds included
stored_session    Sessions in a store: opened, held while changed, and listed
summaries         Narratives prepared ahead of folds
sync              Runs async code from sync code
turn              One call of a model for a session, with retries after a refusal
usage_records     What calls took, by hour, owner, key and model
use_settings      Builds caps, clients and narrators from settings
"""
