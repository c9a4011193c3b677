// Versions of a turn. The one that is shown stands in the list of turns, with all that follows it there; its `versions` are
// the others, each a list of turns from this place on, and null in the place of the shown one.

function apart(turns, index) {
  const [{ versions = [null], ...first }, ...rest] = turns.slice(index);
  return versions.map((one) => one ?? [first, ...rest]);
}

// Which version a turn is, from 0 on, and of how many.
export const place = (turn) => ({ at: turn.versions?.indexOf(null) ?? 0, of: turn.versions?.length ?? 1 });

// The turns before an index, and another turn there; what stood there before is another version of it.
export const fork = (turns, index, turn) => index < turns.length
  ? [...turns.slice(0, index), { ...turn, versions: [...apart(turns, index), null] }]
  : [...turns, turn];

// The turns with another version shown.
export function choose(turns, index, number) {
  const all = apart(turns, index), [first, ...rest] = all[number];
  return [...turns.slice(0, index), { ...first, versions: all.with(number, null) }, ...rest];
}

// All turns, those of the other versions, too.
export const everyTurn = (turns) => turns.flatMap((turn) => [turn, ...(turn.versions ?? []).flatMap((one) => everyTurn(one ?? []))]);
