"The site as `make site` has built it: links, what its pages load, and whether everything public has its place"
import json
import re
from collections import Counter
from configparser import ConfigParser
from html import unescape
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup, SoupStrainer

root = Path(__file__).resolve().parents[2]
processed = import_module("processed")


class Page(HTMLParser):
    "Anchors of a page, where its links lead, and what it loads"

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[k] for k in ("id", "name") if attrs.get(k)}
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        elif tag == "link" and attrs.get("rel") not in ("canonical", "author", "next", "prev", "search", "index"):
            self.loads.append(attrs["href"])
        elif attrs.get("src"):
            self.loads.append(attrs["src"])


@pytest.fixture(scope="module")
def pages(site):
    found = {p.relative_to(site).as_posix(): Page(p) for p in site.rglob("*.html") if "_static" not in p.parts}
    assert len(found) > 3
    return found


def test_links_within_the_site_resolve(site, pages):
    broken = []
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (site / name).parent / unquote(parts.path) if parts.path else site / name
            key = target.resolve().relative_to(site).as_posix()
            # Sphinx writes "#" for the top of a page.
            if not target.exists() or parts.fragment and key in pages and unquote(parts.fragment) not in pages[key].ids:
                broken.append(f"{name}: {link}")
    assert not broken


def test_pages_load_nothing_from_elsewhere(site, pages):
    loads = [f"{name}: {address}" for name, page in pages.items() for address in page.loads]
    loads += [f"{path.name}: {address}" for path in site.rglob("*.css")
              for address in re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s;]+)", path.read_text(encoding="utf-8"))]
    assert [a for a in loads if re.search(r": (?:\w+:)?//", a)] == []
    missing = [f"{name}: {a}" for name, page in pages.items() for a in page.loads
               if not a.startswith("data:") and not ((site / name).parent / unquote(urlsplit(a).path)).exists()]
    assert not missing


def test_formulas_are_set_by_files_of_the_site(site, pages):
    with_formulas = [name for name in pages if "katex.min.js" in (site / name).read_text(encoding="utf-8")]
    assert with_formulas, "a study of a divergence has formulas"
    assert (site / "_static" / "katex.min.js").stat().st_size > 1e5
    assert (site / "_static" / "katex.min.css").exists() and list((site / "_static" / "fonts").glob("*.woff2"))


def test_pictures_have_alternative_text_and_captions(site):
    images = {f"{path.name}: {m[0]}": m[0] for path in site.rglob("*.html")
              for m in re.finditer(r'<img [^>]*src="(?:\.\./)*_images/[^>]*>', path.read_text(encoding="utf-8"))}
    assert images and not [name for name, tag in images.items() if not re.search(r'alt="(?!\S*_images/)[^"]', tag)]
    described = r"<figure((?!</figure>).)*<figcaption>.*?</figure>|<meta [^>]*>"
    bare = [path.name for path in site.rglob("*.html")
            if "_images/" in re.sub(described, "", path.read_text(encoding="utf-8"), flags=re.S)]
    assert not bare


def test_every_notebook_has_a_page(pages):
    assert {f"{processed.page_name(path)}.html" for path in processed.notebooks()} <= set(pages)


def test_every_page_opens_its_notebook_in_colab(pages):
    config = ConfigParser(delimiters=["="])
    config.read(root / "settings.ini")
    about = config["DEFAULT"]
    base = f"https://colab.research.google.com/github/{about['user']}/{about['repo']}/blob/{about['branch']}/nbs/"
    for path in processed.notebooks():
        page = pages[f"{processed.page_name(path)}.html"]
        assert [a for a in page.links if "colab" in a and "://" in a] == [base + processed.below_nbs(path)]
        assert any(link.endswith("#in-colab") for link in page.links), f"{path.name}: what to run there first"
    assert "in-colab" in pages["index.html"].ids


class Sidebar(HTMLParser):
    "How many lists each link of the sidebar lies in"

    def __init__(self, path):
        super().__init__()
        self.inside, self.depth, self.links = False, 0, []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "nav" and "bd-links" in (attrs.get("class") or ""): self.inside = True
        if tag == "ul": self.depth += 1
        if tag == "a" and self.inside and (address := attrs.get("href", "#")) != "#":
            self.links.append((address, self.depth))

    def handle_endtag(self, tag):
        if tag == "nav": self.inside = False
        if tag == "ul": self.depth -= 1


def test_the_sidebar_has_the_rooms_of_a_chapter_below_it(site):
    shown = [(link, depth) for link, depth in Sidebar(site / "search.html").links if link.endswith(".html")]
    listed = [f"{processed.page_name(name)}.html" for name in processed.in_order(processed.sidebar())]
    assert [link for link, _ in shown if link != "index.html"] == [link for link in listed if link != "index.html"]
    depth = dict(shown)
    rooms = [(entry["section"], room) for part in processed.sidebar() if not isinstance(part, str)
             for entry in part["contents"] if not isinstance(entry, str) for room in entry["contents"]]
    assert rooms and all(depth[f"{processed.page_name(room)}.html"] == depth[f"{processed.page_name(chapter)}.html"] + 1
                         for chapter, room in rooms)


