#!/usr/bin/env python3
"""The report's page, first as markup, then as a reader meets it: in a headless Chromium, in both themes, wide and narrow, with and without scripts."""
import json, os, re, subprocess, sys, tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import browser, page_rules  # noqa: E402

MAKE_PAGE = os.environ["MAKE_PAGE"]
KINDS = {"fleet": ["fleet", "300", "12", "365"], "quarter": ["fleet", "120", "3", "90"], "hostile": ["hostile"], "empty": ["empty"]}
checks = 0


def check(what, good, detail=""):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAILED: {what} {detail}")


def equal(what, found, wanted):
    check(what, found == wanted, f"\n  found  {found!r}\n  wanted {wanted!r}")


def make(form, kind):
    return subprocess.run([MAKE_PAGE, form, *KINDS[kind]], check=True, stdout=subprocess.PIPE).stdout


# Every piece of text that can be seen, with its contrast against what lies behind it (WCAG 2.2, relative luminance).
CONTRAST = r"""(() => {
  const parse = text => (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)]; return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
  const solid = text => { const c = parse(text); return c.length < 4 || c[3] === 1; };
  const behind = element => { for (let e = element; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (solid(c)) return parse(c); } return [255, 255, 255]; };
  const plain = getComputedStyle(document.querySelector(".h0") || document.body);
  const bad = [], seen = new Set();
  let count = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const e = node.parentElement, style = getComputedStyle(e);
    if (!node.data.trim() || e.closest("script,style,title") || !e.getClientRects().length || style.visibility === "hidden") continue;
    let front = parse(style.color), back = null;
    if (e instanceof SVGElement) {
      front = parse(style.fill);
      if (e.classList.contains("gl")) back = behind(e.closest("figure"));
      else { const fill = getComputedStyle(e.previousElementSibling).fill; back = fill.startsWith("url") ? parse(plain.fill) : parse(fill); }
    } else back = behind(e);
    count += 1;
    const r = ratio(front, back), key = e.tagName + "." + e.getAttribute("class") + front + back;
    if (r < 4.5 && !seen.has(key)) { seen.add(key); bad.push([r.toFixed(2), key, node.data.trim().slice(0, 30)]); }
  }
  return { count, bad };
})()"""

OVERFLOW = """(() => { const wide = innerWidth; return [document.documentElement.scrollWidth - wide,
  [...document.querySelectorAll('main *, header *')].filter(e => !e.closest('.wide, svg, .sr') && e.getClientRects().length
    && e.getBoundingClientRect().right > wide + 0.5).map(e => e.outerHTML.slice(0, 80)).slice(0, 3)]; })()"""

ROWS = "[...document.querySelectorAll('table.all tbody tr')]"
SHOWN = ROWS + ".filter(r => r.getClientRects().length)"
NAMES = SHOWN + ".map(r => r.querySelector('summary').textContent)"


def header(name):
    return f"[...document.querySelectorAll('table.all thead th')].find(th => th.textContent.trim() === '{name}')"


def check_markup():
    for kind in KINDS:
        text = make("html", kind).decode()
        equal(f"markup of {kind}", page_rules.faults_of(text), [])
    words = "".join(page_rules.Page(make("html", "hostile").decode()).words)
    for name in ("<script>window.pwned=1</script>", "\"><img src=x onerror=window.pwned=2>", "</td></table></script></style><!--", "]]>&amp;&#60;b&#62;"):
        check("a hostile name is shown as it is", name in words, name)


def check_looks(page, path, kind):
    views = [(1280, False), (400, True), (1280, True), (400, False)]
    for width, dark in views if kind == "fleet" else views[:2]:
        where = f"{kind}, {width} wide, {'dark' if dark else 'light'}"
        page.open(path, width=width, dark=dark)
        over, culprits = page.run(OVERFLOW)
        check(f"{where}: nothing is wider than the page", over <= 0 and not culprits, (over, culprits))
        found = page.run(CONTRAST)
        check(f"{where}: text can be read", found["count"] > 20 and not found["bad"], found)
        equal(f"{where}: nothing went wrong", page.complaints(), [])
        equal(f"{where}: no name became a script", page.run("typeof window.pwned"), "undefined")


def check_sorting(page, packages):
    click = lambda name: page.run(f"{header(name)}.querySelector('button').click()")  # noqa: E731
    size = {p["name"]: p["bytes"] for p in packages}
    click("Size")
    equal("sorted by size", [size[n] for n in page.run(NAMES)], sorted(size.values(), reverse=True))
    equal("and said so", page.run(f"{header('Size')}.getAttribute('aria-sort')"), "descending")
    equal("of one column only", page.run("document.querySelectorAll('th[aria-sort]').length"), 1)
    click("Size")
    equal("and back", [size[n] for n in page.run(NAMES)], sorted(size.values()))
    click("Name")
    equal("sorted by name", page.run(NAMES), sorted(size))
    bound = {p["name"]: p["bound"] for p in packages}
    for _ in range(2):
        click("At most")
        order = [bound[n] for n in page.run(NAMES)]
        with_data = [b for b in order if b is not None]
        check("no data comes last either way", None in order and order[len(with_data):] == [None] * (len(order) - len(with_data)), order)
        down = page.run(f"{header('At most')}.getAttribute('aria-sort')") == "descending"
        check("sorted by bound", all(abs(a - b) < 1e-4 * max(a, b) for a, b in zip(with_data, sorted(with_data, reverse=down))))


