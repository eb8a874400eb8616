// Runs a page's code over as much of a document as it uses, and prints what was drawn.
"use strict";
const text = require("fs").readFileSync(process.argv[2], "utf-8");
const [, data] = text.match(/<script id="program" type="application\/json">([^<]*)<\/script>/);
const code = [...text.matchAll(/<script>([\s\S]*?)<\/script>/g)].map(found => found[1]).join("\n");

class Element {
  constructor(kind) {
    Object.assign(this, { kind, style: {}, children: [], listeners: {}, attributes: {}, textContent: "", value: "", className: "" });
    this.classList = { contains: name => (this.attributes.class || this.className).split(" ").includes(name) };
  }
  append(...more) { this.children.push(...more); more.forEach(each => { if (each instanceof Element) each.parentNode = this; }); }
  prepend(...more) { this.children.unshift(...more); }
  replaceChildren(...all) { this.children = []; this.append(...all); }
  addEventListener(name, what) { this.listeners[name] = what; }
  setAttribute(name, value) { this.attributes[name] = value; }
  getBoundingClientRect() { return { left: 0, top: 0, width: 1000, height: 700 }; }
  setPointerCapture() {}
  querySelector(name) { return document.getElementById(name.slice(1)); }
}
const named = {};
const document = {
  getElementById: name => { if (!named[name]) named[name] = new Element(); return named[name]; },
  createElement: kind => new Element(kind),
  createElementNS: (_, kind) => new Element(kind),
};
document.getElementById("program").textContent = data;
Object.assign(document.getElementById("list"), { scrollTop: 0, clientHeight: 660 });
const run = new Function("document", "window", "history", "location", `${code}\nreturn { tree, colours, welcome };`);
const { tree, colours } = run(document, new Element(), { replaceState() {} }, { hash: "" });

const { list, space, detail, search, graph, world, memory } = named;
const name = line => line.children[0].textContent;
const texts = each => typeof each === "string" ? [each] : each.children.flatMap(texts).concat(each.textContent ? [each.textContent] : []);
const boxes = kind => world.children.filter(each => each.kind === "g" && each.classList.contains(kind))
  .map(each => each.children.find(part => part.attributes.class === "name").textContent);
const found = { welcome: texts(detail), boxes: boxes("box"), memory: memory.children.length };

// The list.
if (space.children.length < 10) space.children[0].onclick();
found.height = space.style.height;
list.scrollTop = 22 * 4100;
list.listeners.scroll();
found.drawn = space.children.length;
found.scrolled = space.children.map(name);
search.value = process.argv[3];
search.listeners.input();
found.searched = space.children.slice(1).map(name).slice(0, 2);
space.children[1].onclick();
const entriesOf = title => {
  const parts = detail.children[1].children, at = parts.findIndex(part => part.textContent === title);
  return parts[at + 1].children;
};
found.operands = entriesOf("operands").map(each => each.textContent);
found.users = entriesOf("users").map(each => each.textContent);

// The graph: a search opens what is around a match and draws its neighbours' lines; a click opens a group.
named.less.listeners.click();
found.closed = world.children.length;
search.listeners.keydown({ key: "Enter" });
found.jumped = Object.fromEntries(["chosen", "operand", "user"].map(kind => [kind, boxes(kind)]));
found.links = world.children.filter(each => (each.attributes.class || "").startsWith("link ")).map(each => each.attributes.class).sort();
found.shown = world.children.length;
entriesOf("operands")[0].onclick();
found.chosen = detail.children[0].textContent;
named.less.listeners.click();
const closed = world.children.find(each => each.kind === "g" && each.children.some(part => part.textContent === "\u25b8"));
if (closed) {
  const before = boxes("box").length, event = { clientX: 5, clientY: 5, target: closed.children[0], pointerId: 1 };
  graph.listeners.pointerdown(event);
  graph.listeners.pointerup(event);
  found.clicked = { label: detail.children[0].textContent, more: boxes("box").length - before };
}

// Everything open: each instruction once, no box over another, and all within what they are in.
for (let row = 0; row < tree.rows.length; row += 1) tree.reveal(tree.leafOf(row, undefined));
tree.arrange(tree.root);
found.leaves = 0;
found.wrong = [];
const walk = box => {
  if (box.row >= 0) found.leaves += 1;
  if (!box.open) return;
  box.children.forEach((a, at) => {
    if (a.x < 0 || a.y < 0 || a.x + a.w > box.w + 0.01 || a.y + a.h > box.h + 0.01) found.wrong.push(`${a.label} leaves ${box.label}`);
    for (const b of box.children.slice(at + 1)) {
      if (a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h) found.wrong.push(`${a.label} over ${b.label}`);
    }
    walk(a);
  });
};
walk(tree.root);
found.lines = 0;
const count = box => { if (box.open) { found.lines += box.lines.length; box.children.forEach(count); } };
count(tree.root);
found.modes = Object.fromEntries(Object.entries(colours.modes).map(([mode, { legend, of }]) => {
  const known = new Set(legend.map(([classes]) => classes).concat("")), seen = tree.rows.map((_, row) => of(tree.leafOf(row, undefined)));
  return [mode, { legend: legend.map(([, words]) => words), unknown: seen.filter(each => !known.has(each)).length, seen }];
}));
for (const mode of Object.values(found.modes)) mode.seen = mode.seen.slice(0, 400);
process.stdout.write(JSON.stringify(found));
