"""The papers of a release, out of what is installed: a bill of materials, and the licences.

    ENVIRONMENT/bin/python scripts/release_papers.py sbom foldline all     # CycloneDX 1.6 as JSON
    ENVIRONMENT/bin/python scripts/release_papers.py licences foldline     # one line a package

Runs in the environment that it tells of, so it needs nothing but Python. Knows metadata. Refuses to
guess: a licence that it does not know is told as such, and the release fails on it.
"""

import hashlib
import json
import os
import re
import sys
import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from typing import Any

Json = dict[str, Any]
# What people write for a licence that has a name in SPDX's list.
_MEANT = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "gnu lesser general public license v3": "LGPL-3.0-only",
    "gnu lesser general public license v3 (lgplv3)": "LGPL-3.0-only",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "lgplv3": "LGPL-3.0-only",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "the mit license (mit)": "MIT",
}
FREE = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0",
    "PSF-2.0", "Unlicense", "Zlib",
}  # fmt: skip
# Metadata that does not say: the file was read, and is known by its sha256. A new one must be read.
READ = {
    "apsw": ("Zlib", "b85a7dc6463f286c14a638070a14f4888564ac7245dc99a17950ec24cf1a7b9d"),
    "partd": ("BSD-3-Clause", "1edc098db759632c80e4c1d0503ad17f131f6b974e3a77efc26e8c8e188044a5"),
    "resvg-py": ("MIT", "753a9e3c09cece8584467a0f605e065005c2a5e5c6da4f0cbb0493d2d52b96f6"),
}
# Used as they are, beside us and never part of us; only in the extras that name them.
BESIDE = {
    "psycopg": "LGPL-3.0-only",
    "psycopg-binary": "LGPL-3.0-only",
    "psycopg-pool": "LGPL-3.0-only",
    "python-telegram-bot": "LGPL-3.0-only",
}


def plain(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, Distribution]:
    """Every package here, by name."""
    return {plain(one.metadata["Name"]): one for one in distributions()}


def licence(of: Distribution) -> str:
    """A package's licence as an SPDX expression; nothing where its metadata does not say."""
    said = of.metadata
    if stated := said.get("License-Expression"):
        return stated.strip()
    classified = [
        one.rpartition(" :: ")[2]
        for one in said.get_all("Classifier", [])
        if one.startswith("License :: ") and not one.endswith(":: OSI Approved")
    ]
    written = (said.get("License") or "").strip()
    for words in (written, *classified):
        if meant := spdx(words):
            return meant
    expression, digest = READ.get(plain(said["Name"]), ("", ""))
    return expression if digest in _files(of) else ""


def _files(of: Distribution) -> set[str]:
    """The digests of a package's licence files."""
    own = [one for one in of.files or () if ".dist-info/" in str(one) and "LICENSE" in one.name]
    return {hashlib.sha256(one.read_binary()).hexdigest() for one in own}


def spdx(words: str) -> str:
    """The expression that some words mean; nothing where they are not known."""
    words = " ".join(words.split())
    known = {one.lower(): one for one in FREE}
    return known.get(words.lower()) or _MEANT.get(words.lower(), "")


def allowed(name: str, expression: str) -> bool:
    """Whether a package may be had under its licence: one of those that a choice gives."""
    choices = re.sub(r"[()]", " ", expression).split(" OR ")
    every = [re.split(r"\s+AND\s+", choice.strip()) for choice in choices]
    known = FREE | {BESIDE.get(name, "")} - {""}
    meant = [{one.partition(" WITH ")[0].strip() for one in choice} for choice in every]
    return any(choice <= known for choice in meant)


def needed(name: str, extra: str, among: dict[str, Distribution]) -> list[str]:
    """What a package's metadata asks for, of what is installed."""
    found: set[str] = set()
    for line in among[name].requires or ():
        asked, _, marker = line.partition(";")
        conditional = "extra ==" in marker
        if conditional and not re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", marker):
            continue
        found.add(plain(re.split(r"[\s\[<>=!~(@]", asked.strip(), maxsplit=1)[0]))
    return sorted(found & among.keys())


def sbom(root: str, extra: str) -> Json:
    """What is installed, as CycloneDX 1.6; the same bytes for the same packages and commit."""
    found = installed()
    refs = {name: f"pkg:pypi/{name}@{one.version}" for name, one in found.items()}
    components = [_component(name, one, refs[name]) for name, one in sorted(found.items())]
    own = next(one for one in components if one["name"] == root)
    others = [one for one in components if one is not own]
    when = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), tz=UTC)
    body: Json = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": own},
        "components": others,
        "dependencies": [
            {
                "ref": refs[name],
                "dependsOn": [
                    refs[one] for one in needed(name, extra if name == root else "", found)
                ],
            }
            for name in sorted(found)
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {**body, "serialNumber": f"urn:uuid:{serial}"}


def _component(name: str, of: Distribution, ref: str) -> Json:
    expression = licence(of)
    body: Json = {
        "type": "library",
        "bom-ref": ref,
        "name": name,
        "version": of.version,
        "purl": ref,
    }
    return {**body, "licenses": [{"expression": expression}]} if expression else body


def sbom_faults(body: Json) -> list[str]:
    """What the schema asks for and is not there, and references that lead nowhere."""
    found = [f"it has no {key}" for key in ("bomFormat", "specVersion") if key not in body]
    if not re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", body.get("serialNumber", "")):
        found.append("its serialNumber is no urn:uuid")
    every = [body.get("metadata", {}).get("component", {}), *body.get("components", [])]
    for one in every:
        lacks = [key for key in ("type", "name", "version", "purl", "bom-ref") if not one.get(key)]
        found += [f"{one.get('name') or 'a component'} has no {key}" for key in lacks]
        if not one.get("licenses"):
            found.append(f"{one.get('name')} has no licence that is known")
    refs = [one.get("bom-ref") for one in every]
    found += [f"{ref} is there twice" for ref in {*refs} if refs.count(ref) > 1]
    for one in body.get("dependencies", []):
        lost = {one["ref"], *one["dependsOn"]} - {*refs}
        found += [f"{ref} is needed and not listed" for ref in lost]
    return found


def main() -> None:
    """Print one paper."""
    what, root, *more = sys.argv[1:]
    if what == "sbom":
        print(json.dumps(sbom(root, more[0] if more else ""), indent=1, sort_keys=True))
        return
    if what != "licences" or root not in installed():
        sys.exit(
            "write: sbom NAME EXTRA, or licences NAME, with the name of a package that is here"
        )
    rows = [(name, one.version, licence(one)) for name, one in sorted(installed().items())]
    print(json.dumps([(*row, allowed(row[0], row[2])) for row in rows]))


if __name__ == "__main__":
    main()
