// A click and the activation that it caused, in Avro, by Confluent's serializer.
//   $ npm ci
//   $ node avro.mjs            # the schema's id before the value
//   $ node avro.mjs --header   # the schema's GUID in the header __value_schema_id
// Set in the environment: KAFKA, REGISTRY, CLICKS, ACTIVATIONS, where they are others than these.
import { readFile } from "node:fs/promises";
import { Kafka, Partitioners } from "kafkajs";
import sr from "@confluentinc/schemaregistry";

const {
  KAFKA = "127.0.0.1:9092",
  REGISTRY = "http://127.0.0.1:8085",
  CLICKS = "adtrail.clicks",
  ACTIVATIONS = "adtrail.activations",
} = process.env;
const schemas = new URL("../../schemas/avro/", import.meta.url);

const framing = process.argv.includes("--header")
  ? { schemaIdSerializer: sr.HeaderSchemaIdSerializer }
  : {};
const registry = sr.SchemaRegistryClient.newClient({ baseURLs: [REGISTRY] });
// As the Java client chooses partitions; else kafkajs warns that older ones of it chose others.
const createPartitioner = Partitioners.DefaultPartitioner;
const producer = new Kafka({ brokers: [KAFKA] }).producer({ createPartitioner });

async function send(topic, file, event) {
  const schema = await readFile(new URL(file, schemas), "utf8");
  await registry.register(`${topic}-value`, { schemaType: "AVRO", schema });
  const serializer = new sr.AvroSerializer(registry, sr.SerdeType.VALUE, {
    useLatestVersion: true,
    ...framing,
  });
  const headers = {};
  const value = await serializer.serialize(topic, event, headers);
  await producer.send({ topic, messages: [{ key: event.app, value, headers }] });
}

const now = Date.now();
const ids = { oaid: "c2d8f0aa-73f1-4f0e-8a55-6f2b9d1e7c34" };
await producer.connect();
await send(CLICKS, "click.avsc", {
  app: "app-x", click_id: "js-c-1", spreadid: 7, time: now - 60_000, ids,
});
await send(ACTIVATIONS, "activation.avsc", {
  app: "app-x", event_id: "js-a-1", time: now, ids,
});
await producer.disconnect();