def check_searching(page, packages):
    page.run("document.getElementById('search').focus()")
    page.call("Input.insertText", text="Google CLOUD")
    status = page.run("""new Promise(done => { const s = document.getElementById('status'); const watch = new MutationObserver(() => done(s.textContent));
        watch.observe(s, {childList: true, characterData: true, subtree: true}); if (/ of /.test(s.textContent)) done(s.textContent); })""")
    wanted = sorted(p["name"] for p in packages if "google-cloud" in p["name"])
    found = sorted(page.run(NAMES))
    check("search finds all", set(wanted) <= set(found) and len(found) < len(packages), found)
    equal("search says how many", status, f"{len(found)} of {len(packages)} distributions shown")
    equal("it is said aloud", page.run("document.getElementById('status').getAttribute('aria-live')"), "polite")
    page.run("document.getElementById('search').value = ''; const k = document.getElementById('kind'); k.value = 'unused'; k.dispatchEvent(new Event('change'))")
    equal("never used", sorted(page.run(NAMES)), sorted(p["name"] for p in packages if p["unused"]))
    page.run("k.value = 'nodata'; k.dispatchEvent(new Event('change'))")
    equal("no data", sorted(page.run(NAMES)), sorted(p["name"] for p in packages if p["no_data"]))
    page.run("k.value = ''; k.dispatchEvent(new Event('change'))")


def check_keyboard(page, path):
    def press(key, code, text=""):
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text if kind == "keyDown" else "")

    page.open(path)
    press("Tab", 9)
    equal("the first stop skips to the report", page.run("document.activeElement.getAttribute('href')"), "#main")
    stops = page.run("[...document.querySelectorAll('button, summary, input, select, a, [tabindex]')].filter(e => e.getClientRects().length && e.tabIndex < 0 && e.id !== 'main').length")
    equal("nothing is out of the keyboard's reach", stops, 0)
    page.run(f"{header('Sessions')}.querySelector('button').focus()")
    press("Enter", 13, "\r")
    equal("Enter sorts", page.run(f"{header('Sessions')}.getAttribute('aria-sort')"), "ascending")
    page.run("document.querySelector('table.all summary').focus()")
    press("Enter", 13, "\r")
    check("Enter opens a row", page.run("document.querySelector('table.all details').open"))


def check_themes(page):
    paper = "getComputedStyle(document.body).backgroundColor"
    seen = [page.run(paper)]
    for _ in range(3):
        page.run("document.getElementById('theme').click()")
        seen.append(page.run(paper))
    check("the button goes from the system's theme to light, dark and back", seen[0] == seen[1] == seen[3] and seen[2] != seen[0], seen)


def check_folding(page):
    table = "document.querySelector('#unused table')"
    count = f"[...{table}.tBodies[0].rows].filter(r => r.getClientRects().length).length"
    rows = page.run(f"{table}.tBodies[0].rows.length")
    equal("a long table begins short", page.run(count), 20)
    page.run("document.querySelector('#unused .rest button').click()")
    equal("and shows all when asked", page.run(count), rows)


def check_without_scripts(page, path, packages):
    page.open(path, script=False)
    equal("without scripts every row is there", page.run(f"{SHOWN}.length"), len(packages))
    equal("long tables are whole", page.run("document.querySelectorAll('.short, .rest').length"), 0)
    equal("and no control is dead", page.run("[...document.querySelectorAll('button, input, select')].filter(e => e.getClientRects().length).length"), 0)


def check_print(page, path):
    page.open(path, media="print")
    equal("on paper there is no navigation", page.run("[...document.querySelectorAll('nav, .tools, .rest')].filter(e => e.getClientRects().length).length"), 0)
    equal("and no table is short", page.run("[...document.querySelectorAll('.short tbody tr')].filter(r => !r.getClientRects().length).length"), 0)


def main():
    check_markup()
    program = browser.find()
    if program is None:
        print(f"markup: {checks} checks passed; skipped the rest: chromium is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder, browser.Browser(program) as page:
        paths = {}
        for kind in KINDS:
            paths[kind] = Path(folder) / f"{kind}.html"
            paths[kind].write_bytes(make("html", kind))
        for kind in ("fleet", "hostile", "empty"):
            check_looks(page, paths[kind], kind)
        packages = json.loads(make("json", "fleet"))["packages"]
        page.open(paths["fleet"])
        equal("all rows are shown", page.run(NAMES), [p["name"] for p in packages])
        check_sorting(page, packages)
        check_searching(page, packages)
        equal("nothing went wrong on the way", page.complaints(), [])
        check_keyboard(page, paths["fleet"])
        check_themes(page)
        check_folding(page)
        equal("nothing went wrong on the way", page.complaints(), [])
        check_without_scripts(page, paths["fleet"], packages)
        check_print(page, paths["fleet"])
    print(f"{checks} checks passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
