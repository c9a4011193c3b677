// What an answer took: tokens and times, as they are kept with it and as they are shown.

// From what a stream told. Seconds; `resumed` tokens were not computed for it.
export function figuresOf({ usage, begun, first, last }) {
  const own = usage?.zinc ?? {}, resumed = own.resumed_tokens ?? 0, made = usage?.completion_tokens ?? 0;
  const seconds = own.decode_seconds || (last - first) / 1000;
  return {
    ...(usage && { prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details?.cached_tokens ?? 0, made, resumed,
      thought: usage.completion_tokens_details?.reasoning_tokens ?? 0, queue: own.queue_seconds ?? 0 }),
    ...(first && { first: (first - begun) / 1000, whole: (last - begun) / 1000 }),
    ...(made - resumed > 1 && seconds > 0 && { speed: (made - resumed - 1) / seconds }),
  };
}

const counted = (n) => `${n} token${n === 1 ? "" : "s"}`;
const seconds = (s) => `${s < 10 ? s.toFixed(2) : s.toFixed(0)} s`;

// Labels and texts.
export function rows({ figures: f = {}, seed }) {
  return [
    ["Prompt", f.prompt !== undefined && `${counted(f.prompt)}, ${f.cached ?? 0} of them cached`],
    ["Answer", f.made !== undefined && counted(f.made) + (f.thought ? `, ${f.thought} of them reasoning` : "") + (f.resumed ? `, ${f.resumed} of them from before` : "")],
    ["First token", f.first !== undefined && `after ${seconds(f.first)}` + (f.queue >= 0.01 ? `, ${seconds(f.queue)} of it in the queue` : "")],
    ["Whole answer", f.whole !== undefined && `after ${seconds(f.whole)}`],
    ["Speed", f.speed !== undefined && `${f.speed.toFixed(1)} tokens/s`],
    ["Seed", seed],
  ].filter(([, text]) => text);
}

const ENDS = { stop: "", length: "cut at the limit", context: "the context is full", stopped: "stopped", broken: "broken off" };

// How an answer ended, where that is not as usual, and what its replay found. `facts` is of older chats.
export const state = ({ finish, replay, facts }) => [facts ?? (ENDS[finish] ?? finish), replay].filter(Boolean).join(" · ");
export const unfinished = ({ finish, seed }) => ["length", "stopped", "broken"].includes(finish) && !!seed;
