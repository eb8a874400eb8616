// What colours say: kinds of op, shares of bytes, flops and time, NaNs, shardings, forward and backward. Classes are page.css's.
"use strict";
const KINDS = [["parameter", ["parameter"]], ["constant", ["constant", "iota"]], ["multiplies", ["contraction", "convolution", "linalg"]],
               ["element by element", ["elementwise", "comparison", "convert"]], ["moves", ["movement", "indexing"]],
               ["reduces, sorts", ["reduction", "sorting", "window"]], ["calls, loops", ["control"]],
               ["exchanges", ["collective", "token"]], ["other", []]];
const SHARES = [0.001, 0.01, 0.05, 0.2];   // from which a colour begins
const SHARE_TEXTS = ["none", "under 0.1 %", "under 1 %", "under 5 %", "under 20 %", "20 % or more"];
const SHARDINGS = 7;                       // from k2 on: the rest have k0

function makeColours(tree, program) {
  const { rows } = tree;
  const sums = new Map();

  function total(node, what) {             // of a box's rows; seconds with the computations that only these call
    if (!sums.has(node)) sums.set(node, {});
    const known = sums.get(node);
    if (known[what] === undefined) known[what] = tree.rowsOf(node).reduce((all, row) => all + ofRow(row, what), 0);
    return known[what];
  }

  function ofRow(row, what) {
    const own = rows[row][what] || 0;
    if (!["seconds", "nan", "inf"].includes(what)) return own;
    const only = rows[row].calls.filter(each => program.computations[each].callers.length === 1);
    return only.reduce((all, each) => all + called(each, what), own);
  }

  function called(number, what) {
    let all = 0;
    for (let at = program.computations[number].first; at < program.computations[number].end; at += 1) all += ofRow(at, what);
    return all;
  }

  const everything = rows.reduce((all, row) => all + (row.seconds || 0), 0);
  function whole(node, what) {             // seconds are of all that ran; what is counted is of the computation that a box is in
    if (what === "seconds") return everything;
    let up = node;
    while (up.kind !== "computation" && up.parent) up = up.parent;
    return total(up, what);
  }

  function shares(what) {
    return {
      legend: SHARE_TEXTS.map((words, at) => [`h${at}`, words]),
      of: node => {
        const all = whole(node, what), part = all ? total(node, what) / all : 0;
        return `h${part > 0 ? 1 + SHARES.filter(share => part >= share).length : 0}`;
      },
    };
  }

  function agreed(node, of) {              // the class that all rows with one agree on
    const found = new Set();
    tree.rowsOf(node).forEach(row => of(row) && found.add(of(row)));
    return found.size === 1 ? [...found][0] : "";
  }

  const kind = row => {
    const at = KINDS.findIndex(([, names]) => names.includes(rows[row].opcode));
    const by = at < 0 ? KINDS.findIndex(([, names]) => names.includes(rows[row].family)) : at;
    return `k${by < 0 ? KINDS.length - 1 : by}`;
  };
  const direction = row => /transpose\(/.test(rows[row].op_name) ? "k7" : /jvp\(/.test(rows[row].op_name) ? "k2" : "";
  const shardings = [...new Set(rows.map(row => row.sharding).filter(Boolean))];
  const numbered = at => at < SHARDINGS ? `k${at + 2}` : "k0";
  const sharding = row => rows[row].sharding ? numbered(shardings.indexOf(rows[row].sharding)) : "";
  const broken = node => total(node, "nan") ? "bad" : total(node, "inf") ? "worse" : "";
  const some = test => rows.some(test);

  const kinds = KINDS.map(([words], at) => [`k${at}`, words]);
  const modes = { "kinds of op": { legend: kinds, of: node => node.row < 0 ? "" : kind(node.row) } };
  if (some(row => row.seconds !== undefined)) modes["time"] = shares("seconds");
  if (some(row => row.bytes)) modes["bytes read and written"] = shares("bytes");
  if (some(row => row.flops)) modes["flops"] = shares("flops");
  if (some(row => row.nan !== undefined)) {
    modes["NaN and Inf"] = { legend: [["bad", "NaN"], ["worse", "Inf"], ["", "neither"]], of: broken };
  }
  if (shardings.length) {
    const legend = shardings.slice(0, SHARDINGS).map((words, at) => [numbered(at), words]);
    if (shardings.length > SHARDINGS) legend.push([numbered(SHARDINGS), `${shardings.length - SHARDINGS} others`]);
    modes["shardings"] = { legend, of: node => agreed(node, sharding) };
  }
  if (some(row => /transpose\(/.test(row.op_name))) {
    modes["forward and backward"] = { legend: [["k2", "forward"], ["k7", "backward"]], of: node => agreed(node, direction) };
  }
  return { modes, total };
}
