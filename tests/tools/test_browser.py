"The site in a browser: no errors, formulas set, search, on a phone's screen, the interactive page; without the network"
import copy
import functools
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
import torch
from processed import below_nbs, notebooks, page_name

from rolebregman.baselines import make_head
from rolebregman.datasets import FetchError, from_pairs, toy_tree
from rolebregman.heads import load_head
from rolebregman.interpretability import explorer

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(not chromium, reason="Chromium is not installed: apt-get install chromium")
nbs = Path(__file__).resolve().parents[2] / "nbs"
phone, desk = dict(width=390, height=844), dict(width=1280, height=900)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=[
            "--disable-gpu", "--disable-quic", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"])
        yield found
        found.close()


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *args): pass


def served(folder):
    "The address of a folder, while it is served"
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def address(site):
    yield from served(site)


@pytest.fixture
def open_page(browser):
    "A function that opens an address; what went wrong on the page meanwhile, of any kind, fails the test at its end"
    contexts, listeners, wrong = [], [], []

    def open_(url, viewport=phone, page=None, **options):
        if page is None:
            contexts.append(browser.new_context(viewport=viewport, **options))
            page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        for event, listen in dict(
            console=lambda said: wrong.append(f"console: {said.text}") if said.type == "error" else None,
            pageerror=lambda error: wrong.append(f"exception: {error}"),
            requestfailed=lambda request: wrong.append(f"failed: {request.url} {request.failure}")
                if "ERR_ABORTED" not in (request.failure or "") else None,  # the page was left before it came
            response=lambda r: wrong.append(f"status {r.status}: {r.url}") if r.status >= 400 else None,
            request=lambda r: wrong.append(f"from elsewhere: {r.url}")
                if not r.url.startswith((url[:url.find("/", 8)], "data:", "blob:")) else None,
        ).items():
            page.on(event, listen)
            listeners.append((page, event, listen))
        page.goto(url, wait_until="load")
        return page

    yield open_
    for page, event, listen in listeners:
        page.remove_listener(event, listen)
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture(scope="module")
def readers(browser):
    "Pages that are kept, by screen and scheme: to look up the next address there takes a third of a new page's time"
    pages = {}

    def page_of(viewport, scheme):
        if (key := (viewport["width"], scheme)) not in pages:
            pages[key] = browser.new_context(viewport=viewport, color_scheme=scheme).new_page()
        return pages[key]

    yield page_of
    for page in pages.values():
        page.context.close()


@pytest.fixture
def look_up(open_page, readers, address):
    "A function that looks up a page of the site, for tests that only look at it"
    return lambda name, viewport=phone, scheme="light": open_page(f"{address}/{name}.html",
                                                                  page=readers(viewport, scheme))


look = """async () => {
  const inside = e => {
    for (let p = e.parentElement; p; p = p.parentElement)
      if (/auto|scroll|hidden|clip/.test(getComputedStyle(p).overflowX) && p !== document.body) return true;
    return false;
  };
  const all = query => [...document.querySelectorAll(query)];
  return {
    heading: document.querySelector("h1")?.textContent,
    width: document.documentElement.scrollWidth,
    wide: all(".bd-article *").filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !inside(e))
      .slice(0, 5).map(e => e.tagName + "." + e.className + " " + e.textContent.slice(0, 40)),
    formulas: all(".math .katex").length,
    formula_sources: all(".math").length,
    formulas_cut: all("div.math > span .katex")
      .filter(e => e.getBoundingClientRect().left < e.closest("div.math").getBoundingClientRect().left - 1)
      .map(e => e.getBoundingClientRect().top),
    formula_errors: all(".katex-error").map(e => e.title),
    numbers_over_formulas: all(".katex-html > .katex-tag").filter(e => e.previousElementSibling
      && e.getBoundingClientRect().left < e.previousElementSibling.getBoundingClientRect().right - 1)
      .map(e => e.parentElement.textContent),
    names_broken: all("main thead th").filter(e => e.clientWidth && [...e.childNodes].some(node => {
      const range = document.createRange(), words = node.nodeType === 3 && /^\\w+$/.test(node.textContent.trim());
      range.selectNodeContents(node);
      return words && range.getClientRects().length > 1;
    })).map(e => e.textContent),
    pictures: [...document.images].filter(e => e.loading !== "lazy" && !e.naturalWidth).map(e => e.src),
  };
}"""


