// Runs a page's code over as much of a document as it uses, and prints what was drawn.
"use strict";
const text = require("fs").readFileSync(process.argv[2], "utf-8");
const [, data] = text.match(/<script id="program" type="application\/json">([^<]*)<\/script>/);
const [, code] = text.match(/<script>([\s\S]*)<\/script>/);

class Element {
  constructor() { this.style = {}; this.children = []; this.listeners = {}; this.textContent = ""; this.value = ""; }
  append(...more) { this.children.push(...more); }
  replaceChildren(...all) { this.children = all; }
  addEventListener(name, what) { this.listeners[name] = what; }
}
const named = {};
for (const name of ["program", "list", "space", "detail", "search"]) named[name] = new Element();
named.program.textContent = data;
Object.assign(named.list, { scrollTop: 0, clientHeight: 660 });
const document = { getElementById: name => named[name], createElement: () => new Element() };
new Function("document", "window", code)(document, new Element());

const { list, space, detail, search } = named;
const name = line => line.children[0].textContent;
const found = { height: space.style.height, drawn: 0, scrolled: [] };
space.children[0].onclick();               // the entry is closed where a program is large: open it
if (space.children.length < 10) space.children[0].onclick();
found.height = space.style.height;
list.scrollTop = 22 * 4100;
list.listeners.scroll();
found.drawn = space.children.length;
found.scrolled = space.children.map(name);
search.value = "v777";
search.listeners.input();
list.scrollTop = 0;
list.listeners.scroll();
found.searched = space.children.slice(1).map(name).slice(0, 2);
space.children[1].onclick();
const said = title => {
  const parts = detail.children[1].children, at = parts.findIndex(part => part.textContent === title);
  return parts[at + 1].children;
};
found.operands = said("operands").map(each => each.textContent);
found.users = said("users").map(each => each.textContent);
said("operands")[0].onclick();
found.chosen = detail.children[0].textContent;
process.stdout.write(JSON.stringify(found));
