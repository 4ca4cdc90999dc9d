"""Validates events against JSON Schemas. The arguments are the files of the schemas. Each line of the input is a JSON
list of the index of a schema and the text of an event; each line of the output is true or false."""
import json
import sys

from jsonschema import Draft7Validator

schemas = [json.load(open(path, encoding="utf-8")) for path in sys.argv[1:]]
for schema in schemas:
    assert schema["$schema"] == Draft7Validator.META_SCHEMA["$schema"], schema["$schema"]
    Draft7Validator.check_schema(schema)
validators = [Draft7Validator(schema) for schema in schemas]
for line in sys.stdin:
    index, event = json.loads(line)
    print(json.dumps(validators[index].is_valid(json.loads(event))))
