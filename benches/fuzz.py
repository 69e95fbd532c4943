"""Readers of foreign bytes under broken bodies: a value or a typed error, never anything else.

    just bench fuzz --bodies 1000000

Each seed breaks one body of a corpus in one to four ways: bits flipped, bytes deleted, inserted,
duplicated, spliced with another body's, cut off, values put in place of others, deep nesting, huge
numbers, halves of surrogate pairs, NUL, bytes that are no UTF-8. What is read must be storable,
showable and sendable; what is refused must be a WireError with a path. Any other exception, more
than a second of its processor or 200 MB more is a failure, printed with its seed and bytes. Exits 1 on any.

An untouched request must come out of the patch byte for byte. `--dialect` takes one of them alone.
Another dialect is one more entry in CORPORA.
"""

import argparse
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from random import Random
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from foldline.core import log, rules
from foldline.core.log import Event, Opened
from foldline.core.parts import Call, Text
from foldline.core.request import render
from foldline.dialects.base import DIALECTS, Dialect, get_dialect
from foldline.dialects.client_messages import item_of
from foldline.dialects.json_slices import parse_object
from foldline.dialects.sse import SseReader
from foldline.errors import WireError
from foldline.proxy.client_request import read_request
from foldline.proxy.patch import patch_request
from foldline.session.client_row import read_row
from foldline.testing import view_of

SECONDS = 1.0
MEGABYTES = 200
CHUNK = 1_000
PATCHED = 200  # messages of a request that are patched: no plan edits thousands one by one
RESULTS = 50  # and results of one message


class Reader(NamedTuple):
    """One way in: bodies to break, and what must read or refuse them."""

    corpus: tuple[bytes, ...]
    read: Callable[[bytes, Random], None]


def _kept(events: list[Event], dialect: Dialect) -> None:
    """Whatever was read can be stored, shown and sent."""
    for event in events:
        log.check_event(event)
    view = view_of([Opened("m"), *events])
    for event in rules.make_closing_events(view):
        view.append(view.head + 1, event)
    rules.check_view(view)
    msgspec.json.decode(dialect.encode_request(render(view), {}))


def _request(dialect: Dialect, body: bytes, _: Random) -> None:
    """Whatever is read of a client's request can be stored, and says the same when it is written.

    While nothing is edited it is sent as it came, and what is edited is JSON.
    """
    request, form = read_request(dialect, body), dialect
    fields = {name: request.extract_field(name) for name in dialect.fixed}
    given = {name: field for name, field in fields.items() if field}
    leading = [request.extract_message(at) for at in request.leading]
    events: list[Event] = [Opened("m"), form.read_instructions(given, leading)]
    log.check_event(events[-1])
    shown = {*request.chained, *request.asides}
    for at, described in enumerate(request.described):
        if at not in shown or described.role == "fold":
            continue
        raw = request.extract_message(at)
        read = form.read_message(raw, described)
        for event in read:
            log.check_event(event)
        events += read
        if described.role == "system":
            continue
        again = form.describe_message(form.write_message([item_of(event) for event in read]))
        if again.digest != described.digest:
            raise ValueError(f"message {at} says something else when it is written again")
        if at < PATCHED:
            _patch(form, raw, read[:RESULTS])
    view = view_of(events)
    if request.sealed < 0 and patch_request(request, view, read_row(view)).body != body:
        raise ValueError("a request without an edit is sent otherwise")


def _patch(form: Dialect, raw: bytes, events: list[Event]) -> None:
    """A message in which every text is replaced is still JSON, and is read."""
    for event in events:
        shown = item_of(event)
        stub = (Text("[masked]"), *(one for one in shown.parts if isinstance(one, Call)))
        raw = form.replace_text(raw, event, replace(shown, parts=stub, state="masked"))
    form.describe_message(raw)
    msgspec.json.decode(b"[" + form.drop_thinking(raw) + b"]")


def _answer(dialect: Dialect, body: bytes, _: Random) -> None:
    """An answer that is read is kept; as a client sends it back, it is read too."""
    given = parse_object(body)
    _kept(dialect.parse_answer(given, None, None), dialect)
    for raw in dialect.encode_answer(given):
        described = dialect.describe_message(raw)
        if described.role not in ("compaction", "fold"):
            dialect.read_message(raw, described)


