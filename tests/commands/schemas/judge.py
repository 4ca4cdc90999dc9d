"""Judges events by JSON Schemas: the arguments are the schemas' files; each line of the input is a
JSON list of a schema's place among them and the event's text, each of the output true or false."""
import json
import sys

from jsonschema import Draft7Validator

schemas = [json.load(open(path, encoding="utf-8")) for path in sys.argv[1:]]
for schema in schemas:
    assert schema["$schema"] == Draft7Validator.META_SCHEMA["$schema"], schema["$schema"]
    Draft7Validator.check_schema(schema)
judges = [Draft7Validator(schema) for schema in schemas]
for line in sys.stdin:
    place, event = json.loads(line)
    print(json.dumps(judges[place].is_valid(json.loads(event))))