@pytest.mark.parametrize("notebook", map(below_nbs, notebooks()))
def test_page_on_a_phone(look_up, notebook):
    seen = look_up(page_name(notebook)).evaluate(look)
    assert seen["heading"]
    assert not seen["wide"] and seen["width"] <= phone["width"], "the page scrolls sideways"
    assert seen["formulas"] >= seen["formula_sources"], "a formula is not set"
    assert not seen["formula_errors"]
    assert not seen["formulas_cut"], "a formula is cut off at its left"
    assert not seen["numbers_over_formulas"], "the number of a formula lies over it"
    assert not seen["pictures"], "a picture does not load"


first = """(all => [...all].map(link => new URL(link.href).pathname.slice(1))
  .filter((page, i, pages) => pages.indexOf(page) === i))(document.querySelectorAll("#search-results > ul > li > a"))"""


again = """typed => {  // as the page does for what stands behind ?q=, but without a summary of every page that it finds
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  document.getElementById("search-results").replaceChildren();
  Search.performSearch(typed);
}"""
sought = [  # what is typed, the page that answers, among how many it is
    ("install", "guides/get_started", 1), ("quickstart", "guides/get_started", 1), ("csv", "guides/own_pairs", 3),
    ("results", "main_results", 3), ("direction accuracy", "evaluation", 3), ("mrr", "evaluation", 3),
    ("faiss", "retrieval", 3), ("hugging face", "integrations/hub", 3), ("add a head", "heads/distance_head", 3),
    ("terminal", "cli", 3), ("gpu", "guides/get_started", 3), ("negatives", "training", 3),
    # Names of the library
    ("fit", "training", 1), ("evaluate", "evaluation", 1), ("score", "heads/distance_head", 3),
    ("BregmanHead", "role_heads", 1), ("load_head", "heads/distance_head", 1)]


def test_search_finds_what_a_newcomer_types(open_page, address):
    page, missed = open_page(f"{address}/search.html?q={quote('torchrun')}", desk), []
    for typed, wanted, among in sought:
        page.locator(".search-summary", has_text="finished").wait_for()
        page.evaluate(again, typed)
        page.locator(".search-summary", has_text="finished").wait_for()
        found = page.evaluate(first)[:among]
        if f"{wanted}.html" not in found: missed.append((typed, wanted, found))
    assert not missed


seen_first = ["index", "guides/get_started", "guides/own_pairs", "interpretability/explorer", "main_results",
              "ablations", "heads/distance_head", "cli/searching", "guides/names", "theory_checks"]
wide_tables = ["baselines", "study/panels", "study/rival_starts", "datasets/catalogue", "guides/beyond_one_machine"]
# But for tables, what else is set in columns, and plots that say so: on a telephone they scroll in a box of their own
cut = """() => [...document.querySelectorAll("main :is(img, table, pre)")].filter(e => {
  if (innerWidth < 1200 && e.closest(".tag_columns, .highlight-text, .scrolls, table")) return false;
  const box = e.getBoundingClientRect();
  if (box.top > innerHeight || !box.width) return false;
  for (let p = e; p.tagName !== "MAIN"; p = p.parentElement)
    if (p.scrollWidth > p.clientWidth + 1 && p.clientWidth && getComputedStyle(p).overflowX !== "visible") return true;
  return box.right > innerWidth + 1;
}).map(e => e.tagName + " " + (e.alt ?? e.textContent).trim().slice(0, 60))"""
small = """() => [...document.querySelectorAll("main pre")]
  .filter(e => parseFloat(getComputedStyle(e).fontSize) < 14).length"""
wide_pictures = """() => [...document.querySelectorAll("main img")]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1
    && (innerWidth > 1200 || !e.closest(".scrolls[tabindex]")?.querySelector(".scrolling").clientHeight))
  .map(e => e.alt)"""
unreadable = """() => [...document.querySelectorAll("main img[width]")]
  .filter(e => e.clientWidth < 0.6 * e.getAttribute("width")).map(e => e.alt)"""
line = """() => {
  const code = document.querySelector("main .cell_input pre");
  if (!code) return 88;
  const style = getComputedStyle(code), pen = document.createElement("canvas").getContext("2d");
  pen.font = style.font;
  const room = code.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return room / pen.measureText("x").width;
}"""
bright = """() => [...document.querySelectorAll("main *")].filter(e => {
  const [red, green, blue, opacity] = getComputedStyle(e).backgroundColor.match(/[\\d.]+/g).map(Number);
  return e.tagName !== "IMG" && e.clientHeight && (opacity ?? 1) > 0.5 && red + green + blue > 550;
}).map(e => e.tagName + "." + e.className + " " + e.textContent.trim().slice(0, 60))"""


