// Two words and the divergence between them, both ways, computed here by the recursion of `rolebregman.icnn`.
// What it needs is in explorer_data.js, which `rolebregman explorer` makes.
"use strict";

class Explorer {
  constructor(data) {
    const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
    const floats = text => Float64Array.from(new Float32Array(bytes(text).buffer)); // one type of array is fastest
    const low = floats(data.low), step = floats(data.step); // of each coordinate
    const rows = text => {
      const all = Float64Array.from(bytes(text), (code, k) => low[k % data.width] + step[k % data.width] * code);
      return data.words.map((_, i) => all.subarray(i * data.width, (i + 1) * data.width));
    };
    this.words = data.words;
    this.rows = new Map(data.words.map((word, i) => [word, i]));
    this.sources = rows(data.sources); // P_s x of each word
    this.targets = rows(data.targets); // P_t y of each word
    this.layers = data.layers.map(layer => layer.map(text => text && floats(text))); // U_l, c_l, W_{l-1}
    this.output = floats(data.output); // w
    this.convexity = data.strong_convexity; // lambda
    this.stated = new Set(data.pairs.flatMap((targets, i) => targets.map(j => this.code(i, j))));
  }

  code(i, j) { return i * this.words.length + j; }

  // Does WordNet say that word i is a kind of word j?
  isStated(i, j) { return this.stated.has(this.code(i, j)); }

  // D(x, y) of word i as source and word j as target. Every term is positive, so that nothing cancels.
  divergence(i, j) {
    const u = this.sources[i], v = this.targets[j], d = Float64Array.from(u, (x, k) => x - v[k]);
    let value, increment, total;
    for (const [skip, offset, step] of this.layers) {
      const b = Float64Array.from(offset), t = new Float64Array(b.length), below = new Float64Array(b.length);
      addProduct(b, skip, v);
      addProduct(t, skip, d);
      if (step) {
        addProduct(b, step, value);
        addProduct(t, step, increment);
        addProduct(below, step, total);
      }
      [value, increment, total] = [0, 0, 0].map(() => new Float64Array(b.length));
      for (let k = 0; k < b.length; k++) {
        const root = Math.sqrt(b[k] * b[k] + 4), here = squareplus(b[k]), both = here * squareplus(b[k] + t[k]);
        const part = t[k] / (1 + both);
        value[k] = here;
        increment[k] = both * part; // s(b + t) - s(b)
        total[k] = part * increment[k] / root + here / root * below[k]; // B + s'(b) W D
      }
    }
    return dot(this.output, total) + this.convexity / 2 * dot(d, d);
  }

  // The words nearest to word i, itself left out: its targets, or the sources for which it is the target. A generator,
  // which yields after every few words, so that who asks may look after the page meanwhile.
  * nearest(i, asTarget = false, count = 10) {
    const found = [];
    for (let j = 0; j < this.words.length; j++) {
      if (j !== i) found.push({row: j, distance: asTarget ? this.divergence(j, i) : this.divergence(i, j)});
      if (j % 16 === 15) yield;
    }
    return found.sort((a, b) => a.distance - b.distance).slice(0, count);
  }

  // Words that begin like a text, the most frequent first; where there is none, like a shorter text
  suggestions(text, count = 12) {
    for (let start = text; start; start = start.slice(0, -1)) {
      const found = this.words.filter(word => word.startsWith(start));
      if (found.length) return found.slice(0, count);
    }
    return [];
  }
}

function squareplus(a) { return (a + Math.abs(a)) / 2 + 2 / (Math.abs(a) + Math.sqrt(a * a + 4)); }

function dot(a, b) {
  let sum = 0;
  for (let k = 0; k < a.length; k++) sum += a[k] * b[k];
  return sum;
}

// y += A x, the matrix row by row
function addProduct(y, A, x) {
  for (let i = 0, k = 0; i < y.length; i++) {
    let sum = 0;
    for (let j = 0; j < x.length; j++) sum += A[k++] * x[j];
    y[i] += sum;
  }
}

// What a generator returns, computed in slices of a few milliseconds; nothing where it is no longer wanted
async function inSlices(steps, wanted, slice = 12) {
  for (let start = performance.now(); wanted();) {
    const {done, value} = steps.next();
    if (done) return value;
    if (performance.now() - start < slice) continue;
    await new Promise(resolve => setTimeout(resolve));
    start = performance.now();
  }
}

