# Sphinx's settings; tools/build_site.py stages the pages in _proc/sphinx and starts it.
# By itself: sphinx-build -c tools/site _proc/sphinx _site/html
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from katex import cdn, katex, script, style  # noqa: E402
from nbdev.config import get_config  # noqa: E402
from processed import doc_base  # noqa: E402
from transforms import slug  # noqa: E402

cfg = get_config()
pages = cfg.config_path / "_proc" / "sphinx"

project = html_title = cfg.title
author, copyright, version, language = cfg.author, cfg.copyright, cfg.version, "en"
extensions = ["myst_nb", "sphinx_copybutton", "transforms"]
suppress_warnings = ["myst.header", "mystnb.unknown_mime_type", "config.cache"]

nb_execution_mode = "off"
nb_render_markdown_format = "gfm"
nb_code_prompt_show = nb_code_prompt_hide = "Code"  # as Quarto has it
myst_enable_extensions = ["dollarmath", "amsmath", "attrs_inline", "deflist"]
# A heading has the anchor that it has in Quarto, and that nbdev's links lead to: `distancehead.save_pretrained`.
myst_heading_anchors, myst_heading_anchors_html_ids = 4, True
myst_heading_slug_func = slug

smartquotes_action = "qe"  # two hyphens stay, for they begin an option

html_theme = "sphinx_book_theme"
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_use_index = False  # guides/names has all names
html_context = dict(default_mode="auto", doc_base=doc_base())  # without a mode the theme complains on the console
html_css_files, html_js_files = ["styles.css", "site.css"], ["site.js"]
html_static_path = [str(cfg.nbs_path / "styles.css"), "site.css", "site.js"]
html_extra_path = [str(pages / "extra")]
html_favicon = str(cfg.nbs_path / "images" / "favicon.svg")
html_sourcelink_suffix, html_copy_source, html_show_sourcelink = "", False, False
html_theme_options = dict(
    repository_url=cfg.git_url, use_repository_button=True, use_download_button=False,
    navbar_start=[], navbar_center=[], navbar_end=[], navbar_persistent=[],
)

# Sphinx marks the formulas for MathJax, and loads its script where there are any; site.js sets them with KaTeX, which
# is a quarter as large. Both come from the site itself, or from a CDN where npm is not there.
myst_update_mathjax = False
mathjax_path, mathjax_options = f"{cdn}/{script}", dict(loading_method="defer")
html_css_files.insert(0, f"{cdn}/{style}")
if formulas := katex():
    html_static_path.append(str(formulas))
    mathjax_path = script
    html_css_files[0] = style
