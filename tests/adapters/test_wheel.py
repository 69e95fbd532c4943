"""The built wheel with the extra of each framework, in an empty environment: it plans, and brings nothing else.

CI has time for one of the five; `just test-all` tries them all.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IN_CI = "pydantic-ai"
ALONE = """
import json, sys
before = {*sys.modules}
import foldline
print(json.dumps(sorted({*sys.modules} - before)))
"""
LANGCHAIN = """
from foldline.adapters.langchain import FoldlineMiddleware
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self

async def ask():
    middleware = FoldlineMiddleware(session="ada")
    agent = create_agent(Model(messages=iter([AIMessage("Yes.")])), [], middleware=[middleware])
    await agent.ainvoke({"messages": [{"role": "user", "content": "Is it fine?"}]})
    return middleware.follower.open_session("ada").history.turns()
"""
PYDANTIC_AI = """
from foldline.adapters.pydantic_ai import FoldlineCapability
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

async def ask():
    capability = FoldlineCapability()
    agent = Agent(TestModel(call_tools=[]), capabilities=[capability])
    await agent.run("Is it fine?", conversation_id="ada")
    return await (await capability.follower.open_session("ada")).history.turns()
"""
OPENAI_AGENTS = """
from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from foldline.adapters.openai_agents import FoldlineHooks
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)

class Answers(Model):
    async def get_response(self, *given, **options):
        text = ResponseOutputText(annotations=[], text="Yes.", type="output_text")
        said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *given, **options):
        raise NotImplementedError

async def ask():
    hooks = FoldlineHooks(session="ada")
    await Runner.run(Agent("a", model=Answers()), "Is it fine?", hooks=hooks, run_config=hooks.run_config)
    return await (await hooks.follower.open_session("ada")).history.turns()
"""
ADK = """
from foldline.adapters.adk import FoldlinePlugin
from google.adk.agents import Agent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

class Model(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        yield LlmResponse(content=types.ModelContent("Yes."))

async def ask():
    plugin = FoldlinePlugin()
    app = App(name="a", root_agent=Agent(name="a", model=Model(model="m")), plugins=[plugin])
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
    words = types.UserContent("Is it fine?")
    async for _ in runner.run_async(user_id="u", session_id="ada", new_message=words):
        pass
    return await (await plugin.follower.open_session("ada/a")).history.turns()
"""
LITELLM = """
import os
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would ask for a newer one
import litellm
from foldline.adapters.litellm import FoldlineLogger

async def ask():
    logger = FoldlineLogger()
    litellm.callbacks = [logger]
    asked = [{"role": "user", "content": "Is it fine?"}]
    await litellm.acompletion(model="gpt-5", messages=asked, mock_response="Yes.", metadata={"session_id": "ada"})
    return await (await logger.follower.open_session("ada")).history.turns()
"""
PROGRAMS = {
    "langchain": LANGCHAIN,
    "pydantic-ai": PYDANTIC_AI,
    "openai-agents": OPENAI_AGENTS,
    "adk": ADK,
    "litellm": LITELLM,
}
"""How each framework's own runner asks once, of a model of the framework's or of ours; no SDK is there."""
ASK = """
import asyncio
print([turn.words for turn in asyncio.run(ask())])
"""


def run(*line):
    """Run a program in no folder of ours, and return what it prints."""
    done = subprocess.run(
        [*map(str, line)], cwd="/", capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make_environment(folder, what):
    """Make an environment with something installed; its Python."""
    run("uv", "venv", "--quiet", "--python", sys.executable, folder)
    run("uv", "pip", "install", "--quiet", "--python", folder / "bin" / "python", *what)
    return folder / "bin" / "python"


def list_distributions(python):
    listed = json.loads(run("uv", "pip", "list", "--quiet", "--python", python, "--format", "json"))
    return {one["name"] for one in listed}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run("uv", "build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """The wheel without any extra; its Python."""
    return make_environment(tmp_path_factory.mktemp("bare") / "env", [wheel])


@pytest.mark.real
@pytest.mark.parametrize(
    "extra", [pytest.param(one, marks=[] if one == IN_CI else pytest.mark.long) for one in PROGRAMS]
)
def test_an_extra_brings_its_framework_and_works(extra, wheel, bare, tmp_path):
    python = make_environment(tmp_path / "with", [f"{wheel}[{extra}]"])
    assert run(python, "-W", "ignore", "-c", PROGRAMS[extra] + ASK) == "['Is it fine?']\n"
    needs = PROJECT["optional-dependencies"][extra]
    framework = make_environment(tmp_path / "alone", needs)
    assert list_distributions(python) == list_distributions(bare) | list_distributions(framework)
    alone = json.loads(run(python, "-c", ALONE))
    assert alone == json.loads(run(bare, "-c", ALONE))
    assert not [name for name in alone if name.startswith("foldline.adapters")]


@pytest.mark.real
def test_without_an_extra_its_name_is_told(bare):
    for extra in PROGRAMS:
        line = [bare, "-c", f"import foldline.adapters.{extra.replace('-', '_')}"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert f"pip install 'foldline[{extra}]'" in done.stderr, done.stderr
