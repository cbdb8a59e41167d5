"""Reads a page of `trireme report` back: its numbers, its plots, and what a browser makes of it."""
import html.parser
import json
import pathlib
import shutil
import subprocess
import tempfile

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(html.parser.HTMLParser):
    """`figures`: value by name. `plots`: by section, the data that the script of the page reads. `text`: what a person reads."""

    def __init__(self, text):
        super().__init__()
        self.source, self.figures, self.shown, self.plots, self.words = text, {}, {}, {}, {}
        self.section, self.open, self.kind, self.links, self.scripts = "top", None, "", [], 0
        self.feed(text)
        self.close()
        self.text = {section: " ".join(" ".join(words).split()) for section, words in self.words.items()}

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "section":
            self.section = values["id"]
        if "data-figure" in values:
            name = values["data-figure"]
            assert self.figures.get(name, json.loads(values["data-value"])) == json.loads(values["data-value"]), f"two values of {name}"
            self.figures[name] = json.loads(values["data-value"])
            self.open = name
        if tag in ("script", "style"):
            self.kind = values.get("type", tag)
            self.scripts += tag == "script" and "type" not in values
        self.links += [values[key] for key in ("src", "href", "data", "action") if values.get(key)]

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self.kind = ""
        if tag == "span":
            self.open = None

    def handle_data(self, data):
        if self.kind == "application/json":
            self.plots.setdefault(self.section, []).append(json.loads(data))
        elif not self.kind:
            self.words.setdefault(self.section, []).append(data)
            if self.open:
                self.shown[self.open] = data

    def series(self, section, name, plot=0):
        found = [s for s in self.plots[section][plot]["series"] if s["name"] == name]
        assert len(found) == 1, (name, [s["name"] for s in self.plots[section][plot]["series"]])
        return dict(zip(found[0]["x"], found[0]["y"]))


# Measures the page in a frame of a given width, moves a pointer over the first plot, and clicks on a legend entry.
PROBE = """<!DOCTYPE html><html><body style="margin:0"><iframe id="f" src="{page}" style="border:0;width:{width}px;height:{height}px"></iframe>
<pre id="out"></pre><script>
document.getElementById("f").addEventListener("load", function () {{
  var frame = this.contentWindow, doc = frame.document, area = doc.querySelector(".area"), box = area.getBoundingClientRect();
  area.dispatchEvent(new frame.PointerEvent("pointermove", {{clientX: box.left + box.width / 2, clientY: box.top + 20, bubbles: true}}));
  var tip = doc.getElementById("tip"), entry = doc.querySelector("button.entry"), line = doc.querySelector(".area ." + entry.dataset.hides);
  var out = {{width: doc.documentElement.scrollWidth, tip: tip.hidden ? "" : tip.textContent, before: frame.getComputedStyle(line).display}};
  entry.click();
  out.after = frame.getComputedStyle(line).display;
  out.smallest = Math.min.apply(null, Array.prototype.map.call(doc.querySelectorAll(".tick,td,figcaption"), function (e) {{
    return parseFloat(frame.getComputedStyle(e).fontSize); }}));
  document.getElementById("out").textContent = JSON.stringify(out);
}});
</script></body></html>"""


def browse(page, width, picture=None, height=7000, dark=False):
    """What the probe found, and the console's errors. `picture`: a PNG file to write."""
    with tempfile.TemporaryDirectory(prefix="trireme-browser-", ignore_cleanup_errors=True) as folder:
        probe = pathlib.Path(folder) / "probe.html"
        probe.write_text(PROBE.format(page=pathlib.Path(page).resolve().as_uri(), width=width, height=height))
        flags = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files",
                 "--enable-logging=stderr", f"--user-data-dir={folder}/profile", f"--window-size={width},{height}", "--virtual-time-budget=3000",
                 *(["--blink-settings=preferredColorScheme=0"] if dark else [])]
        done = subprocess.run([*flags, "--dump-dom", probe.as_uri()], capture_output=True, text=True, timeout=60)
        found = done.stdout.split('<pre id="out">')[1].split("</pre>")[0].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
        errors = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        if picture:
            subprocess.run([*flags, f"--screenshot={picture}", pathlib.Path(page).resolve().as_uri() if width >= 500 else probe.as_uri()],
                           capture_output=True, timeout=60, check=True)
        return json.loads(found), errors
