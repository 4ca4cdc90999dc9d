"""Reads records of Avro by another implementation's rules: each line of the input is a JSON object
with the writer's schema, the reader's and the record in base 64, each of the output what the reader
makes of it."""
import base64
import io
import json
import sys

import fastavro


def plain(schema):
    """Without logical types, which would make times of numbers."""
    if isinstance(schema, list):
        return [plain(branch) for branch in schema]
    if isinstance(schema, dict):
        return {key: plain(value) for key, value in schema.items() if key != "logicalType"}
    return schema


for line in sys.stdin:
    case = json.loads(line)
    record = io.BytesIO(base64.b64decode(case["record"]))
    event = fastavro.schemaless_reader(record, plain(case["writer"]), plain(case["reader"]))
    assert record.read() == b"", "bytes follow"
    print(json.dumps(event))
