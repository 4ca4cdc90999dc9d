// Parses an AsyncAPI document with AsyncAPI's parser. Prints the errors to standard error, or the document with all
// references resolved, as JSON, to standard output.
import { AvroSchemaParser } from "@asyncapi/avro-schema-parser";
import { Parser, fromFile } from "@asyncapi/parser";

const parser = new Parser();
parser.registerSchemaParser(AvroSchemaParser());
const { document, diagnostics } = await fromFile(parser, process.argv[2]).parse();
// Severity 0 is an error, 1 a warning; higher ones are hints.
const faults = diagnostics.filter(({ severity }) => severity <= 1);
for (const { path, message } of faults) console.error(`${path.join(".")}: ${message}`);
if (faults.length || !document) process.exit(1);
console.log(JSON.stringify(document.json()));
