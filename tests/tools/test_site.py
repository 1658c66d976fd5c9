"The site as `make site` has built it: links, what its pages load, and whether everything public has its place"
import re
from configparser import ConfigParser
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

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
    with_formulas = [name for name in pages if "mathjax" in (site / name).read_text(encoding="utf-8")]
    assert with_formulas, "a study of a divergence has formulas"
    assert (site / "_static" / "tex-mml-chtml.js").stat().st_size > 1e6
    assert list((site / "_static" / "output" / "chtml").rglob("*.woff"))


def test_pictures_have_alternative_text_and_captions(site):
    images = {f"{path.name}: {m[0]}": m[0] for path in site.rglob("*.html")
              for m in re.finditer(r'<img [^>]*src="(?:\.\./)*_images/[^>]*>', path.read_text(encoding="utf-8"))}
    assert images and not [name for name, tag in images.items() if not re.search(r'alt="(?!\S*_images/)[^"]', tag)]
    bare = [path.name for path in site.rglob("*.html") if '_images/' in re.sub(
        r"<figure((?!</figure>).)*<figcaption>.*?</figure>", "", path.read_text(encoding="utf-8"), flags=re.S)]
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
