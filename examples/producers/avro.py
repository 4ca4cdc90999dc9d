"""A click and the activation that it caused, in Avro, by Confluent's serializer.

  $ pip install 'confluent-kafka[avro,schemaregistry]==2.16.0'
  $ python3 avro.py            # the schema's id before the value
  $ python3 avro.py --header   # the schema's GUID in the header __value_schema_id
Set in the environment: KAFKA, REGISTRY, CLICKS, ACTIVATIONS, where they are others than these.
"""
import os
import sys
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")
REGISTRY = os.environ.get("REGISTRY", "http://127.0.0.1:8085")
CLICKS = os.environ.get("CLICKS", "adtrail.clicks")
ACTIVATIONS = os.environ.get("ACTIVATIONS", "adtrail.activations")
SCHEMAS = Path(__file__).resolve().parents[2] / "schemas" / "avro"

framing = {"schema.id.serializer": header_schema_id_serializer} if "--header" in sys.argv else {}
registry = SchemaRegistryClient({"url": REGISTRY})
producer = Producer({"bootstrap.servers": KAFKA})
failures = []


def send(topic, schema, event):
    serialize = AvroSerializer(registry, (SCHEMAS / schema).read_text(), conf=framing)
    headers = []
    value = serialize(event, SerializationContext(topic, MessageField.VALUE, headers))
    producer.produce(topic, key=event["app"], value=value, headers=headers, on_delivery=delivered)


def delivered(error, _message):
    if error is not None:
        failures.append(str(error))


now = int(time.time() * 1000)
ids = {"oaid": "4b4c7a14-1d2e-4a6c-9d3b-0f5a6c7e8d90"}
send(CLICKS, "click.avsc",
     {"app": "app-x", "click_id": "py-c-1", "spreadid": 7, "time": now - 60_000, "ids": ids})
send(ACTIVATIONS, "activation.avsc",
     {"app": "app-x", "event_id": "py-a-1", "time": now, "ids": ids})
if producer.flush(60) or failures:
    sys.exit(f"not delivered: {failures or 'no answer from Kafka'}")