@pytest.mark.parametrize("viewport", [desk, phone], ids=["desk", "phone"])
@pytest.mark.parametrize("name", seen_first + wide_tables)
def test_nothing_of_the_first_screen_is_cut(look_up, name, viewport):
    "On a desk nothing further down either: code and results are read without scrolling sideways"
    page = look_up(name, viewport)
    assert page.evaluate(look)["names_broken"] == [], "the name of a column is broken within a word"
    assert page.evaluate(cut if viewport is phone else cut.replace("box.top > innerHeight || ", "")) == []
    assert page.evaluate(small) == 0, "code is set in less than 14 pixels"
    assert page.evaluate(wide_pictures) == [], "a picture is wider than the screen, and does not say that it scrolls"
    assert page.evaluate(unreadable) == [], "a plot is set so small that its words cannot be read"
    assert viewport is phone or page.evaluate(line) >= 88, "a line of 88 characters is broken"


@pytest.mark.parametrize("name", ["datasets/pairs", "study/shipped", "common", "cli/searching", "main_results"])
def test_nothing_but_pictures_is_bright_in_the_dark(look_up, name):
    page = look_up(name, desk, "dark")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark" and page.evaluate(bright) == []


# A page has hundreds of coloured words of code, formulas and rows, of which each is looked at for seconds: five do.
alike = """() => { for (const many of ["main pre", ".katex", "main tr"])
  for (const e of [...document.querySelectorAll(many)].slice(5)) e.dataset.alike = "" }"""


