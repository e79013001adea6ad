#!/usr/bin/env python3
"""Compares the JSON Schemas with the samples in Manifests/: every valid sample must be accepted, and every
invalid one refused, unless expected.json says that a schema cannot express the rule. Arguments are files with JSON output of commands, which
are compared with its schema. The description of the control protocol is compared with the schema of OpenAPI.

Needs packages: pip install jsonschema openapi-spec-validator
"""

import json
import pathlib
import sys

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "Manifests"
CONTROL = ROOT / "docs/reference/control.openapi.json"


def validators():
    """Returns a validator for each kind of document; checks the schemas themselves first."""
    found = {}
    for kind in ("manifest", "registration", "settings"):
        schema = json.loads((FOLDER / f"{kind}.schema.json").read_text("utf-8"))
        Draft202012Validator.check_schema(schema)
        found[kind] = Draft202012Validator(schema)
    return found


def kind_of(name):
    return next((kind for kind in ("registration", "settings") if name.startswith(f"{kind}-")), "manifest")


def is_accepted(validator, path):
    """Returns whether a file is JSON and matches the schema."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError:
        return False
    return validator.is_valid(document)


def main():
    schemas = validators()
    expected = json.loads((FOLDER / "invalid" / "expected.json").read_text("utf-8"))
    outcomes = []
    for path in sorted((FOLDER / "samples").glob("*.json")):
        outcomes.append((path.name, is_accepted(schemas[kind_of(path.name)], path)))
    for path in sorted((FOLDER / "invalid").glob("*.json")):
        if path.name == "expected.json":
            continue
        is_caught = not is_accepted(schemas[kind_of(path.name)], path)
        entry = expected.get(path.name)
        outcomes.append((path.name, entry is not None and is_caught == entry["schema"]))
    outputs = json.loads((FOLDER / "output.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(outputs)
    documents = Draft202012Validator(outputs)
    for path in map(pathlib.Path, sys.argv[1:]):
        # An argument is a file with the output of a command with --json.
        outcomes.append((path.name, is_accepted(documents, path)))
    control = json.loads(CONTROL.read_text("utf-8"))
    faults = list(OpenAPIV31SpecValidator(control).iter_errors())
    for fault in faults:
        print(f"{CONTROL.name}: {fault.message}")
    outcomes.append((CONTROL.name, not faults))
    failed = [name for name, is_good in outcomes if not is_good]
    for name in failed:
        print(f"failed: {name}")
    print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
