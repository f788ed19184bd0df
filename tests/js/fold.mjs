// A stock AI SDK client: sends messages to a thread, folds what it watches, and prints the messages that came out.
// Usage: node fold.mjs THREAD_URL TEXT...
import { readUIMessageStream } from "ai";

const [url, ...texts] = process.argv.slice(2);
const streams = new Map();
const folded = [];

function take({ messageId, chunk }) {
  if (!streams.has(messageId)) {
    const { readable, writable } = new TransformStream();
    streams.set(messageId, writable.getWriter());
    folded.push(fold(readable));
  }
  streams.get(messageId).write(chunk);
}

async function fold(stream) {
  let last;
  for await (const message of readUIMessageStream({ stream, terminateOnError: true })) last = message;
  return last;
}

async function* events(response) {
  let rest = "";
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    const frames = (rest + piece).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      const data = frame.split("\n").find((line) => line.startsWith("data: "));
      if (data) yield JSON.parse(data.slice(6));
    }
  }
}

async function send(text) {
  const body = JSON.stringify({ message: { parts: [{ type: "text", text }] } });
  const answer = await fetch(`${url}/send`, { method: "POST", body, headers: { "content-type": "application/json" } });
  if (answer.status !== 202) throw new Error(`${answer.status}: ${await answer.text()}`);
}

const watch = await fetch(`${url}/watch`);
for await (const event of events(watch)) {
  if (event.type === "chunk") take(event);
  else if (event.type === "reset") throw new Error(`a reset: ${event.reason}`);
  const idle = event.type === "ready" || event.changes?.thread?.status === "idle";
  if (!idle) continue;
  if (!texts.length) break;
  await send(texts.shift());
}
for (const writer of streams.values()) writer.close();
console.log(JSON.stringify(await Promise.all(folded)));
process.exit(0);