// An element with its properties and what is in it
function element(tag, properties, ...inside) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...inside);
  return made;
}

class ExplorerPage {
  constructor(root, data) {
    if (!data || data.missing) {
      const why = data ? data.missing : "explorer_data.js is not beside this page.";
      root.append(element("p", {className: "explorer-message"}, `The words are missing here: ${why} To make them: `,
                          element("code", {}, "rolebregman explorer --out explorer"), ", into the folder of this page."));
      return;
    }
    this.explorer = new Explorer(data);
    this.found = new Map();
    this.source = this.input("source", "Source", "dog");
    this.target = this.input("target", "Target", "animal");
    const swap = element("button", {type: "button", title: "Swap source and target"}, "⇄");
    swap.setAttribute("aria-label", "Swap source and target");
    swap.onclick = () => this.go(this.target.value, this.source.value);
    const form = element("form", {className: "explorer-form"}, this.field(this.source), swap, this.field(this.target));
    form.onsubmit = event => { event.preventDefault(); this.show(true); };
    this.result = element("div", {className: "explorer-result"});
    this.result.setAttribute("aria-live", "polite");
    this.lists = element("div", {className: "explorer-lists"});
    root.append(form, this.examples(), this.result, this.lists);
    addEventListener("popstate", () => this.arrive());
    this.arrive();
  }

  // Show the words of the address, which stays as it is
  arrive() {
    const asked = new URLSearchParams(location.search);
    this.go(asked.get("source") ?? "dog", asked.get("target") ?? "animal", true);
  }

  input(name, label, example) {
    const made = element("input", {name, id: `explorer-${name}`, placeholder: example, autocomplete: "off", spellcheck: false});
    made.setAttribute("autocapitalize", "none");
    made.setAttribute("list", `explorer-${name}-words`);
    made.label = label;
    made.oninput = () => this.show(false);
    made.onchange = () => this.show(true);
    made.onfocus = () => made.select();
    return made;
  }

  field(input) {
    input.words = element("datalist", {id: input.getAttribute("list")});
    return element("div", {}, element("label", {htmlFor: input.id}, input.label), input, input.words);
  }

  examples() {
    const pairs = [["dog", "animal"], ["car", "vehicle"], ["bread", "food"], ["anger", "emotion"], ["king", "ruler"]];
    const known = pairs.filter(pair => pair.every(word => this.explorer.rows.has(word)));
    return element("p", {className: "explorer-examples"}, "Try ",
                   ...known.flatMap(([x, y], i) => [i ? ", " : "", this.link(`${x} → ${y}`, x, y)]), ".");
  }

