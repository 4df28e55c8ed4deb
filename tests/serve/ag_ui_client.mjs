// Plays one scenario with @ag-ui/client, and prints what it made of the events as JSON.
// node ag_ui_client.mjs FOLDER URL KEY SCENARIO, where FOLDER has node_modules.
import { createRequire } from "node:module";
import { join } from "node:path";

const [folder, url, key, scenario] = process.argv.slice(2);
const { HttpAgent, buildResumeArray } = createRequire(join(folder, "here.js"))("@ag-ui/client");

const agent = new HttpAgent({
  url: `${url}/ag-ui`,
  headers: { authorization: `Bearer ${key}` },
  threadId: "t1",
  initialState: { mine: 1 },
});
const seen = { events: [], errors: [] };

async function run(parameters) {
  try {
    return await agent.runAgent(parameters, {
      onEvent: ({ event }) => {
        seen.events.push(event.type);
      },
      onRunErrorEvent: ({ event }) => {
        seen.errors.push(event.message);
      },
    });
  } catch (error) {
    seen.errors.push(String(error));
    return null;
  }
}

agent.addMessage({ id: "1", role: "user", content: "Explain tides." });
if (scenario === "leave") {
  process.stdin.on("end", () => agent.abortRun()).resume();
}
const first = await run({});
seen.result = first?.result;
if (scenario === "answer") {
  seen.asked = agent.pendingInterrupts.map((one) => one.message);
  const answers = Object.fromEntries(
    agent.pendingInterrupts.map((one) => [one.id, { status: "resolved", payload: { decision: "approve" } }]),
  );
  const second = await run({ resume: buildResumeArray(agent.pendingInterrupts, answers) });
  seen.result = second?.result;
}
if (scenario === "again") {
  agent.addMessage({ id: "2", role: "user", content: "Why?" });
  seen.result = (await run({}))?.result;
}
seen.messages = agent.messages.map(({ role, content }) => ({ role, content }));
seen.state = agent.state;
console.log(JSON.stringify(seen));
