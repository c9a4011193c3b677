// What the page asks of the server that sent it: its models, and answers as streams of events in OpenAI's form.
import { $ } from "./dom.js";

const HEADER = 20_000; // characters of tokens that are sent; those behind them are computed again

export class Refused extends Error {}

function headers(more = {}) {
  const key = $("key").value.trim();
  return { ...(key && { Authorization: `Bearer ${key}` }), ...more };
}

// The status of the server's answer, and its models.
export async function models() {
  const answer = await fetch("v1/models", { headers: headers() }).catch(() => null);
  return { status: answer?.status, found: answer?.ok ? (await answer.json()).data : [] };
}

// A seed has 64 bits; JSON.stringify would round it, so it goes into the text as digits.
function body(request, seed) {
  const plain = JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } });
  return seed ? `${plain.slice(0, -1)},"seed":${seed}}` : plain;
}

// `event`, `tokens`: of an answer that goes on: all of it comes again, and what these tokens give is not computed again.
async function begin(request, { seed, event, tokens }, signal) {
  const known = event ? { "Last-Event-ID": `${event}.0`, ...(tokens && { "X-Zinc-Resume": tokens }) } : {};
  const asked = headers({ "Content-Type": "application/json", "X-Zinc-Tokens": "1", ...known });
  for (let tries = 0; ; tries++) {
    const answer = await fetch("v1/chat/completions", { method: "POST", headers: asked, body: body(request, seed), signal });
    if (answer.ok) return answer;
    const error = (await answer.json().catch(() => null))?.error;
    if (error?.code !== "still_running" || tries > 9) throw new Refused(error?.message ?? `the server answers ${answer.status}`);
    await new Promise((done) => setTimeout(done, 200)); // the server has not noticed yet that it was stopped
  }
}

async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Refused("the answer broke off; Go on or Retry asks again");
    const parts = (waiting + value).split("\n\n");
    waiting = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const behind = (mark) => lines.filter((line) => line.startsWith(mark)).map((line) => line.slice(mark.length).trim());
      const data = behind("data:").join("\n");
      if (data === "[DONE]") return;
      yield { loading: behind(": loading ")[0], tokens: behind(": tokens ")[0], event: behind("id:")[0], ...(data && { data: JSON.parse(data) }) };
    }
  }
}

// Asks and hands each piece to `took`; returns what the answer was. `how`: see `begin`. Times are milliseconds.
export async function ask(request, how, signal, took) {
  const found = { content: "", thought: "", calls: "", finish: null, usage: null, seed: how.seed, event: how.event, tokens: "",
    odds: [], loading: "", begun: performance.now(), first: 0, last: 0 };
  try {
    const answer = await begin(request, how, signal);
    found.seed = answer.headers.get("x-zinc-seed") ?? found.seed;
    for await (const { loading, tokens, event, data } of events(answer)) {
      if (data?.error) throw new Refused(data.error.message);
      found.loading = loading ?? "";
      found.event = event?.replace(/\.\d+$/, "") ?? found.event;
      found.seed ||= event?.split(".")[3]; // where the headers came before the model was loaded
      if (tokens && found.tokens.length < HEADER) found.tokens += (found.tokens && ",") + tokens;
      if (data?.usage) found.usage = data.usage;
      const choice = data?.choices?.[0];
      const { content, reasoning_content: thought, tool_calls: calls } = choice?.delta ?? {};
      found.content += content ?? "";
      found.thought += thought ?? "";
      for (const { function: f } of calls ?? []) found.calls += (f.name ? `\n${f.name} ` : "") + (f.arguments ?? "");
      for (const { token, logprob } of choice?.logprobs?.content ?? []) found.odds.push([token, logprob]);
      if (content || thought || calls) {
        found.last = performance.now();
        found.first ||= found.last;
      }
      if (content || thought || calls || loading) took?.(found);
      found.finish = choice?.finish_reason ?? found.finish;
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
    found.finish = "stopped";
  }
  return found;
}