  // A link to a pair, which is shown without loading the page again
  link(text, source, target) {
    const made = element("a", {href: `?${new URLSearchParams({source, target})}`}, text);
    made.onclick = event => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.go(source, target);
    };
    return made;
  }

  go(source, target, arrived = false) {
    [this.source.value, this.target.value] = [source, target];
    this.show(true, arrived);
  }

  // `done`: the user has finished the words, so that an unknown one is a mistake; `arrived`: the browser gave the words
  show(done, arrived = false) {
    const words = [this.source, this.target].map(input => {
      const word = input.value.trim().toLowerCase();
      input.words.replaceChildren(...this.explorer.suggestions(word).map(value => element("option", {value})));
      const known = this.explorer.rows.has(word);
      input.setAttribute("aria-invalid", String(done && !known));
      return word;
    });
    const unknown = words.filter(word => !this.explorer.rows.has(word));
    if (unknown.length) {
      if (done) {
        this.shown = "";
        this.result.replaceChildren(...unknown.map(word => this.unknown(word)));
      }
      return;
    }
    this.remember(words, done, arrived);
    // A click into the result leaves the input, which is no reason to replace what is being clicked.
    if (this.shown === words.join(" ")) return;
    this.shown = words.join(" ");
    const [i, j] = words.map(word => this.explorer.rows.get(word));
    this.result.replaceChildren(...this.pair(i, j));
    if (this.listed === i) return;
    this.listed = i;
    clearTimeout(this.later); // the lists take a moment, so they wait until the word is typed to its end
    this.later = setTimeout(() => this.showNeighbours(i), done ? 0 : 300);
  }

  // The address holds both words. What is typed changes it; a step gets one of its own, from which Back returns.
  remember(words, done, arrived) {
    const address = `?${new URLSearchParams({source: words[0], target: words[1]})}`;
    const isStep = done && !arrived && address !== this.step;
    try {
      history.replaceState(null, "", isStep ? this.step : address);
      if (isStep) history.pushState(null, "", address);
    } catch { /* a page from disk may keep its address */ }
    if (done) this.step = address;
  }

  // The lists of word i. What has the focus in a list hands it on to what takes its place.
  async showNeighbours(i) {
    const lists = await this.neighbours(i);
    if (!lists) return;
    const links = () => [...this.lists.querySelectorAll("a")], at = links().indexOf(document.activeElement);
    this.lists.replaceChildren(...lists);
    if (at >= 0) links()[at]?.focus({preventScroll: true});
  }

  unknown(word) {
    if (!word) return element("p", {className: "explorer-message"}, "Type a word into both fields.");
    const near = this.explorer.suggestions(word, 5).join(", ");
    const count = this.explorer.words.length.toLocaleString("en");
    return element("p", {className: "explorer-message"}, `“${word}” is not among the ${count} words of this head, which are `,
                   "single English nouns.", near ? ` Similar: ${near}.` : "");
  }

  pair(i, j) {
    const {words} = this.explorer, x = words[i], y = words[j];
    const ways = [[i, j, "forward"], [j, i, "reverse"]].map(([a, b, name]) => ({a, b, name, distance: this.explorer.divergence(a, b)}));
    const largest = Math.max(...ways.map(way => way.distance)), gap = ways[0].distance - ways[1].distance;
    const bars = element("div", {className: "explorer-bars"}, ...ways.flatMap(({a, b, name, distance}) => {
      const bar = element("span", {className: `explorer-bar explorer-${name}`});
      bar.style.width = `${100 * distance / largest}%`;
      return [element("span", {}, `D(${words[a]}, ${words[b]}) `),
              element("div", {}, element("span", {className: "explorer-track"}, bar), this.number(distance, name))];
    }));
    const [from, to] = gap <= 0 ? [x, y] : [y, x];
    const belief = i === j ? "A word and itself: there is no direction." : [
      "The head believes ", element("strong", {}, `${from} → ${to}`), `: ${from} is a kind of ${to}. `,
      this.explorer.isStated(i, j) ? `WordNet says that ${x} is a kind of ${y}.`
        : this.explorer.isStated(j, i) ? `WordNet says that ${y} is a kind of ${x}.`
          : "WordNet does not say that one is a kind of the other, so take the direction with care."];
    return [bars, element("p", {className: "explorer-belief"}, `The gap D(${x}, ${y}) − D(${y}, ${x}) is `,
                          this.number(gap, "gap"), ". ", ...[belief].flat())];
  }

  // A number to read, with all its digits for who asks
  number(value, name) {
    const made = element("output", {className: "explorer-number", title: String(value)}, value.toFixed(3).replace("-", "−"));
    made.dataset.name = name;
    return made;
  }

  async neighbours(i) {
    const x = this.explorer.words[i], wanted = () => this.listed === i;
    if (!this.found.has(i)) {
      const found = [];
      for (const asTarget of [false, true]) found.push(await inSlices(this.explorer.nearest(i, asTarget), wanted));
      if (wanted()) this.found.set(i, found);
    }
    if (!wanted()) return null;
    const [targets, sources] = this.found.get(i);
    return [this.list(`Nearest targets of ${x}`, "targets", targets, row => [i, row]),
            this.list(`Nearest sources of ${x}`, "sources", sources, row => [row, i])];
  }

  list(title, name, found, pair) {
    const items = found.map(({row, distance}) => {
      const [a, b] = pair(row), stated = this.explorer.isStated(a, b);
      const link = this.link(this.explorer.words[row], this.explorer.words[a], this.explorer.words[b]);
      const tick = element("span", {title: "WordNet states it"}, stated ? " ✓" : "");
      return element("li", {}, link, tick, this.number(distance, name));
    });
    return element("section", {}, element("h2", {}, title), element("ol", {className: `explorer-${name}`}, ...items));
  }
}

if (globalThis.document) {
  const root = document.getElementById("explorer");
  if (root) root.page = new ExplorerPage(root, globalThis.explorerData);
}