def _stream(dialect: Dialect, body: bytes, random: Random) -> None:
    """A stream that is cut into pieces anywhere, and breaks off anywhere."""
    lines, made, last = SseReader(), dialect.make_assembly(), 0
    cuts = sorted(random.randrange(len(body) + 1) for _ in range(3))
    sent = []
    for cut in (*cuts, len(body)):
        sent += lines.feed(body[last:cut])
        last = cut
    for one in (*sent, *lines.close()):
        if one.whole or not dialect.must_bound:
            made.add_event(one.data, whole=one.whole)
    _kept(dialect.parse_answer(made.build_body(), None, None), dialect)


MESSAGE_REQUESTS = (
    rb'{"model":"m","max_tokens":9,"system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"w","description":"d","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"web_search"}],"messages":[{"role":"user","content":"caf\u00e9"},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"EqQB"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"Looking."},{"type":"tool_use","id":"t1","name":"w","input":{"c":1.0}},{"type":"tool_use","id":"t2","name":"w","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"4"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBO"}}]},{"type":"tool_result","tool_use_id":"t2","content":"no","is_error":true},{"type":"text","text":"Be brief."}]}],"x_new":[1,{"a":null}]}',
    rb'{"model":"m","system":"S","messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"d"},"title":"t"},{"type":"image","source":{"type":"url","url":"https://example.org/a.png"}},{"type":"a_block_of_tomorrow","x":12345678901234567890}]},{"role":"assistant","content":"yes"},{"role":"system","content":"more"}]}',
)
MESSAGE_ANSWERS = (
    rb'{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hi \ud83d\ude00","citations":[]},{"type":"server_tool_use","id":"s","name":"web_search","input":{"q":"x"}},{"type":"tool_use","id":"t","name":"w","input":{"_raw":"x"}}],"stop_reason":"tool_use","usage":{"input_tokens":25,"cache_read_input_tokens":900,"cache_creation_input_tokens":5,"output_tokens":7,"output_tokens_details":{"thinking_tokens":3}}}',
)
MESSAGE_STREAMS = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"usage":{"input_tokens":5}}}\n\nevent: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}\n\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}\n\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"E"}}\n\ndata: {"type":"content_block_stop","index":0}\n\ndata: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"w","input":{}}}\n\ndata: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\\"c\\":1}"}}\n\ndata: {"type":"content_block_stop","index":1}\n\ndata: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}\n\ndata: {"type":"message_stop"}\n\n',
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"caf\xc3\xa9"}}\n\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"type":"x"}}}\n\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
)
CHAT_REQUESTS = (
    rb'{"model":"m","messages":[{"role":"system","content":"S"},{"role":"user","content":"caf\u00e9 \/"},{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"w","arguments":"{\"c\": 1.0}"}},{"id":"c2","type":"custom","custom":{"name":"x","input":"y"}}]},{"role":"tool","tool_call_id":"c1","content":"4"},{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"t"}]},{"role":"developer","content":"D"},{"role":"assistant","content":[{"type":"refusal","refusal":"no"}],"refusal":null,"audio":{"id":"a"}}],"tools":[{"type":"function","function":{"name":"w","description":"d","parameters":{"type":"object"},"strict":true}},{"type":"custom","custom":{"name":"x","format":{"type":"text"}}}],"temperature":1.0,"x_new":[1,{"a":null}],"stream":true}',
    rb'{"messages":[{"role":"user","name":"Ann","content":[{"type":"text","text":"And?","prompt_cache_breakpoint":{"mode":"explicit"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBO","detail":"low"}},{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}},{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBE","filename":"a.pdf"}},{"type":"hologram","x":12345678901234567890}]},{"role":"assistant","content":"","function_call":{"name":"old","arguments":"{}"}},{"role":"function","name":"old","content":"done"}],"model":"m","seed":1e5}',
)
CHAT_COMPLETIONS = (
    rb'{"id":"x","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi \ud83d\ude00","refusal":null,"annotations":[],"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm"}],"tool_calls":[{"id":"c1","type":"function","function":{"name":"w","arguments":"{\"c\":1}"}}]},"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":925,"completion_tokens":40,"total_tokens":965,"prompt_tokens_details":{"cached_tokens":900,"cache_write_tokens":5},"completion_tokens_details":{"reasoning_tokens":3}},"timings":{"cache_n":1,"prompt_n":2,"predicted_n":3}}',
    rb'{"choices":[{"message":{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"h"}]},{"type":"text","text":"A"}],"audio":{"id":"a","data":"AA"},"function_call":{"name":"f","arguments":{"a":1}}},"finish_reason":"length"}],"x_groq":{"usage":{"prompt_tokens":1}}}',
)
CHAT_STREAMS = (
    b': OPENROUTER PROCESSING\r\n\r\ndata: {"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\r\n\r\ndata: {"choices":[{"index":0,"delta":{"reasoning_content":"hm","content":"caf\xc3\xa9"}}],"obfuscation":"x"}\r\n\r\ndata: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"w","arguments":""}}]},"finish_reason":null}]}\n\ndata: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"c\\":\\"Oslo\\"}"}}]},"finish_reason":null}]}\n\ndata: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":925,"completion_tokens":40,"prompt_tokens_details":{"cached_tokens":900}}}\n\ndata: [DONE]\n\n',
    b'event: delta\ndata: {"choices":[{"delta":{"content":[{"type":"text","text":"A"}],"reasoning_details":[{"type":"reasoning.text","text":"a","index":0}]}}]}\n\ndata: {"choices":[{"delta":{"content":"B","reasoning_details":[{"type":"reasoning.text","text":"b","index":0}],"audio":{"id":"a","data":"AA"},"function_call":{"name":"f","arguments":"{"}}}]}\n\ndata: {"choices":[{"delta":{"audio":{"data":"BB"},"tool_calls":[{"function":{"name":"w","arguments":{"a":1}}},{"id":"z","custom":{"name":"x","input":"y"}}]}}]}\n\ndata: {"error":{"message":"Overloaded"}}\n\n',
)
RESPONSE_REQUESTS = (
    rb'{"model":"m","instructions":"S","tools":[{"type":"function","name":"w","description":"d","parameters":{"type":"object"},"strict":true},{"type":"custom","name":"x","format":{"type":"text"}},{"type":"web_search"}],"input":[{"type":"additional_tools","role":"developer","tools":[{"type":"web_search"}]},{"role":"developer","content":"D"},{"role":"user","content":"caf\u00e9 \/"},{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"gAAA"},{"type":"message","id":"msg_1","role":"assistant","status":"completed","phase":"commentary","content":[{"type":"output_text","text":"Looking.","annotations":[]}]},{"type":"function_call","id":"fc_1","call_id":"c1","name":"w","arguments":"{\"c\": 1.0}","status":"completed"},{"type":"custom_tool_call","id":"ctc_1","call_id":"c2","name":"x","input":"y"},{"type":"function_call_output","call_id":"c1","output":"4"},{"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"t"},{"type":"input_image","image_url":"data:image/png;base64,iVBO","detail":"auto"}]},{"role":"system","content":[{"type":"input_text","text":"Be brief."}]},{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]},{"role":"user","content":[{"type":"input_text","text":"And?"}]}],"temperature":1.0,"x_new":[1,{"a":null}],"stream":true,"store":false}',
    rb'{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"See"},{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBE"},{"type":"hologram","x":12345678901234567890}]},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},{"type":"shell_call","id":"sh_1","call_id":"s","action":{"commands":["ls"]},"status":"completed"},{"type":"shell_call_output","call_id":"s","output":[{"stdout":"a","stderr":"","outcome":{"type":"exit","exit_code":0}}]},{"type":"program","id":"p_1","call_id":"p","code":"x"},{"type":"program_output","id":"po_1","call_id":"p","result":"4"},{"type":"image_generation_call","id":"ig_1","status":"completed","result":"iVBO"},{"type":"mcp_approval_request","id":"mcpr_1","name":"n","arguments":"{}","server_label":"l"},{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true},{"type":"quantum","q":1e5},{"id":"rs_9"},{"role":"assistant","content":"yes"}],"model":"m"}',
    rb'{"model":"m","input":[{"role":"user","content":"old"},{"type":"compaction","id":"cmp_1","encrypted_content":"opaque"},{"role":"user","content":"new"},{"type":"compaction","encrypted_content":"foldline:1:41:3:abcdefghijklmnopqrst:talk-1"},{"role":"assistant","content":"so"},{"role":"user","content":"on"}]}',
    rb'{"model":"m","input":"a text alone \ud83d\ude00","max_output_tokens":50}',
)
RESPONSE_ANSWERS = (
    rb'{"id":"resp_1","object":"response","created_at":5,"status":"completed","model":"m","error":null,"incomplete_details":null,"output":[{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],"encrypted_content":"gAAA"},{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hi \ud83d\ude00","annotations":[{"type":"url_citation","url":"u"}],"parsed":null}]},{"type":"function_call","id":"fc_1","call_id":"c1","name":"w","arguments":"{\"c\":1}","status":"completed"},{"type":"compaction","id":"cmp_1","encrypted_content":"x"}],"usage":{"input_tokens":925,"input_tokens_details":{"cached_tokens":900},"output_tokens":40,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":965}}',
    rb'{"object":"response","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"shell_call","call_id":"s","action":{"commands":["ls"]}},{"type":"shell_call_output","call_id":"s","output":[]},{"type":"tool_search_call","arguments":{},"execution":"server"},{"type":"tool_search_output","tools":[]},{"type":"quantum_call","call_id":"q"}]}',
)
RESPONSE_STREAMS = (
    b'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","output":[]}}\n\nevent: response.output_item.added\ndata: {"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}\n\ndata: {"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}}\n\ndata: {"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"msg_1","role":"assistant","content":[]}}\n\ndata: {"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"caf\xc3\xa9"}\n\ndata: {"type":"response.output_text.done","item_id":"msg_1","output_index":1,"content_index":0,"text":"caf\xc3\xa9"}\n\ndata: {"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"caf\xc3\xa9"}]}}\n\ndata: {"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"fc_1","call_id":"c","name":"w","arguments":"{}"}}\n\ndata: {"type":"response.completed","response":{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"caf\xc3\xa9"}]}],"usage":{"input_tokens":5,"output_tokens":9}}}\n\n',
    b': ping\r\n\r\ndata: {"type":"response.output_text.delta","delta":"A"}\r\n\r\ndata: {"type":"response.refusal.delta","output_index":3,"content_index":1,"delta":"no"}\n\ndata: {"type":"response.output_item.done","item":{"type":"quantum","x":1}}\n\ndata: {"type":"response.failed","response":{"status":"failed","error":{"code":"context_length_exceeded","message":"Your input exceeds"}}}\n\ndata: [DONE]\n\n',
    b'data: {"type":"error","code":"server_error","message":"Overloaded","sequence_number":3}\n\n',
)
CONTENT_REQUESTS = (
    rb'{"systemInstruction":{"parts":[{"text":"S"}]},"tools":[{"functionDeclarations":[{"name":"w","description":"d","parametersJsonSchema":{"type":"object"}},{"name":"o","parameters":{"type":"OBJECT","properties":{"c":{"type":"STRING"}}}}]},{"googleSearch":{}}],"generationConfig":{"maxOutputTokens":9,"thinkingConfig":{"includeThoughts":true}},"contents":[{"role":"user","parts":[{"text":"caf\u00e9 \/"},{"inlineData":{"mimeType":"image/png","data":"iVBO-_=="}}]},{"role":"model","parts":[{"text":"hm","thought":true},{"text":"Looking."},{"functionCall":{"id":"a1","name":"w","args":{"c":1.0}},"thoughtSignature":"Q2xh"},{"functionCall":{"id":"a2","name":"w","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"id":"a1","name":"w","response":{"output":"4"},"parts":[{"inlineData":{"mimeType":"image/png","data":"iVBO"}}]}},{"functionResponse":{"id":"a2","name":"w","response":{"error":"no"}}},{"text":"Be brief."}]}],"x_new":[1,{"a":null}]}',
    rb'{"contents":[{"parts":[{"text":"See"},{"text":" these."},{"file_data":{"file_uri":"https://example.org/a.pdf?sig=1","mime_type":"application/pdf"}},{"x_unknown":{"x":12345678901234567890}}]},{"role":"model","parts":[{"function_call":{"name":"w","args":{"a_b":[1,null]}},"thought_signature":"c2ln"},{"functionCall":{"name":"w"}},{"executableCode":{"language":"PYTHON","code":"1"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}}]},{"role":"function","parts":[{"function_response":{"name":"w","response":{"result":{"a":[1]}}}},{"functionResponse":{"name":"w","response":{}}}]},{"role":"model","parts":[{"text":"yes","thoughtSignature":"ZW5k"},{"text":"","thoughtSignature":"ZW5k"}]},{"role":"user","parts":[{"text":"And?","thought":null,"videoMetadata":{"fps":1}}]}],"generation_config":{"max_output_tokens":9},"system_instruction":{"role":"user","parts":[{"text":"S"}]},"tools":[{"function_declarations":[{"name":"w"}]},{"code_execution":{}}]}',
)
CONTENT_ANSWERS = (
    rb'{"candidates":[{"content":{"role":"model","parts":[{"text":"plan","thought":true},{"text":"Hi \ud83d\ude00"},{"functionCall":{"name":"w","args":{"_raw":"x"}},"thoughtSignature":"Q2xh"},{"functionCall":{"id":"a2","name":"w","args":{"c":1}}},{"inlineData":{"mimeType":"image/png","data":"iVBO"},"thoughtSignature":"aW1n"},{"a_part_of_tomorrow":{"x":1e3}}]},"finishReason":"STOP","index":0,"groundingMetadata":{}}],"usageMetadata":{"promptTokenCount":925,"cachedContentTokenCount":900,"toolUsePromptTokenCount":5,"candidatesTokenCount":12,"thoughtsTokenCount":28,"totalTokenCount":970},"modelVersion":"m","responseId":"r"}',
    rb'{"promptFeedback":{"blockReason":"SAFETY","safetyRatings":[]},"usageMetadata":{"promptTokenCount":5}}',
    rb'{"candidates":[{"finishReason":"MAX_TOKENS"}],"usage_metadata":{"prompt_token_count":5}}',
)
CONTENT_STREAMS = (
    b'data: {"candidates":[{"content":{"role":"model","parts":[{"text":"hm","thought":true}]},"index":0}],"usageMetadata":{"promptTokenCount":5}}\r\n\r\ndata: {"candidates":[{"content":{"parts":[{"text":"caf\xc3\xa9"}]}}]}\r\n\r\ndata: {"candidates":[{"content":{"parts":[{"text":" and"},{"functionCall":{"name":"w","args":{"c":1}},"thoughtSignature":"Q2xh"}]}},{"index":1,"content":{"parts":[{"text":"other"}]}}]}\n\ndata: {"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"ZW5k"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":9,"thoughtsTokenCount":1},"modelVersion":"m"}\n\n',
    b': ping\r\n\r\ndata: {"candidates":[{"content":{"parts":[{"executable_code":{"code":"1"}}]}}]}\n\ndata: {"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}\n\n',
    b'data: {"promptFeedback":{"blockReason":"OTHER"}}\n\n',
)
STEP_REQUESTS = (
    rb'{"model":"m","system_instruction":"S","tools":[{"type":"function","name":"w","description":"d","parameters":{"type":"object"}},{"type":"google_search"},{"type":"code_execution"}],"input":[{"type":"user_input","content":[{"type":"text","text":"caf\u00e9 \/"},{"type":"image","mime_type":"image/png","data":"iVBO","resolution":"low"}]},{"type":"thought","signature":"c2ln","summary":[{"type":"text","text":"plan"}]},{"type":"model_output","content":[{"type":"text","text":"Looking.","annotations":[]}]},{"type":"function_call","id":"a1","name":"w","arguments":{"c":1.0}},{"type":"thought","signature":"c2ln"},{"type":"function_call","id":"a2","name":"w","arguments":{}},{"type":"function_result","call_id":"a1","name":"w","result":"4"},{"type":"function_result","call_id":"a2","result":[{"type":"text","text":"no"},{"type":"image","mime_type":"image/png","data":"iVBO"}],"is_error":true},{"type":"user_input","content":"Be brief."}],"generation_config":{"max_output_tokens":9,"temperature":1.0},"store":false,"stream":true,"x_new":[1,{"a":null}]}',
    rb'{"input":[{"type":"user_input","content":[{"type":"text","text":"See"},{"type":"document","uri":"https://example.org/a.pdf?sig=1","mime_type":"application/pdf"},{"type":"video","uri":"https://example.org/v"},{"type":"audio","mime_type":"audio/wav","data":"AAAA"},{"type":"x_unknown","x":12345678901234567890}]},{"type":"code_execution_call","id":"e1","arguments":{"language":"python","code":"1"},"signature":"c2ln"},{"type":"code_execution_result","call_id":"e1","result":"1","is_error":false},{"type":"google_search_call","id":"g1","arguments":{"queries":["q"]}},{"type":"google_search_result","call_id":"g1","result":[{"url":"u"}]},{"type":"quantum","q":1e5},{"type":"function_call","id":"a1","name":"w","arguments":{"a_b":[1,null]}},{"type":"function_result","call_id":"a1","result":{"a":[1]}},{"type":"model_output","content":[{"type":"text","text":"yes"},{"type":"image","mime_type":"image/png","data":"iVBO"}]},{"type":"user_input","content":{"type":"text","text":"And?"}}],"model":"m","system_instruction":{"parts":[{"text":"S"}]}}',
    rb'{"model":"m","input":[{"type":"text","text":"One"},{"type":"image","mime_type":"image/png","data":"iVBO"},{"type":"text","text":"Two"}]}',
    rb'{"model":"m","input":{"type":"text","text":"alone","annotations":null}}',
    rb'{"model":"m","input":"caf\u00e9","system_instruction":null,"tools":null}',
    rb'{"model":"m","input":[{"type":"user_input","content":[{"type":"text","text":"old"}]},{"type":"foldline_fold","mark":"foldline:1:41:3:abcdefghijklmnopqrst:talk-1"},{"type":"model_output","content":[{"type":"text","text":"so"}]},{"type":"user_input","content":[{"type":"text","text":"on"}]}]}',
)
STEP_ANSWERS = (
    rb'{"id":"int_1","object":"interaction","model":"m","status":"requires_action","created":"2026-01-01T00:00:00Z","steps":[{"type":"user_input","content":[{"type":"text","text":"q"}]},{"type":"thought","signature":"c2ln","summary":[{"type":"text","text":"plan"}]},{"type":"model_output","content":[{"type":"text","text":"Hi \ud83d\ude00","annotations":[{"type":"url_citation","url":"u"}]},{"type":"image","mime_type":"image/png","data":"iVBO"}]},{"type":"code_execution_call","id":"e1","arguments":{"language":"python","code":"1"}},{"type":"code_execution_result","call_id":"e1","result":"1"},{"type":"a_step_of_tomorrow","x":1e3},{"type":"function_call","id":"a1","name":"w","arguments":{"_raw":"x"}},{"type":"function_call","id":"a2","name":"w","arguments":{"c":1}}],"usage":{"total_input_tokens":925,"total_cached_tokens":900,"total_tool_use_tokens":5,"total_output_tokens":12,"total_thought_tokens":28,"total_tokens":970}}',
    rb'{"id":"int_2","status":"incomplete","steps":[{"type":"model_output","content":[{"type":"text","text":"half"}]}],"usage":{"total_input_tokens":5}}',
    rb'{"id":"int_3","status":"failed","steps":[],"usage":null}',
)
STEP_STREAMS = (
    b'event: interaction.created\ndata: {"event_type":"interaction.created","interaction":{"id":"int_1","status":"in_progress","model":"m"}}\n\nevent: step.start\ndata: {"event_type":"step.start","index":0,"step":{"type":"thought"}}\n\ndata: {"event_type":"step.delta","index":0,"delta":{"type":"thought_summary","content":{"type":"text","text":"hm"}}}\n\ndata: {"event_type":"step.delta","index":0,"delta":{"type":"thought_signature","signature":"c2ln"}}\n\ndata: {"event_type":"step.stop","index":0}\n\ndata: {"event_type":"step.start","index":1,"step":{"type":"model_output"}}\n\ndata: {"event_type":"step.delta","index":1,"delta":{"type":"text","text":"caf\xc3\xa9"}}\n\ndata: {"event_type":"step.delta","index":1,"delta":{"type":"image","mime_type":"image/png","data":"iVBO"}}\n\ndata: {"event_type":"step.delta","index":1,"delta":{"type":"text","text":" and"}}\n\ndata: {"event_type":"step.stop","index":1}\n\ndata: {"event_type":"step.start","index":2,"step":{"type":"function_call","id":"a1","name":"w","arguments":{}}}\n\ndata: {"event_type":"step.delta","index":2,"delta":{"type":"arguments_delta","arguments":"{\\"c\\":"}}\n\ndata: {"event_type":"step.delta","index":2,"delta":{"type":"arguments_delta","arguments":"1}"}}\n\ndata: {"event_type":"step.stop","index":2}\n\ndata: {"event_type":"interaction.completed","interaction":{"id":"int_1","status":"requires_action","usage":{"total_input_tokens":5,"total_output_tokens":9}}}\n\nevent: done\ndata: [DONE]\n\n',
    b'data: {"event_type":"step.start","index":0,"step":{"type":"code_execution_call","id":"e1","arguments":{}}}\n\ndata: {"event_type":"step.delta","index":0,"delta":{"type":"code_execution_call","arguments":{"code":"1"},"signature":"c2ln"}}\n\ndata: {"event_type":"step.delta","index":3,"delta":{"type":"text_annotation","annotations":[{"type":"x"}]}}\n\ndata: {"event_type":"interaction.status_update","interaction_id":"int_1","status":"incomplete"}\n\ndata: {"event_type":"error","error":{"code":"503","message":"Overloaded"}}\n\n',
)
CORPORA: dict[str, tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]] = {
    "openai-chat": (CHAT_REQUESTS, CHAT_COMPLETIONS, CHAT_STREAMS),
    "anthropic": (MESSAGE_REQUESTS, MESSAGE_ANSWERS, MESSAGE_STREAMS),
    "openai-responses": (RESPONSE_REQUESTS, RESPONSE_ANSWERS, RESPONSE_STREAMS),
    "gemini": (CONTENT_REQUESTS, CONTENT_ANSWERS, CONTENT_STREAMS),
    "gemini-interactions": (STEP_REQUESTS, STEP_ANSWERS, STEP_STREAMS),
}
"""Requests, answers and streams of every dialect in the registry."""
WAYS = {"request": _request, "answer": _answer, "stream": _stream}