@pytest.mark.parametrize("name, scheme", zip(seen_first, ["light", "dark"] * 5))
def test_a_page_is_for_everybody(look_up, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    page = look_up(name, phone if scheme == "dark" else desk, scheme)
    page.evaluate(alike)
    found = axe.Axe().run(page, dict(exclude=[["[data-alike]"]]), dict(resultTypes=["violations"], preload=False))
    found = found.response["violations"]
    assert not [(rule["id"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in found
                if rule["impact"] in ("serious", "critical")]


lines = """() => ({
  rows: [...document.querySelectorAll("main .tag_columns .in-columns")].map(e => e.getClientRects().length),
  reached: [...document.querySelectorAll("main .tag_columns pre:has(.in-columns)")]
    .every(e => e.scrollWidth <= e.clientWidth + 1 || getComputedStyle(e).overflowX !== "visible"),
  alone: [...document.querySelectorAll("main .kept:has(> code > .pre:only-child) > code")].filter(e => {
    const range = document.createRange(), behind = e.nextSibling;
    if (!behind || e.getClientRects().length > 1) return false;
    range.selectNodeContents(behind);
    return range.getBoundingClientRect().top > e.getBoundingClientRect().bottom;
  }).map(e => e.parentElement.textContent),
})"""


@pytest.mark.parametrize("name", ["guides/own_pairs", "study/tables", "integrations/pykeen", "cli/command"])
def test_a_line_in_columns_is_not_broken_and_a_full_stop_not_alone(look_up, name):
    seen = look_up(name).evaluate(lines)
    assert set(seen["rows"]) <= {1} and seen["reached"] and seen["alone"] == []
    assert seen["rows"] or "integrations" in name, "no line is taken for one in columns"


def way(page, *links):
    "Follow links by what they say"
    for link in links:
        page.get_by_role("link", name=link, exact=True).first.click()
        page.wait_for_load_state("load")
    return page.url


@pytest.mark.parametrize("links, page", [
    (("get started", "your own pairs"), "guides/own_pairs.html"),
    (("what came out",), "main_results.html"),
    (("a control that never looks at the pair",), "study/control.html"),
    (("get started", "what a head is"), "heads/distance_head.html")],
    ids=["own pairs", "doubt", "control", "add a head"])
def test_three_readers_reach_what_they_need_in_three_clicks(open_page, address, links, page):
    assert way(open_page(f"{address}/index.html", desk), *links).split("#")[0].endswith(page) and len(links) <= 3


# The interactive page: its script on a head of this test, which needs no data, and as it is in the site.
page_source = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Explorer</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<link rel="stylesheet" href="explorer.css"><div class="explorer" id="explorer"></div>
<script src="explorer_data.js" defer></script><script src="explorer.js" defer></script></html>"""


def words_of(ds):
    "The nodes of a toy dataset under names that are words"
    names = [f"w{''.join(chr(97 + int(d)) for d in str(i))}" for i in range(ds.num_nodes)]
    names[:2] = ["animal", "dog"]
    pairs = np.array(names)[ds.positives]
    return from_pairs(pd.DataFrame(pairs, columns=["source", "target"]), ds.features, ids=names)


@pytest.fixture(scope="module", params=["directed_bregman", "role_bregman_lowrank", "icnn_bregman"])
def toy(request, tmp_path_factory):
    "(folder of a page, its head): weights far from their start, of three kinds of role maps"
    torch.manual_seed(0)
    ds = words_of(toy_tree(depth=4, branching=3, dim=8))
    head = make_head(request.param, 8, hidden=(12, 10, 6)).fit_standardizer(ds.features)
    with torch.no_grad():
        for weight in head.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    folder = tmp_path_factory.mktemp("explorer")
    explorer.write_explorer_data(explorer.explorer_data(head, ds), folder)
    for name in ("explorer.js", "explorer.css"):
        shutil.copy(nbs / "interpretability" / "explorer" / name, folder)
    (folder / "index.html").write_text(page_source, encoding="utf-8")
    return folder, Rounded(head, ds)


class Rounded:
    "A head as the page has it: on words whose roles are rounded, by their rows, in float64"

    def __init__(self, head, ds):
        self.ids, self.potential = ds.nodes["id"].tolist(), copy.deepcopy(head.potential).double()
        self.roles = [torch.tensor(role) for role in explorer.rounded_roles(explorer.explorer_data(head, ds))]

    @torch.no_grad()
    def __call__(self, i, j):
        return self.potential.divergence(self.roles[0][i], self.roles[1][j])

    def nearest(self, i, turned):
        "The ten nearest targets of a word, or its ten nearest sources; itself left out"
        everything = slice(None)
        order = (self(everything, i) if turned else self(i, everything)).argsort().tolist()
        return [row for row in order if row != i][:10]


def agrees(page, rounded, words=10):
    "Divergences of random pairs, and the ten nearest targets and sources of some words, in the browser and in Python"
    rng = np.random.default_rng(0)
    pairs = rng.integers(len(rounded.ids), size=(500, 2))
    found = page.evaluate("pairs => pairs.map(p => document.getElementById('explorer').page.explorer.divergence(...p))",
                          pairs.tolist())
    np.testing.assert_allclose(found, rounded(*pairs.T), rtol=1e-6)  # the weights of the page are float32
    nearest = """([i, turned]) => {
      const steps = document.getElementById('explorer').page.explorer.nearest(i, turned);
      for (;;) { const {done, value} = steps.next(); if (done) return value.map(f => f.row); }
    }"""
    for i in rng.integers(len(rounded.ids), size=words).tolist():
        for turned in (False, True):
            assert page.evaluate(nearest, [i, turned]) == rounded.nearest(i, turned)


@pytest.mark.parametrize("over", ["http", "file"])
def test_page_computes_what_the_head_does(open_page, toy, over):
    folder, rounded = toy
    if over == "file":
        agrees(open_page(f"{folder.as_uri()}/index.html"), rounded)
    else:
        for address in served(folder):
            agrees(open_page(f"{address}/index.html"), rounded)


def shown(page):
    "The numbers that the page shows, in full"
    return {name: float(page.locator(f"[data-name={name}]").first.get_attribute("title"))
            for name in ("forward", "reverse", "gap")}


def drive(page, rounded, source, target):
    "Type two words, and compare what appears with the head"
    page.get_by_label("Source", exact=True).fill(source)
    page.get_by_label("Target", exact=True).fill(target)
    i, j = map(rounded.ids.index, (source, target))
    forward, reverse = rounded(i, j), rounded(j, i)
    gap = forward - reverse
    np.testing.assert_allclose(list(shown(page).values()), [forward, reverse, gap], rtol=1e-5)
    believed = f"{source} → {target}" if gap < 0 else f"{target} → {source}"
    assert believed in page.locator(".explorer-belief").inner_text()
    assert f"source={source}&target={target}" in page.url
    page.get_by_role("heading", name=f"Nearest targets of {source}", exact=True).wait_for()
    assert page.locator(".explorer-targets a").all_inner_texts() == [
        rounded.ids[r] for r in rounded.nearest(i, turned=False)]
    assert page.locator(".explorer-sources li").count() == 10
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def test_page_is_driven_on_a_phone(open_page, toy):
    folder, rounded = toy
    for address in served(folder):
        page = open_page(f"{address}/index.html?source=wc&target=wd")
        assert [page.get_by_label(name, exact=True).input_value() for name in ("Source", "Target")] == ["wc", "wd"]
        drive(page, rounded, "dog", "animal")
        forward = shown(page)
        page.get_by_label("Swap source and target").click()
        turned = shown(page)
        assert (turned["forward"], turned["reverse"], turned["gap"]) == (
            forward["reverse"], forward["forward"], -forward["gap"])
        page.get_by_label("Source", exact=True).fill("Dog ") # as a telephone's keyboard writes it
        assert "A word and itself" in page.locator(".explorer-belief").inner_text()
        nearest = page.locator(".explorer-targets a").first
        word = nearest.inner_text()
        nearest.click()
        assert page.get_by_label("Target", exact=True).input_value() == word
        page.get_by_label("Target", exact=True).fill("xylograph")
        page.get_by_label("Target", exact=True).press("Enter")
        assert "“xylograph” is not among" in page.locator(".explorer-message").inner_text()
        assert page.get_by_label("Target", exact=True).get_attribute("aria-invalid") == "true"
        page.get_by_label("Target", exact=True).fill("")
        page.get_by_label("Target", exact=True).press("Enter")
        assert "Type a word" in page.locator(".explorer-message").inner_text()


def words(page):
    "What stands in both fields"
    return tuple(page.get_by_label(name, exact=True).input_value() for name in ("Source", "Target"))


def test_page_by_keyboard_keeps_the_focus_and_goes_back_step_by_step(open_page, toy):
    folder, _ = toy
    for address in served(folder):
        page = open_page(f"{address}/index.html?source=wc&target=wd", desk)
        focused = "document.activeElement.textContent"
        # Two steps by typing, a field each; what is typed on the way is none.
        page.get_by_label("Source", exact=True).fill("dog")
        page.get_by_label("Target", exact=True).fill("we")
        page.get_by_label("Target", exact=True).fill("animal")
        page.keyboard.press("Enter")
        page.get_by_role("heading", level=2, name="Nearest sources of dog", exact=True).wait_for()
        # A step within a list, whose words change under it: the focus stays on the third line.
        third = page.locator(".explorer-sources a").nth(2)
        third.focus()
        word = third.inner_text()
        page.keyboard.press("Enter")
        page.get_by_role("heading", level=2, name=f"Nearest sources of {word}", exact=True).wait_for()
        assert page.evaluate(focused) == page.locator(".explorer-sources a").nth(2).inner_text()
        target = page.locator(".explorer-targets a").nth(1)
        target.focus()
        page.keyboard.press("Enter")
        assert page.evaluate(focused) == words(page)[1] == target.inner_text(), "the same source, the same lists"
        seen = []
        for _ in range(4):
            page.go_back()
            seen.append(words(page))
        assert seen == [(word, "dog"), ("dog", "animal"), ("dog", "wd"), ("wc", "wd")]
        page.go_forward()
        assert words(page) == ("dog", "wd")


def test_a_list_never_holds_the_page_up(open_page, toy):
    "However long a list takes: the page gets its turn between slices of it"
    page = open_page(f"{toy[0].as_uri()}/index.html")
    slices = page.evaluate("""async () => {
      let now = 0, slices = [], start = 0;
      const clock = performance.now.bind(performance), timer = window.setTimeout;
      performance.now = () => now;
      window.setTimeout = (run, wait) => { slices.push(now - start); timer(() => { start = now; run(); }, wait); };
      function* steps() { for (let i = 0; i < 1000; i++) { now += 1; yield; } return "done"; }
      const value = await inSlices(steps(), () => true);
      performance.now = clock;
      window.setTimeout = timer;
      return [value, slices.length, Math.max(...slices)];
    }""")
    assert slices[0] == "done" and slices[1] > 50 and slices[2] < 20
    assert page.evaluate("inSlices((function* () { for (;;) yield; })(), () => false)") is None


def test_page_says_what_is_missing(open_page, toy, tmp_path):
    shutil.copytree(toy[0], tmp_path, dirs_exist_ok=True)
    explorer.write_explorer_data(dict(missing="WordNet could not be had."), tmp_path)
    page = open_page(f"{tmp_path.as_uri()}/index.html")
    said = page.locator(".explorer-message").inner_text()
    assert "WordNet could not be had." in said and "rolebregman explorer" in said


def test_interactive_page_of_the_site(open_page, address):
    try:
        head, ds = load_head(explorer.explorer_folder(quiet=True) / "head"), explorer.load_nouns(quiet=True)
    except FetchError as error:
        pytest.skip(str(error).splitlines()[0])
    page = open_page(f"{address}/interpretability/explorer.html")
    if page.locator(".explorer-message").count():
        pytest.skip("the site was built without the words: run make site")
    rounded = Rounded(head, ds)
    drive(page, rounded, "dog", "animal")
    assert shown(page)["gap"] < 0, "a dog is an animal"
    agrees(page, rounded, words=3)
