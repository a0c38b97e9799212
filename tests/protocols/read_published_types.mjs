// Writes down the types of all messages that a request may hold, as the providers' libraries on npm publish them.
//
//     npm install openai@latest @google/genai@latest @anthropic-ai/sdk@latest typescript@5      (in a folder of their own)
//     node tests/protocols/read_published_types.mjs FOLDER > tests/protocols/published_types.json
//
// A type is "text", "number", "flag", "any" or "null", or an object with one field: `is` (this value alone), `or` (one of
// these types), `each` (a list), `map` (any names with such values), `object` (the name of one of `objects`).

import { createRequire } from "node:module";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";

const folder = path.resolve(process.argv[2]);
const ts = createRequire(path.join(folder, "package.json"))("typescript");
const LIBRARIES = ["@anthropic-ai/sdk", "openai", "@google/genai"];
const ROOTS = `
import type { BetaMessageParam, MessageCreateParamsBase } from "@anthropic-ai/sdk/resources/beta/messages/messages";
import type { ResponseInputItem, ResponseCreateParamsBase } from "openai/resources/responses/responses";
import type { ChatCompletionMessageParam, ChatCompletionCreateParamsBase } from "openai/resources/chat/completions/completions";
import type { Content } from "@google/genai";
export type anthropic = BetaMessageParam;
export type openai_responses = ResponseInputItem;
export type openai_chat = ChatCompletionMessageParam;
export type gemini = Content;
export type body_anthropic = MessageCreateParamsBase;
export type body_openai_responses = ResponseCreateParamsBase;
export type body_openai_chat = ChatCompletionCreateParamsBase;
`;

const file = path.join(folder, "roots_of_requests.ts");
writeFileSync(file, ROOTS);
const program = ts.createProgram([file], {
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  module: ts.ModuleKind.ESNext,
  target: ts.ScriptTarget.ES2022,
  strict: true,
  skipLibCheck: true,
  types: [],
});
rmSync(file);
const checker = program.getTypeChecker();
const source = program.getSourceFile(file);
for (const error of program.getSemanticDiagnostics(source)) {
  throw new Error(ts.flattenDiagnosticMessageText(error.messageText, "\n"));
}

let objects = {};
const nameByType = new Map();

function nameOf(type) {
  if (nameByType.has(type)) return nameByType.get(type);
  const symbol = type.aliasSymbol ?? type.symbol;
  let plainName = "object";
  if (symbol && symbol.name !== "__type") {
    plainName = checker.getFullyQualifiedName(symbol).replace(/^".*?"\./, "");
  }
  const taken = new Set(nameByType.values());
  let name = plainName;
  for (let number = 2; taken.has(name); number++) name = `${plainName} ${number}`;
  nameByType.set(type, name);
  return name;
}

function describeUnion(type) {
  const described = new Map();
  for (const member of type.types) {
    const alternative = describe(member);
    if (alternative !== undefined) described.set(JSON.stringify(alternative), alternative);
  }
  const alternatives = [...described.values()];
  return alternatives.length === 1 ? alternatives[0] : { or: alternatives };
}

function describeObject(type) {
  if (type.getCallSignatures().length) return undefined;
  const properties = checker.getPropertiesOfType(type);
  if (!properties.length) {
    const [index] = checker.getIndexInfosOfType(type);
    return index ? { map: describe(index.type) } : "any";
  }
  const name = nameOf(type);
  if (!(name in objects)) {
    const fields = (objects[name] = {});
    for (const property of properties) {
      const described = describe(checker.getTypeOfSymbol(property));
      const isOptional = property.flags & ts.SymbolFlags.Optional;
      if (described !== undefined) fields[isOptional ? `${property.name}?` : property.name] = described;
    }
  }
  return { object: name };
}

function describe(type) {
  const flags = ts.TypeFlags;
  if (type.flags & (flags.StringLiteral | flags.NumberLiteral)) return { is: type.value };
  if (type.flags & flags.BooleanLiteral) return "flag";
  if (type.flags & (flags.String | flags.TemplateLiteral)) return "text";
  if (type.flags & flags.Number) return "number";
  if (type.flags & flags.Boolean) return "flag";
  if (type.flags & flags.Null) return "null";
  if (type.flags & (flags.Undefined | flags.Void | flags.Never)) return undefined;
  if (type.isUnion()) return describeUnion(type);
  if (checker.isArrayType(type) || checker.isTupleType(type)) {
    return { each: describe(checker.getTypeArguments(type)[0]) };
  }
  if (type.isIntersection() || type.flags & flags.Object) return describeObject(type);
  return "any";
}

const tables = { versions: {}, bodies: {} };
for (const name of LIBRARIES) {
  const about = readFileSync(path.join(folder, "node_modules", name, "package.json"));
  tables.versions[name] = JSON.parse(about).version;
}
for (const symbol of checker.getExportsOfModule(checker.getSymbolAtLocation(source))) {
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  const protocol = symbol.name.replace("body_", "").replace("_", "-");
  if (symbol.name.startsWith("body_")) {
    tables.bodies[protocol] = checker.getPropertiesOfType(type).map((property) => property.name).sort();
    continue;
  }
  objects = {};
  nameByType.clear();
  const root = describe(type);
  tables[protocol] = { root, objects };
}

// A line for each object, so that a difference of two versions can be read.
const lines = JSON.stringify(tables).replaceAll(/("[^"]+":\{"(?!is|or|each|map|object))/g, "\n$1");
process.stdout.write(`${lines.trim()}\n`);
