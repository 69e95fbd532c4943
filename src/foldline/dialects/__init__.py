"""Converts provider JSON to events and requests, and back. Pure; no dialect knows another.

answers          Assembles streamed answers, and joins several to one
anthropic        The Anthropic messages dialect
base             The registry of dialects, and how one is chosen
client_messages  Shared by the dialects: digests and patches of clients' messages
gemini           The Gemini `generateContent` dialect
gemini_interactions  Google's Interactions dialect
google           What all dialects of Google share
json_slices      Reads foreign JSON safely; locates and splices values in its bytes
model_names      Names of models as people write them, and as servers know them
openai           What all dialects of OpenAI share
openai_chat      The OpenAI chat completions dialect
openai_responses  The OpenAI Responses dialect
provider_errors  Classifies providers' errors
sse              Parses server-sent events
tools            Tool names and media, as dialects accept them
usage_reader     What a provider counted, read from an answer's bytes as they pass
"""
