// An editor as the official TypeScript SDK makes one. It uses every method that our agent has, and prints what was sent and received.
// node typescript_client.mjs FOLDER_OF_THE_SDK PROJECT COMMAND...
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";

const [sdk, folder, command, ...words] = process.argv.slice(2);
const acp = await import(`${sdk}/dist/v1/unstable/acp.js`);
const { agent: ask, client: answer } = acp.methods;
const seen = { sent: [], asked: [], updates: [], errors: [] };
const updates = [];
let silent = false;
const note = (list, name) => list.includes(name) || list.push(name);

function start() {
  const child = spawn(command, words, { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  return [child, stream];
}

const app = acp
  .client({ name: "test-editor" })
  .onNotification(answer.session.update, ({ params }) => {
    note(seen.updates, params.update.sessionUpdate);
    updates.push(params);
  })
  .onRequest(answer.session.requestPermission, ({ params }) => {
    note(seen.asked, answer.session.requestPermission);
    if (silent) return new Promise(() => {});
    return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
  })
  .onRequest(answer.fs.readTextFile, ({ params }) => {
    note(seen.asked, answer.fs.readTextFile);
    return { content: params.path.endsWith("a.txt") ? "as the editor shows it\n" : readFileSync(params.path, "utf8") };
  })
  .onRequest(answer.elicitation.create, () => {
    note(seen.asked, answer.elicitation.create);
    return { action: "accept", content: { name: "Ada" } };
  });

const abilities = {
  fs: { readTextFile: true, writeTextFile: false },
  session: { compaction: {} },
  elicitation: { form: {} },
  _meta: { terminal_output: true },
};

async function work(agent) {
  const call = async (method, params) => {
    note(seen.sent, method);
    return await agent.request(method, params);
  };
  const refused = async (method, params) => {
    try {
      await call(method, params);
    } catch (error) {
      seen.errors.push(String(error.message));
    }
  };
  const say = (sessionId, text) => call(ask.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
  const until = async (isTrue) => {
    while (!isTrue()) await new Promise((done) => setTimeout(done, 5));
  };
  const here = { cwd: folder, mcpServers: [] };

  seen.agent = await call(ask.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: abilities,
    clientInfo: { name: "test-editor", version: "1" },
  });
  await call(ask.authenticate, { methodId: seen.agent.authMethods[0].id });
  const { sessionId, modes, configOptions } = await call(ask.session.new, here);
  seen.modes = modes.availableModes.map((mode) => mode.id);
  seen.options = configOptions.map((option) => option.id);
  await call(ask.session.setConfigOption, { sessionId, configId: "model", value: "peer/scripted" });
  await until(() => updates.some(({ update }) => update.availableCommands?.some((each) => each.name === "modern:review")));
  seen.ends = [(await say(sessionId, "everything at once")).stopReason, (await say(sessionId, "ask me")).stopReason];
  await call(ask.session.setMode, { sessionId, modeId: "allow edits" });
  await call(ask.session.setMode, { sessionId, modeId: "ask" });
  silent = true;
  updates.length = 0;
  const waiting = say(sessionId, "write, and wait");
  await until(() => updates.some(({ update }) => update.sessionUpdate === "tool_call" && update.kind === "edit"));
  note(seen.sent, ask.session.cancel);
  await agent.notify(ask.session.cancel, { sessionId });
  seen.ends.push((await waiting).stopReason);
  silent = false;

  const fork = await call(ask.session.fork, { ...here, sessionId });
  await call(ask.session.close, { sessionId: fork.sessionId });
  await call(ask.session.resume, { ...here, sessionId: fork.sessionId });
  seen.listed = (await call(ask.session.list, { cwd: folder })).sessions.length;
  await call(ask.session.delete, { sessionId: fork.sessionId });
  seen.left = (await call(ask.session.list, { cwd: folder })).sessions.map((each) => each.sessionId === sessionId);
  updates.length = 0;
  await call(ask.session.load, { ...here, sessionId });
  seen.loaded = updates.map(({ update }) => update.sessionUpdate);
  await refused("session/unheard_of", { sessionId });
  await refused(ask.session.load, { ...here, sessionId: fork.sessionId });
  await refused(ask.session.new, { cwd: "/", mcpServers: [] });
}

const [child, stream] = start();
const ended = new Promise((done) => child.on("exit", done));
await app.connectWith(stream, work);
child.stdin.end();
seen.code = await ended;
console.log(JSON.stringify(seen));