def test_every_page_has_a_title_a_description_and_a_picture_of_its_own(site, pages):
    seen = {}
    for name in {f"{processed.page_name(path)}.html" for path in processed.notebooks()}:
        text = (site / name).read_text(encoding="utf-8")
        title = unescape(re.search(r"<title>(.*?)</title>", text)[1])
        described = re.findall(r'<meta name="description" content="(.+?)">', text)
        pictures = re.findall(r'<meta property="og:image" content="\S+/(_images/\S+?)">', text)
        assert len(described) == len(pictures) == 1 and (site / pictures[0]).exists(), name
        assert title.count("rolebregman") == 1, f"{name}: {title}"
        assert seen.setdefault(title, name) == name and seen.setdefault(described[0], name) == name, title


class Ids(HTMLParser):
    "The ids of a page, each as often as it is there"

    def __init__(self, path):
        super().__init__()
        self.found = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name == "id"]


def test_no_page_has_an_id_twice(site, pages):
    assert not {name: twice for name in pages
                if (twice := [i for i, n in Counter(Ids(site / name).found).items() if n > 1])}


def test_a_page_weighs_at_most_a_megabyte_and_a_half(site, pages):
    "Without pictures, the search's index and the words of the live page, which has a megabyte of its own"
    heavy = {}
    for name, page in pages.items():
        files = {((site / name).parent / unquote(urlsplit(a).path)).resolve() for a in page.loads}
        parts = [site / name, *(file for file in files if file.suffix not in (".png", ".svg") and file.is_file()
                                and file.name not in ("searchindex.js", "explorer_data.js"))]
        if (total := sum(part.stat().st_size for part in parts)) > 1.5e6: heavy[name] = total
    assert not heavy
    words = site / "interpretability" / "explorer" / "explorer_data.js"
    assert not words.exists() or words.stat().st_size <= 1e6


def test_a_class_stands_above_its_methods_and_a_module_has_a_table_of_its_names(site):
    ids = Ids(site / "role_heads.html").found
    first = ids.index("bregmanhead")
    of_class = [k for k, name in enumerate(ids) if name.startswith("bregmanhead.")]
    assert of_class and min(of_class) > first
    text = (site / "role_heads.html").read_text(encoding="utf-8")
    reference = text[text.index(">Reference of "):]
    assert 'href="#bregmanhead"' in reference and 'href="#bregmanhead-held-weights"' in reference
    names = (site / "guides" / "names.html").read_text(encoding="utf-8")
    assert 'href="../heads/distance_head.html#load-head"' in names


@pytest.fixture(scope="module")
def articles(site, pages):
    "(name, what a reader reads) of each page; read once, and left as it is"
    strainer, found = SoupStrainer("article"), []
    for name in pages:
        article = BeautifulSoup((site / name).read_text(encoding="utf-8"), "html.parser", parse_only=strainer)
        found.append((name, article))
    return found


def test_a_table_has_no_column_that_counts_its_rows(articles):
    counting = []
    for name, article in articles:
        for table in article.select("table.dataframe"):
            first, rows = table.select_one("thead th"), table.select("tbody tr")
            numbers = [row.find(["th", "td"]).get_text() for row in rows]
            counts = numbers == [str(i) for i in range(len(rows))] or len(set(numbers)) < len(numbers)
            if len(rows) > 1 and not first.get_text() and all(number.isdigit() for number in numbers) and counts:
                counting.append((name, numbers))
    assert not counting


def test_no_page_shows_markdown_or_a_formula_as_it_is_written(articles):
    raw, written = re.compile(r"\]\(|\*\*|`|\$|(?<!\S)#{2,4} "), []
    for name, article in articles:
        printed = [pre.get_text() for pre in article.select(".cell_output pre")]
        written += [(name, found[0]) for text in printed if (found := re.search(r"\]\((#|http)\S+", text))]
        inside = {"pre", "code", "script", "style"}
        text = "".join(part for part in article.find_all(string=True) if not any(
            above.name in inside or "math" in above.get("class", ()) for above in part.parents))
        written += [(name, text[max(0, found.start() - 30):found.end() + 30]) for found in raw.finditer(text)]
    assert not written


def test_an_option_keeps_its_two_hyphens(articles):
    dashes = [(name, found[0]) for name, article in articles if name.startswith(("cli/", "guides/"))
              for found in re.finditer(r"(?<!\S)[–—][a-z][\w-]+", article.get_text())]
    assert not dashes


def test_code_that_draws_is_folded_and_no_signature_names_the_notebook(articles):
    cells = [(name, cell) for name, article in articles for cell in article.select(".cell")
             if cell.select_one(".cell_output img")]
    open_ = [(name, cell.get_text()[:80]) for name, cell in cells
             if "plt.subplots(" in cell.get_text() and not cell.find("details")]
    assert cells and not open_
    signatures = [(name, code.get_text()) for name, article in articles for code in article.select("pre")
                  if "__main__." in code.get_text()]
    assert not signatures


def test_sentences_that_a_cell_prints_are_on_its_page(articles):
    read, printed = {name: " ".join(article.get_text().split()) for name, article in articles}, []
    for notebook in processed.notebooks():
        for cell in json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]:
            if "#| output: asis" in "".join(cell["source"]):
                some = " ".join("".join(o.get("text", "")) for o in cell["outputs"]).removeprefix("- ")
                printed.append((processed.page_name(notebook), " ".join(some.split())[:60]))
    assert printed and not [(name, some) for name, some in printed if some not in read[f"{name}.html"]]
