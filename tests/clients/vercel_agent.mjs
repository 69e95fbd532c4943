// An agent of our own over Vercel's AI SDK: `node vercel_agent.mjs chat|openai|anthropic --talk`.
// A turn is a line of JSON on standard input, and its result one on standard output, as Claude Code's stream-json.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { AGENT_BASE, AGENT_KEY, AGENT_MODULES } = process.env;
const { resolve } = createRequire(AGENT_MODULES);
const load = (name) => import(pathToFileURL(resolve(name)).href);
const { jsonSchema, stepCountIs, streamText, tool } = await load("ai");
const options = { baseURL: `${AGENT_BASE}/v1`, apiKey: AGENT_KEY };
const makeModel = {
  chat: async () => (await load("@ai-sdk/openai")).createOpenAI(options).chat("gpt-5"),
  openai: async () => (await load("@ai-sdk/openai")).createOpenAI(options)("gpt-5"), // Responses
  anthropic: async () => (await load("@ai-sdk/anthropic")).createAnthropic(options)("claude-sonnet-4-5"),
};
const model = await makeModel[process.argv[2]]();
const parameters = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
const bash = tool({
  description: "Run a command.",
  inputSchema: jsonSchema(parameters),
  execute: ({ command }) => execFileSync("bash", ["-c", command], { encoding: "utf8" }),
});

const messages = [];
for await (const line of createInterface({ input: process.stdin })) {
  messages.push(JSON.parse(line).message);
  let failure;
  const system = "You are a coding agent. Use bash.";
  const stream = streamText({
    model, system, messages, tools: { bash }, stopWhen: stepCountIs(40), maxRetries: 0,
    onError: ({ error }) => { failure = error; },
  });
  let result = "";
  try {
    await stream.consumeStream();
    messages.push(...(await stream.response).messages);
    result = await stream.text;
  } catch (error) {
    failure = error;
  }
  console.log(JSON.stringify({ type: "result", is_error: failure !== undefined, result: failure ? String(failure) : result }));
}
