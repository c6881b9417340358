"""What must hold for the page's markup, read with Python's own parser."""
import base64, hashlib, re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input", "col", "source", "wbr"}
# Shapes without content may close themselves in SVG.
SHAPES = {"path", "rect", "line", "circle", "polygon", "polyline"}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.stack, self.faults, self.raw = [], [], [], {"script": [], "style": []}
        self.words = []
        self.feed(text)
        self.close()
        if self.stack:
            self.faults.append(f"not closed: {[tag for tag, _ in self.stack]}")

    def handle_starttag(self, tag, attributes):
        element = (tag, dict(attributes), [tag for tag, _ in self.stack])
        if len(dict(attributes)) != len(attributes):
            self.faults.append(f"an attribute stands twice: {tag} {attributes}")
        self.elements.append(element)
        if tag not in VOID:
            self.stack.append((tag, element))

    def handle_startendtag(self, tag, attributes):
        if tag not in SHAPES | VOID:
            self.faults.append(f"<{tag}/> is no way to close it")
        self.elements.append((tag, dict(attributes), [tag for tag, _ in self.stack]))

    def handle_endtag(self, tag):
        if not self.stack or self.stack[-1][0] != tag:
            self.faults.append(f"</{tag}> closes {self.stack[-1][0] if self.stack else 'nothing'}")
        if self.stack:
            self.stack.pop()

    def handle_data(self, data):
        if self.stack and self.stack[-1][0] in self.raw:
            self.raw[self.stack[-1][0]].append(data)
        else:
            self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes, _ in self.elements if name == tag]


def tables(text):
    """Each table as (attributes, has a caption, header cells, body rows of cells)."""
    for attributes, body in re.findall(r"<table([^>]*)>(.*?)</table>", text, re.S):
        head = re.search(r"<thead>(.*?)</thead>", body, re.S).group(1)
        rows = re.findall(r"<tr[^>]*>(.*?)</tr>", re.search(r"<tbody>(.*?)</tbody>", body, re.S).group(1), re.S)
        yield attributes, "<caption" in body, re.findall(r"<th[^>]*>", head), [re.findall(r"<t[hd](?: [^>]*)?>", row) for row in rows]


def faults_of(text):
    page = Page(text)
    faults = list(page.faults)
    say = faults.append
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    if len(ids) != len(set(ids)):
        say("an id stands twice")
    for tag, attributes, _ in page.elements:
        for name, value in attributes.items():
            if name.startswith("on") or name == "style":
                say(f"{tag} has {name}")
            if name in ("src", "href", "action", "data", "poster", "srcset", "xlink:href") and not (value or "").startswith("#"):
                say(f"{tag} leads elsewhere: {name}={value}")
            if name in ("href",) and value[1:] not in ids:
                say(f"no such place: {value}")
            if name in ("aria-labelledby", "for", "aria-describedby") and value not in ids:
                say(f"{name}={value} names nothing")
        if tag in ("img", "iframe", "object", "embed", "link", "base", "form"):
            say(f"<{tag}> has no place here")
        if tag == "svg" and "aria-hidden" not in attributes and "aria-label" not in attributes:
            say("a picture without words")
    if re.search(r"url\((?!#)|@import|https?:", "".join(page.raw["style"]) + "".join(page.raw["script"])):
        say("style or script names a resource")
    faults += policy_faults(page)
    for attributes, captioned, head, rows in tables(text):
        if not captioned or any('scope="col"' not in cell for cell in head):
            say(f"table{attributes}: no caption, or a heading without scope")
        for row in rows:
            if len(row) != len(head) or 'scope="row"' not in row[0]:
                say(f"table{attributes}: a row of {len(row)} cells under {len(head)} headings, beginning {row[:1]}")
                break
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    if levels[:1] != [1] or levels.count(1) != 1 or any(b > a + 1 for a, b in zip(levels, levels[1:])):
        say(f"headings out of order: {levels}")
    if page.all("html")[0].get("lang") != "en" or not any("viewport" == meta.get("name") for meta in page.all("meta")):
        say("no language or no viewport")
    return faults


def policy_faults(page):
    metas = [i for i, (tag, attributes, _) in enumerate(page.elements) if attributes.get("http-equiv") == "Content-Security-Policy"]
    blocks = [i for i, (tag, _, _) in enumerate(page.elements) if tag in ("script", "style")]
    if len(metas) != 1 or len(blocks) != 2 or metas[0] > blocks[0]:
        return ["the policy must stand once, before the one style and the one script"]
    policy = page.elements[metas[0]][1]["content"]
    found = [] if policy.startswith("default-src 'none';") else [f"the policy allows too much: {policy}"]
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256("".join(page.raw[kind]).encode()).digest()).decode()
        if f"{kind}-src 'sha256-{digest}'" not in policy:
            found.append(f"the policy does not name the {kind} of the page")
    return found
