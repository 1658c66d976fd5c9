"The site in a browser: on a phone's screen, with its formulas, and with no need of the network"
import functools
import html
import json
import re
import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from processed import page_name

chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(not chromium, reason="Chromium is not installed")
notebooks = sorted(p.name for p in (Path(__file__).resolve().parents[1] / "nbs").glob("*.ipynb"))

# A headless window cannot be as narrow as a phone; a frame can. It tells what it sees as JSON in the page's text.
frame = """<!doctype html><meta charset="utf-8">
<iframe id="f" width="390" height="844" src="/{page}"></iframe><pre id="seen"></pre>
<script>
document.getElementById("f").onload = async function () {{
  const page = this.contentWindow, doc = this.contentDocument;
  if (page.MathJax) await page.MathJax.startup.promise;
  await new Promise(done => setTimeout(done, 200));
  const inside = e => {{
    for (let p = e.parentElement; p; p = p.parentElement)
      if (/auto|scroll|hidden|clip/.test(page.getComputedStyle(p).overflowX) && p !== doc.body) return true;
    return false;
  }};
  const wide = [...doc.querySelectorAll(".bd-article *")]
    .filter(e => e.getBoundingClientRect().right > 391 && !inside(e));
  document.getElementById("seen").textContent = JSON.stringify({{
    width: doc.documentElement.scrollWidth,
    wide: wide.slice(0, 5).map(e => e.tagName + "." + e.className + " " + e.textContent.slice(0, 40)),
    formulas: doc.querySelectorAll("mjx-container").length,
    formula_sources: doc.querySelectorAll(".math").length,
    formulas_cut: [...doc.querySelectorAll("div.math > mjx-container")]
      .filter(e => e.getBoundingClientRect().left < e.parentElement.getBoundingClientRect().left - 1)
      .map(e => e.parentElement.getBoundingClientRect().top),
    formula_errors: [...doc.querySelectorAll("mjx-merror")].map(e => e.getAttribute("data-mjx-error")),
    pictures: [...doc.images].filter(e => e.loading !== "lazy" && !e.naturalWidth).map(e => e.src),
    elsewhere: page.performance.getEntriesByType("resource").map(e => e.name)
      .filter(n => !n.startsWith(location.origin) && !n.startsWith("data:")),
    heading: doc.querySelector("h1") && doc.querySelector("h1").textContent,
  }});
}};
</script>"""


class Handler(SimpleHTTPRequestHandler):
    def do_GET(self):
        if not self.path.startswith("/frame/"):
            return super().do_GET()
        body = frame.format(page=self.path.removeprefix("/frame/")).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args): pass


@pytest.fixture(scope="module")
def address(site):
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def look(url, profile):
    "What the frame's script saw, after Chromium has run it"
    seen = subprocess.run([
        chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={profile}",
        "--window-size=800,1000", "--virtual-time-budget=30000", "--dump-dom", url],
        capture_output=True, text=True, timeout=90)
    match = re.search(r'<pre id="seen">(.+?)</pre>', seen.stdout, re.S)
    assert match, f"the page did not finish\n{seen.stderr[-2000:]}"
    return json.loads(html.unescape(match[1]))


@pytest.mark.parametrize("notebook", notebooks)
def test_page_on_a_phone(address, tmp_path, notebook):
    seen = look(f"{address}/frame/{page_name(notebook)}.html", tmp_path)
    assert seen["heading"]
    assert not seen["wide"] and seen["width"] <= 390, "the page scrolls sideways"
    assert seen["formulas"] >= seen["formula_sources"], "a formula is not set"
    assert not seen["formula_errors"]
    assert not seen["formulas_cut"], "a formula is cut off at its left"
    assert not seen["pictures"], "a picture does not load"
    assert not seen["elsewhere"], "the page loads from another host"
