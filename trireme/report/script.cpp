// The script of the page: the values of the nearest point under the mouse, and legend entries that hide their series.
// Everything is shown without it.
#include "trireme/report/page.hpp"

namespace trireme::report {

const char* script_js() {
  return R"js(
(function () {
  "use strict";
  var tip = document.getElementById("tip");
  function digits(v) { return String(Number(v.toPrecision(6))); }
  function scaled(v, base, names) {
    var i = 0;
    while (Math.abs(v) >= base && i < names.length - 1) { v /= base; i++; }
    return Number(v.toPrecision(4)) + names[i];
  }
  // The units of PlotAxis::Unit, in its order.
  var units = [
    digits,
    function (v) { return Math.abs(v) < 10000 ? digits(v) : scaled(v, 1000, ["", "K", "M", "B", "T"]); },
    function (v) {
      if (v < 1e-3) return Number((v * 1e6).toPrecision(4)) + " \u00b5s";
      return v < 1 ? Number((v * 1e3).toPrecision(4)) + " ms" : Number(v.toPrecision(4)) + " s";
    },
    function (v) { return scaled(v, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]); },
    function (v) { return Number((100 * v).toPrecision(4)) + " %"; },
    function (v) { return v.toExponential(3); }
  ];
  function nearest(xs, x) {
    var low = 0, high = xs.length - 1;
    while (high - low > 1) { var mid = (low + high) >> 1; if (xs[mid] < x) low = mid; else high = mid; }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  }
  document.querySelectorAll(".plot").forEach(function (plot) {
    var data = JSON.parse(plot.querySelector("script").textContent);
    var area = plot.querySelector(".area"), cursor = null;
    plot.querySelectorAll("button.entry").forEach(function (entry) {
      entry.addEventListener("click", function () {
        var off = entry.classList.toggle("off");
        entry.setAttribute("aria-pressed", String(!off));
        plot.querySelectorAll(".area ." + entry.dataset.hides).forEach(function (e) {
          e.classList.toggle("off", off);
        });
      });
    });
    function hide() { tip.hidden = true; if (cursor) { cursor.remove(); cursor = null; } }
    function show(event) {
      var box = area.getBoundingClientRect(), at = null;
      var x = data.x0 + (event.clientX - box.left) / box.width * (data.x1 - data.x0);
      data.series.forEach(function (s) {
        if (!s.x.length) return;
        var i = nearest(s.x, x);
        if (at === null || Math.abs(s.x[i] - x) < Math.abs(at - x)) at = s.x[i];
      });
      if (at === null) return hide();
      tip.textContent = "";
      var head = document.createElement("b");
      head.textContent = (data.xname ? data.xname + " " : "") + units[data.xunit](at);
      tip.appendChild(head);
      data.series.forEach(function (s) {
        if (!s.x.length || plot.querySelector("[data-hides=" + s.key + "].off")) return;
        var i = nearest(s.x, at), y = s.y[i];
        if (y === null || (s.x[i] !== at && s.x.length > 2)) return;
        var row = document.createElement("div"), chip = document.createElement("i");
        chip.style.background = "var(--c-" + s.colour + ")";
        row.appendChild(chip);
        row.appendChild(document.createTextNode(s.name + " " + units[s.unit](y)));
        tip.appendChild(row);
      });
      if (!cursor) { cursor = document.createElement("div"); cursor.className = "cursor"; area.appendChild(cursor); }
      cursor.style.left = 100 * (at - data.x0) / (data.x1 - data.x0) + "%";
      tip.hidden = false;
      var left = event.clientX + 16, top = event.clientY + 14;
      if (left + tip.offsetWidth > innerWidth - 8) left = event.clientX - tip.offsetWidth - 16;
      if (top + tip.offsetHeight > innerHeight - 8) top = innerHeight - tip.offsetHeight - 8;
      tip.style.left = Math.max(8, left) + "px";
      tip.style.top = Math.max(8, top) + "px";
    }
    area.addEventListener("pointermove", show);
    area.addEventListener("pointerleave", hide);
  });
})();
)js";
}

}  // namespace trireme::report
