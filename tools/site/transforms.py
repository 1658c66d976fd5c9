"What Sphinx is to do with our pages, on the tree of a document: captions, numbered formulas, lines that break well"
import re
from html import escape

from docutils import nodes
from markupsafe import Markup
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform


def slug(
    title: str,
) -> str:  # as in `distancehead.save_pretrained`
    "The anchor of a heading, as Quarto makes it"
    words = re.sub(r"[^\w\s.-]", "", title.lower()).split()
    return re.sub(r"^[\W\d_]+", "", "-".join(words))


class Captions(SphinxTransform):
    "A picture that is a paragraph of its own is a figure, and what it says to who cannot see it is its caption"
    default_priority = 500

    def apply(self):
        for image in list(self.document.findall(nodes.image)):
            paragraph = image.parent
            if isinstance(paragraph, nodes.paragraph) and len(paragraph) == 1 and image.get("alt"):
                figure = nodes.figure("", image.deepcopy(), nodes.caption("", image["alt"]))
                self.document.set_id(figure)
                paragraph.replace_self(figure)


class NumberedFormulas(SphinxTransform):
    "Sphinx wraps a formula of several lines in `split`, where a tag is refused; it leaves an environment alone"
    default_priority = 500

    def apply(self):
        for formula in self.document.findall(nodes.math_block):
            if r"\tag" in (said := formula.astext()):
                formula["no-wrap"] = formula["nowrap"] = True
                formula[:] = [nodes.Text(f"\\begin{{equation*}}\n{said.strip()}\n\\end{{equation*}}")]


class KeptTogether(SphinxPostTransform):
    "A formula or a name stays on a line with the bracket before it and the brackets and full stops behind it"
    default_priority = 900
    before, behind = re.compile(r"\($"), re.compile(r"^(?:[.,;:)]|’s\b)+")

    def run(self):
        for node in list(self.document.findall(lambda n: isinstance(n, nodes.math | nodes.literal))):
            if isinstance(node.parent, nodes.inline) and isinstance(node.parent.parent, nodes.reference):
                node = node.parent
            if isinstance(node.parent, nodes.reference): node = node.parent
            parent, kept = node.parent, nodes.inline("", "", classes=["kept"])
            i = parent.index(node)
            previous, following = (parent[k] if 0 <= k < len(parent) else None for k in (i - 1, i + 1))
            opened = isinstance(previous, nodes.Text) and self.before.search(previous)
            closed = isinstance(following, nodes.Text) and self.behind.match(following)
            if not (opened or closed): continue
            parent[i] = kept
            if opened:
                parent[i - 1] = nodes.Text(previous[:-1])
                kept += nodes.Text("(")
            kept += node
            if closed:
                parent[i + 1] = nodes.Text(following[closed.end():])
                kept += nodes.Text(closed[0])


class WithTheirUnit(SphinxPostTransform):
    "A number stays on a line with its per cent sign"
    default_priority = 910
    apart = re.compile(r"(?<=\d) (?=%)")

    def run(self):
        for text in list(self.document.findall(nodes.Text)):
            code = isinstance(text.parent, nodes.literal | nodes.math | nodes.FixedTextElement)
            if not code and self.apart.search(text):
                text.parent.replace(text, nodes.Text(self.apart.sub("\u00a0", text)))


def described(app, page, template, context, doctree):
    "What a search engine, a messenger and a browser's tab show of a page: its title, its description, a picture"
    if doctree is None: return
    said = next((" ".join(node.astext().split()) for node in doctree.findall(nodes.block_quote)), "")
    if page == app.config.root_doc: context["title"] = said.partition(":")[0]
    pictures = [app.builder.images[node["uri"]] for node in doctree.findall(nodes.image)
                if node["uri"] in app.builder.images] or ["directions.png"]
    base = context.get("doc_base", "")
    tags = {"og:title": Markup(context["title"]).striptags(), "og:type": "website", "og:description": said,
            "og:url": f"{base}{page}.html", "og:site_name": app.config.project,
            "og:image": f"{base}_images/{pictures[0]}"}
    lines = [f'<meta name="description" content="{escape(said)}">', '<meta name="twitter:card" content="summary">']
    for name, text in tags.items():
        lines.append(f'<meta property="{name}" content="{escape(text)}">')
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


def setup(app):
    for transform in (Captions, NumberedFormulas): app.add_transform(transform)
    for transform in (KeptTogether, WithTheirUnit): app.add_post_transform(transform)
    app.connect("html-page-context", described)
    return dict(parallel_read_safe=True, parallel_write_safe=True)
