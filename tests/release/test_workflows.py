"""The forge's workflows: pinned, with least rights, and without a secret; held by a check that can fail."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))


def faults(text: str) -> list[str]:
    """What is wrong with a workflow."""
    body = yaml.safe_load(text)
    found = [
        f"not pinned by a sha with its version beside it: {line}"
        for line in re.findall(r"uses:\s*(.+)", text)
        if not re.fullmatch(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line.strip())
    ]
    if body.get("permissions") != {}:
        found.append("the workflow's own permissions are not empty")
    for name, job in body["jobs"].items():
        rights = job.get("permissions")
        if rights is None:
            found.append(f"{name}: no permissions are set")
        elif "write" in rights.values() and (name, rights) != ("publish", {"id-token": "write"}):
            found.append(f"{name}: may write: {rights}")
        elif "id-token" in rights and not job.get("environment"):
            found.append(f"{name}: publishes outside of an environment")
        if "timeout-minutes" not in job:
            found.append(f"{name}: may run for ever")
        for step in job["steps"]:
            if "checkout" in step.get("uses", "") and step.get("with", {}).get("persist-credentials") is not False:  # fmt: skip
                found.append(f"{name}: leaves its credentials in the checkout")
            if re.search(r"\$\{\{", step.get("run", "")):
                found.append(f"{name}: an expression is pasted into a shell: {step['run']}")
    if re.search(r"secrets|\bpassword:|_TOKEN\b|pull_request_target", text):
        found.append("a secret, a token, or a foreign change with our rights")
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_pinned_and_has_few_rights(path):
    assert faults(path.read_text()) == []


def test_there_are_two():
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (r"checkout@\w{40} # v5.0.0", "checkout@v5", "not pinned"),
        (r"checkout@(\w{39})\w # ", r"checkout@\1 # ", "not pinned"),
        (r" # v1.13.0", "", "not pinned"),
        (r"^permissions: \{\}", "permissions: write-all", "own permissions"),
        (r"    permissions:\n      contents: read\n", "", "no permissions are set"),
        (r"contents: read", "contents: write", "may write"),
        (r"      contents: read", "      id-token: write", "may write"),
        (r"    environment: pypi.*\n", "", "outside of an environment"),
        (r"attestations: true", "password: ${{ secrets.PYPI }}", "a secret"),
        (r"just release --strict", "just release ${{ github.ref }}", "pasted into a shell"),
        (r"persist-credentials: false", "fetch-depth: 0", "credentials"),
        (r"    timeout-minutes: 15\n", "", "for ever"),
    ],
)
def test_it_notices(old, new, told):
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    worse = re.sub(old, new, text, count=1, flags=re.MULTILINE)
    assert worse != text
    assert any(told in fault for fault in faults(worse))


def test_what_is_published_is_what_was_checked():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    steps = jobs["publish"]["steps"]
    assert jobs["publish"]["needs"] == "check"
    assert not any("run" in step or "checkout" in step["uses"] for step in steps), (
        "nothing is built"
    )
    assert any(step.get("run") == "just release --strict" for step in jobs["check"]["steps"])


def test_ci_is_what_a_person_runs():
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["run"]
    assert job["steps"][-1]["run"] == "bash .ci/run"
    assert "postgres" in job["services"]
