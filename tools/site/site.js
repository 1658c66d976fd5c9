// What the theme leaves out for those who read by keyboard or by ear.
"use strict";

// A button of the sidebar that opens the pages below a chapter says so.
function nameSummaries() {
  for (const summary of document.querySelectorAll("nav summary:not([aria-label])")) {
    const chapter = summary.closest("li")?.querySelector("a")?.textContent.trim();
    summary.setAttribute("aria-label", `Pages below ${chapter ?? "this one"}`);
  }
}

// What scrolls sideways is reached by the tabulator, so that the arrow keys move it.
function reachScrolling() {
  keepReadable();
  for (const part of document.querySelectorAll("main :is(pre, figure, div, p)")) {
    const scrolls = part.scrollWidth > part.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(part).overflowX);
    if (scrolls && part.clientWidth) part.tabIndex = 0;
    sayScrolling(part, scrolls);
  }
}

// Of what a cell prints in columns, each line that has columns stays whole; the sentences around them are wrapped.
function keepColumns() {
  for (const printed of document.querySelectorAll(".tag_columns .cell_output pre")) {
    if (printed.querySelector("span:not(:empty)")) continue;
    const lines = printed.textContent.split("\n").map(line => {
      const row = document.createElement("span");
      row.textContent = line;
      if (/\S {2,}\S|^ {4,}\S|[\u2500\u2502]/.test(line) && line.length <= 88) row.className = "in-columns";
      return row;
    });
    printed.replaceChildren(...lines.flatMap((line, i) => i ? ["\n", line] : [line]));
  }
}

// On a telephone a plot that would be set at less than two thirds of its size keeps it, and scrolls.
function keepReadable() {
  for (const picture of document.querySelectorAll("main :is(figure, .cell_output) img[width]")) {
    const box = picture.closest("figure, .cell_output");
    picture.classList.toggle("wide", Number(picture.getAttribute("width")) > 1.5 * box.clientWidth);
  }
}

// A picture or a table that is wider than the screen says that there is more of it.
function sayScrolling(part, scrolls) {
  const what = part.querySelector("table") ? "table" : "picture";
  if (!part.querySelector("img, table") || part.querySelector("figure, .scrolls")) return;
  const said = part.querySelector(":scope > .scrolling");
  part.classList.toggle("scrolls", scrolls);
  if (!scrolls) said?.remove();
  if (scrolls && !said) {
    const line = document.createElement("p");
    line.className = "scrolling";
    line.textContent = `\u2194 The ${what} scrolls sideways.`;
    part.prepend(line);
  }
}

// Formulas, which Sphinx writes as \\(...\\) and \\[...\\], are set by KaTeX; a page without formulas does not load it.
function setFormulas() {
  // The sign of a transposed matrix, whose bar is a hairline that a screen may not show, as a letter
  const options = {throwOnError: false, macros: {"\\top": "\\mathsf{T}"}};
  for (const part of window.katex ? document.querySelectorAll(".math") : []) {
    const written = [...part.childNodes].filter(node => node.nodeType === Node.TEXT_NODE);
    const formula = written.map(node => node.textContent).join("").trim().replace(/^\\[(\[]|\\[)\]]$/g, "");
    const set = document.createElement("span");
    katex.render(formula, set, {...options, displayMode: part.tagName === "DIV"});
    for (const node of written) node.remove();
    part.append(set);
  }
}

// The name of a module is broken behind a point or an underscore, not within a word.
function breakNames() {
  for (const name of document.querySelectorAll("h2 code .pre, .bd-sidebar-secondary code .pre")) {
    const parts = name.textContent.split(/(?<=[._])/);
    if (name.children.length) continue;
    name.replaceChildren(...parts.flatMap((part, i) => i ? [document.createElement("wbr"), part] : [part]));
  }
}

addEventListener("DOMContentLoaded", nameSummaries);
addEventListener("DOMContentLoaded", breakNames);
addEventListener("DOMContentLoaded", setFormulas);
addEventListener("DOMContentLoaded", keepColumns);
addEventListener("load", reachScrolling);
addEventListener("resize", reachScrolling);
