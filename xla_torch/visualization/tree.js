// The tree that is drawn: computations, in them groups by op_name, in these instructions, in these the computations that they call.
// Only what is open is laid out, each open box by itself, so that a click costs what stands in one box. Knows no document.
"use strict";
const MOST = 48;                           // boxes within a box: where there are more, runs of them become boxes
const AT_FIRST = 60;                       // boxes that are open in the beginning
const PAD = 16, HEAD = 30, HIGH = 40, GAP = 14, BESIDE = 70;
const LETTER = 7.3, SMALL = 0.86;           // the width of a letter, and that of the second line's by it
const FAR = 50;                            // pixels: a narrower open box is drawn without what is in it

function makeTree(program, dagre) {
  const rows = program.instructions;
  const users = rows.map(() => []);
  rows.forEach((row, number) => new Set(row.operands).forEach(operand => users[operand].push(number)));

  function box(kind, label, parent) {
    return { kind, label, parent, children: [], row: -1, computation: -1, open: false, laid: false, first: -1, count: 0,
             x: 0, y: 0, w: 0, h: 0, lines: [] };
  }

  function scope(number, parent) {         // a computation, each time it is called a box of its own
    const computation = program.computations[number];
    const made = box("computation", `${computation.entry ? "ENTRY " : ""}%${computation.name}`, parent);
    const groups = [];
    for (const [outer, name] of computation.groups) {
      const within = outer < 0 ? made : groups[outer];
      groups.push(box("group", name, within));
      within.children.push(groups[groups.length - 1]);
    }
    made.computation = number;
    made.leaves = [];
    for (let at = computation.first; at < computation.end; at += 1) {
      const within = rows[at].group < 0 ? made : groups[rows[at].group];
      const leaf = box("instruction", `%${rows[at].name}`, within);
      leaf.row = leaf.first = at;
      leaf.count = 1;
      made.leaves.push(leaf);
      within.children.push(leaf);
    }
    settle(made);
    return made;
  }

  function settle(owner) {                 // counts, the order of rows, groups of one group, too many boxes in one
    owner.children.forEach(child => child.kind === "group" && settle(child));
    while (owner.children.length === 1 && owner.children[0].kind === "group") {
      const [only] = owner.children;
      owner.label += `${owner.kind === "group" ? "/" : ": "}${only.label}`;
      owner.children = only.children;
      owner.children.forEach(child => { child.parent = owner; });
    }
    owner.children.sort((a, b) => a.first - b.first);
    while (owner.children.length > MOST) {
      const pieces = Math.ceil(owner.children.length / MOST);
      const size = pieces > MOST ? MOST : Math.ceil(owner.children.length / pieces);
      const made = [];
      for (let at = 0; at < owner.children.length; at += size) made.push(run(owner, owner.children.slice(at, at + size)));
      owner.children = made;
    }
    sum(owner);
  }

  function run(owner, children) {
    const made = box("run", `${ends(children[0])[0]} \u2026 ${ends(children[children.length - 1])[1]}`, owner);
    made.children = children;
    children.forEach(child => { child.parent = made; });
    sum(made);
    return made;
  }
  const ends = child => child.kind === "run" ? child.label.split(" \u2026 ") : [child.label, child.label];

  function sum(owner) {
    owner.first = owner.children.length ? owner.children[0].first : -1;
    owner.count = owner.children.reduce((all, child) => all + child.count, 0);
  }

  function eachRow(node, what) {           // of its own computation
    if (node.kind === "instruction") what(node.row);
    else node.children.forEach(child => eachRow(child, what));
  }

  function rowsOf(node) {
    const found = [];
    eachRow(node, row => found.push(row));
    return found;
  }

  const calls = node => node.kind === "instruction" && rows[node.row].calls.length > 0;
  const opens = node => node.kind !== "instruction" || calls(node);

  function toggle(node, open) {
    if (!opens(node) || node.open === open) return;
    if (open && calls(node) && !node.children.length) {
      node.children = rows[node.row].calls.map(each => scope(each, node));
      node.children.forEach(child => { child.open = true; });
    }
    node.open = open;
    for (let up = node; up; up = up.parent) up.laid = false;
  }

  function edges(owner) {                  // between the boxes in a box: {from, to, count}, by place
    if (owner.edges) return owner.edges;
    const where = new Map(), found = new Map(), size = owner.children.length;
    owner.children.forEach((child, at) => eachRow(child, row => where.set(row, at)));
    for (const [row, to] of where) {
      for (const operand of rows[row].operands) {
        const from = where.get(operand), key = from * size + to;
        if (from === undefined || from === to) continue;
        if (found.has(key)) found.get(key).count += 1;
        else found.set(key, { from, to, count: 1 });
      }
    }
    owner.edges = [...found.values()];
    return owner.edges;
  }

  // ---------------------------------------------------------------------------------------------- layout

  function second(node) {                  // the second line of a box: the pane says layouts
    if (node.kind === "instruction") return `${rows[node.row].opcode} ${rows[node.row].shape.replace(/\{[^}]*\}/g, "")}`;
    return `${node.count} instruction${node.count === 1 ? "" : "s"}`;
  }

  function arrange(node) {                 // w and h of a box, x and y within it of what it shows
    if (node.laid) return;
    const letters = Math.max(node.label.length, second(node).length * SMALL) + (opens(node) ? 3 : 1);
    const narrow = Math.min(Math.max(letters * LETTER + 2 * GAP, 100), 250);
    if (node.open) {
      node.children.forEach(arrange);
      const { w, h } = place(node);
      Object.assign(node, { w: Math.max(w + 2 * PAD, Math.min(node.label.length * LETTER + 60, 400)), h: h + HEAD + PAD });
    } else Object.assign(node, { w: narrow, h: HIGH });
    node.laid = true;
  }

  function place(owner) {                  // backward groups beside the forward ones, and upwards, so that layers meet
    const back = owner.children.filter(isBack);
    const columns = back.length && back.length < owner.children.length
      ? [owner.children.filter(child => !isBack(child)), back] : [owner.children];
    const column = new Map(columns.flatMap((each, at) => each.map(child => [child, at])));
    const all = edges(owner).map(({ from, to, count }) => ({ from: owner.children[from], to: owner.children[to], count }));
    const size = { w: -BESIDE, h: 0 };
    owner.lines = [];
    columns.forEach((each, at) => {
      const own = all.filter(({ from, to }) => column.get(from) === at && column.get(to) === at);
      const { w, h } = pile(owner, each, own, PAD + size.w + BESIDE);
      Object.assign(size, { w: size.w + BESIDE + w, h: Math.max(size.h, h) });
    });
    for (const { from, to, count } of all.filter(each => column.get(each.from) !== column.get(each.to))) {
      owner.lines.push({ from, to, count, points: across(from, to) });
    }
    return size;
  }

  const isBack = node => node.kind === "group" && node.label.startsWith("transpose(");

  function upwards(node) {
    for (let up = node; up; up = up.parent) if (isBack(up)) return true;
    return false;
  }

  function across(from, to) {              // from the side of a box to the side of another
    const right = from.x < to.x, x = from.x + (right ? from.w : 0), u = to.x + (right ? 0 : to.w);
    const y = from.y + from.h / 2, v = to.y + to.h / 2, middle = (x + u) / 2;
    return [{ x, y }, { x: middle, y }, { x: middle, y: v }, { x: u, y: v }];
  }

  function pile(owner, children, all, left) {
    const joined = new Set(all.flatMap(({ from, to }) => [from, to]));
    const apart = children.filter(child => !joined.has(child));
    const size = apart.length ? grid(apart, left) : { w: 0, h: 0 };
    if (!joined.size) return size;
    const top = HEAD + (size.h && size.h + 2 * GAP), name = new Map([...joined].map((child, at) => [child, String(at)]));
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: upwards(owner) ? "BT" : "TB", nodesep: GAP, edgesep: 8, ranksep: 26 });
    for (const child of joined) graph.setNode(name.get(child), { width: child.w, height: child.h });
    for (const { from, to, count } of all) graph.setEdge(name.get(from), name.get(to), { weight: Math.min(count, 4) });
    dagre.layout(graph);
    for (const child of joined) {
      const { x, y } = graph.node(name.get(child));
      Object.assign(child, { x: left + x - child.w / 2, y: top + y - child.h / 2 });
    }
    for (const { from, to, count } of all) {
      const points = graph.edge(name.get(from), name.get(to)).points.map(point => ({ x: left + point.x, y: top + point.y }));
      owner.lines.push({ from, to, count, points });
    }
    return { w: Math.max(size.w, graph.graph().width), h: top - HEAD + graph.graph().height };
  }

  function grid(children, left) {          // what has no lines to its neighbours
    const across = Math.ceil(Math.sqrt(children.length / 2));
    let x = left, y = HEAD, high = 0, wide = 0;
    children.forEach((child, at) => {
      if (at && at % across === 0) { x = left; y += high + GAP; high = 0; }
      Object.assign(child, { x, y });
      x += child.w + GAP;
      high = Math.max(high, child.h);
      wide = Math.max(wide, x - GAP - left);
    });
    return { w: wide, h: y + high - HEAD };
  }

  // --------------------------------------------------------------------------------------- what is looked at

  function corner(node) {                  // where a box stands, from the outermost one's corner
    let x = 0, y = 0;
    for (let up = node; up; up = up.parent) { x += up.x; y += up.y; }
    return { x, y, w: node.w, h: node.h };
  }

  function drawn(view, scale) {            // boxes and lines that meet a rectangle, outer ones first
    const boxes = [], lines = [];
    const misses = (x, y, w, h) => x > view.x + view.w || y > view.y + view.h || x + w < view.x || y + h < view.y;
    const walk = (node, left, top) => {
      const x = left + node.x, y = top + node.y;
      if (misses(x, y, node.w, node.h)) return;
      const inside = node.open && (node === root || Math.max(node.w, node.h / 4) * scale > FAR);
      boxes.push({ node, x, y, inside });
      if (!inside) return;
      for (const line of node.lines) {
        const xs = line.points.map(point => x + point.x), ys = line.points.map(point => y + point.y);
        const lowest = Math.min(...xs), highest = Math.min(...ys);
        if (!misses(lowest, highest, Math.max(...xs) - lowest, Math.max(...ys) - highest)) lines.push({ line, x, y });
      }
      node.children.forEach(child => walk(child, x, y));
    };
    walk(root, 0, 0);
    return { boxes, lines };
  }

  function leafOf(row, near) {             // its box: in the computation that is looked at, or in the first that is called
    const number = rows[row].computation;
    return scopeOf(number, near).leaves[row - program.computations[number].first];
  }

  function scopeOf(number, near) {
    for (let up = near; up; up = up.parent) {
      const found = [up, ...up.children].find(each => each.kind === "computation" && each.computation === number);
      if (found) return found;
    }
    const top = tops.find(each => each.computation === number);
    if (top) return top;
    const caller = leafOf(program.computations[number].callers[0], near);
    if (!caller.children.length) { toggle(caller, true); toggle(caller, false); }
    return caller.children.find(each => each.computation === number);
  }

  function reveal(node) {
    for (let up = node.parent; up; up = up.parent) toggle(up, true);
  }

  function shownFor(node) {                // the box itself, or the outermost closed one around it
    let found = node;
    for (let up = node.parent; up; up = up.parent) if (!up.open) found = up;
    return found;
  }

  function around(node) {                  // rows outside of a box that it reads, and that read it
    const own = new Set(rowsOf(node)), read = new Set(), reading = new Set();
    for (const row of own) {
      rows[row].operands.forEach(each => own.has(each) || read.add(each));
      users[row].forEach(each => own.has(each) || reading.add(each));
    }
    return { operands: [...read], users: [...reading] };
  }

  function find(words) {
    const wanted = words.trim().toLowerCase();
    const fits = row => `%${row.name} ${row.opcode} ${row.shape} ${row.op_name} ${row.source}`.toLowerCase().includes(wanted);
    return wanted ? rows.flatMap((row, number) => fits(row) ? [number] : []) : [];
  }

  function counterpart(node) {             // the backward groups of a forward one, by JAX's names, and the other way round
    if (node.kind !== "group") return undefined;
    const back = /^transpose\((.*)\)/.exec(node.label);
    return node.parent.children.find(each => each.kind === "group" && each !== node && (back
      ? each.label === back[1] : each.label.startsWith(`transpose(${node.label})`)));
  }

  function more(most) {                    // open the closed groups that are shown, as long as there are fewer boxes than that
    let closed = [], count = 0;
    const walk = node => {
      count += 1;
      if (node.open) node.children.forEach(walk);
      else if (node.kind !== "instruction") closed.push(node);
    };
    walk(root);
    closed.sort((a, b) => a.children.length - b.children.length);
    for (const node of closed) {
      if (count + node.children.length > most) return false;
      count += node.children.length;
      toggle(node, true);
    }
    return closed.length > 0;
  }

  function less() {                        // close all but the outermost
    const walk = node => node.children.forEach(child => { walk(child); if (child.kind !== "computation") toggle(child, false); });
    walk(root);
  }

  const tops = [];
  let root;
  program.computations.forEach((each, number) => {
    if (each.entry || !each.callers.length) tops.push(scope(number, undefined));
  });
  if (tops.length === 1) [root] = tops;
  else {                                   // computations that nobody calls stand beside the entry
    root = box("group", "computations", undefined);
    root.children = tops;
    tops.forEach(each => { each.parent = root; });
    sum(root);
  }
  toggle(root, true);
  toggle(tops[0], true);
  while (more(AT_FIRST));
  return { root, rows, users, opens, toggle, arrange, drawn, corner, leafOf, reveal, shownFor, around, find, rowsOf, second,
           counterpart, more, less };
}
