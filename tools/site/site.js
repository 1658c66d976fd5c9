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
  for (const part of document.querySelectorAll("main :is(pre, figure, div, p)")) {
    const scrolls = part.scrollWidth > part.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(part).overflowX);
    if (scrolls && part.clientWidth) part.tabIndex = 0;
  }
}

addEventListener("DOMContentLoaded", nameSummaries);
addEventListener("load", reachScrolling);
addEventListener("resize", reachScrolling);