def _readers(names: Iterable[str]) -> list[tuple[str, Reader]]:
    """Every way in, of some dialects."""
    return [
        (f"{name} {way}", Reader(corpus, partial(read, get_dialect(name))))
        for name in names
        for corpus, (way, read) in zip(CORPORA[name], WAYS.items(), strict=True)
    ]


READERS = _readers(DIALECTS)
CORPUS = tuple(body for _, reader in READERS for body in reader.corpus)

VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[\[{]')
VALUES = (
    b"null", b"true", b"0", b"-1", b"5", b"1.5", b"1e999", b"-0.0", b"1" * 400, b"1e-400", b"NaN", b'""', b'" "',
    b'"x"', b'"role"', b'"content"', b'"tool"', b'"assistant"', b'"system"', b"[]", b"{}", b"[null]", b"[{}]", b'{"":0}',
    rb'"\ud800"', rb'"\udc00\ud800"', rb'"\u0000"', b'"\xed\xa0\x80"', b'"\xf0\x9f"', b'"[cron] x"', b"9223372036854775808",
)  # fmt: skip
BYTES = (b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\r", b"\n", b"\n\n", b"data: ", b"\\u", rb"\ud83d", b"\xe2\x80\xa8", b"1e400")  # fmt: skip


def broken(body: bytes, random: Random) -> bytes:
    """A body, broken in one way."""
    at = random.randrange(len(body) + 1)
    end = min(len(body), at + random.choice((1, 2, 8, 64, 512)))
    match random.randrange(20):
        case 0:
            flipped = bytes([body[at] ^ (1 << random.randrange(8))]) if at < len(body) else b""
            return body[:at] + flipped + body[at + 1 :]
        case 1:
            return body[:at] + body[end:]
        case 2:
            return body[:at] + random.choice(BYTES) + body[at:]
        case 3:
            times = random.choice((2, 2, 3, 10, 1_000)) if len(body) < 100_000 else 2
            return body[:at] + body[at:end] * times + body[end:]
        case 4:
            other = random.choice(CORPUS)
            return body[:at] + other[random.randrange(len(other)) :]
        case 5:
            return body[:at]
        case 6:
            depth = random.choice((10, 150, 199, 900, 5_000, 100_000))
            opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
            return _put(body, opening * depth + b"1" + closing * depth, random)
        case _:
            return _put(body, random.choice(VALUES), random)


def _put(body: bytes, value: bytes, random: Random) -> bytes:
    """Some value in place of another."""
    if len(body) > 100_000:
        return body
    found = [one for one in VALUE.finditer(body) if body[one.end() : one.end() + 1] != b":"]
    if not found:
        return body + value
    one = random.choice(found)
    end = one.end()
    if one[0] in b"[{":  # as a whole, if a plain end is near
        end = body.find(b"]" if one[0] == b"[" else b"}", end) + 1 or end
    return body[: one.start()] + value + body[end:]


def many(seeds: range, *, only: str = "") -> tuple[Counter[str], list[str], tuple[float, int]]:
    """Some bodies: how they were taken, what failed, the longest time and its seed."""
    seen: Counter[str] = Counter()
    failed: list[str] = []
    longest = (0.0, 0)
    readers = _readers([only]) if only else READERS
    for seed in seeds:
        random = Random(seed)
        name, reader = readers[seed % len(readers)]
        body = random.choice(reader.corpus)
        for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
            body = broken(body, random)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        fault = ""
        try:
            reader.read(body, random)
            seen[f"{name} read"] += 1
        except WireError as error:
            seen[f"{name} refused"] += 1
            fault = "" if error.path.startswith("$") else f"a WireError of path {error.path!r}"
        except Exception as error:  # noqa: BLE001 - every other exception is a finding
            fault = f"{type(error).__name__}: {str(error)[:200]}"
        took = time.process_time() - start
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1_024
        longest = max(longest, (took, seed))
        if took > SECONDS:
            fault = f"{took:.1f} s"
        elif grown > MEGABYTES:
            fault = f"{grown:.0f} MB"
        if fault:
            shown = body if len(body) < 2_000 else body[:1_000] + b" ... " + body[-1_000:]
            failed.append(f"seed {seed}, {name}, {len(body):,} bytes: {fault}\n    {shown!r}")
    return seen, failed, longest


def main() -> int:
    """Print the figures; 1 where a reader failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bodies", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true", help="20,000 bodies")
    parser.add_argument("--dialect", choices=[*DIALECTS], default="")
    args = parser.parse_args()
    end = args.seed + (20_000 if args.short else args.bodies)
    start, total, failed, longest = time.perf_counter(), Counter[str](), list[str](), (0.0, 0)
    chunks = [range(at, min(at + CHUNK, end)) for at in range(args.seed, end, CHUNK)]
    with ProcessPoolExecutor(2) as pool:
        for seen, found, took in pool.map(partial(many, only=args.dialect), chunks):
            total += seen
            failed += found
            longest = max(longest, took)
    for name, count in sorted(total.items()):
        print(f"{name:32} {count:10,}")
    print(
        f"{end - args.seed:,} bodies: {len(failed)} failures; the longest took "
        f"{1_000 * longest[0]:.0f} ms (seed {longest[1]}); {time.perf_counter() - start:.0f} s"
    )
    for line in failed[:20]:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
