"""The site, built as `make docs` builds it and opened in a browser: nothing is missing, nothing is fetched."""

import html
import json
import re
import shutil
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from patience import run_child

DOCS = Path(__file__).parents[1] / "docs"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# needed by the pages: autodoc imports the frameworks of the integrations
NEEDED = ("sphinx", "myst_nb", "furo", "latex2mathml", "lightning", "skorch", "transformers")
MISSING = [name for name in NEEDED if find_spec(name) is None]
OPENED = ("start", "results", "api", "derivation", "notebooks/ten_minutes", "quality", "speed", "training")
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]  # fmt: skip
# Looks into every frame once all are loaded. A formula is broken if it has no size, or shows a command as it was typed;
# if a bar or an accent is much narrower than what it stands over; if an index stands as high as its letter, as without
# a font for mathematics; or if a part of it lies outside of its box. Code is cut if its box is narrower than its
# longest line.
LOOK = """
<pre id="seen"></pre><script>
addEventListener("load", () => {
  const seen = {};
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, box = node => node.getBoundingClientRect();
    const images = [...page.images], formulas = [...page.querySelectorAll("math")];
    seen[frame.id] = {
      title: page.title,
      images: images.length,
      brokenImages: images.filter(i => !i.complete || !i.naturalWidth || !box(i).width).map(i => i.src),
      formulas: formulas.length,
      brokenFormulas: formulas.filter(f => !box(f).width || !box(f).height || f.textContent.includes("\\\\")
        || f.querySelector("merror")).map(f => f.textContent),
      narrowBars: formulas.flatMap(f => [...f.querySelectorAll("mover")])
        .filter(m => box(m.children[0]).width > 24 && box(m.children[1]).width < 0.8 * box(m.children[0]).width)
        .map(m => m.textContent),
      highIndices: formulas.flatMap(f => [...f.querySelectorAll("msub")])
        .filter(m => box(m.children[1]).bottom < box(m.children[0]).bottom + 1).map(m => m.textContent),
      spilled: formulas.filter(f => [...f.querySelectorAll("*")].some(part => box(part).width && (
        box(part).left < box(f).left - 3 || box(part).right > box(f).right + 3
        || box(part).bottom > box(f).bottom + 12 || box(part).top < box(f).top - 12))).map(f => f.textContent),
      means: page.querySelectorAll("math .mean").length,
      cutCode: [...page.querySelectorAll("div.highlight pre")].filter(p => p.scrollWidth > p.clientWidth + 1)
        .map(p => p.textContent.slice(0, 80)),
      wideFigures: images.filter(i => box(i).width > box(i.closest("article")).width + 1).map(i => i.src),
      fetched: frame.contentWindow.performance.getEntriesByType("resource").map(r => r.name),
    };
  }
  document.getElementById("seen").textContent = JSON.stringify(seen);
});
</script>"""

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)}: missing; `make docs-check` has all")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; warnings are errors. It takes a dozen seconds on an idle core."""
    folder = tmp_path_factory.mktemp("site") / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(DOCS), str(folder)]
    done = run_child(command)
    assert done.returncode == 0, done.stderr
    return folder


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.sources, self.ids = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.ids.add(named.get("id"))
        if tag == "a" and named.get("href"):
            self.links.append(named["href"])
        self.sources += [named[key] for key in ("src", "href") if named.get(key) and (tag != "a" or key == "src")]


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}


def test_links_within_the_site_lead_to_a_page_and_a_place_on_it(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            address, place = urldefrag(link)
            if re.match(r"[a-z]+:", address):
                continue
            goal = path if not address else (path.parent / unquote(address)).resolve()
            known = not place or goal not in pages or unquote(place) in pages[goal].ids
            if not goal.exists() or not known:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken
    assert len(pages) > 15


def test_no_page_loads_anything_from_elsewhere(site, pages):
    elsewhere = [source for page in pages.values() for source in page.sources if re.match(r"(https?:)?//", source)]
    assert not elsewhere


def test_the_interface_shows_no_private_name(site):
    text = (site / "api.html").read_text()
    names = re.findall(r'<span class="n"><span class="pre">([^<]*)</span>', text)
    assert "gain" in names
    assert not [name for name in names if name.startswith("_")]
    assert "<strong>_" not in text


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
def test_pages_open_in_a_browser_without_a_broken_image_or_formula(site, tmp_path):
    frames = "".join(f'<iframe id="{name}" src="{name}.html" width="1200" height="800"></iframe>' for name in OPENED)
    (site / "all_at_once.html").write_text(f"<!doctype html><meta charset=utf-8>{frames}{LOOK}")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        flags = [*QUIET, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
        address = f"http://127.0.0.1:{server.server_address[1]}/all_at_once.html"
        done = run_child([CHROMIUM, *flags, address], encoding="utf-8")
        assert done.returncode == 0, done.stderr
        server.shutdown()
    seen = json.loads(html.unescape(re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)[1]))

    assert seen.keys() == set(OPENED)
    for name, page in seen.items():
        assert not page["brokenImages"], name
        for fault in ("brokenFormulas", "narrowBars", "highIndices", "spilled", "cutCode", "wideFigures"):
            assert not page[fault], f"{name}: {fault}"
        assert all("127.0.0.1" in source for source in page["fetched"]), name
    assert "five minutes" in seen["start"]["title"]
    assert seen["results"]["images"] >= 6
    assert seen["api"]["formulas"] >= 1
    assert seen["derivation"]["formulas"] >= 40
    assert seen["derivation"]["means"] >= 5
    assert seen["notebooks/ten_minutes"]["images"] >= 4
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line], done.stderr
