// The style sheet of the page. Colours of series are variables, --c-NAME, of which the dark scheme has its own.
#include "trireme/report/page.hpp"

namespace trireme::report {

const char* style_css() {
  return R"css(
:root{--bg:#fff;--fg:#18202b;--muted:#5b6778;--line:#dde3ea;--grid:#e9edf2;--card:#f6f8fa;--accent:#0a66c2;
--c-run0:#0b6bb5;--c-run1:#d1570a;--c-run2:#0a8f6a;--c-validation:#c2407f;--c-lr:#8a94a3;--c-spike:#d92d20;
  --c-mark:#5b6778;
--c-run3:#7b4fb5;--c-run4:#a67c00;--c-run5:#00838f;--c-run6:#ad1457;--c-run7:#546e7a;
--c-mfu:#c2407f;--c-hfu:#8a5cc9;--c-text:#18202b;--c-predicted:#d92d20;
--c-forward:#57a773;--c-backward:#4a7fc1;--c-input:#8fc1ea;--c-weight:#3a9e96;--c-exposed:#d9483b;
  --c-bubble:#b9c0ca;
--c-optimizer:#e2a32b;--c-data:#8f6bb8;--c-other:#7d8794;--c-hidden:#6d87a8;--c-transfer:#2b3442;
--c-memory-weights:#4a7fc1;--c-memory-gradients:#8f6bb8;--c-memory-states:#e2a32b;--c-memory-other:#b9c0ca;
  --c-memory-activations:#57a773;
--heat:#c2410c;--hatch:#c3cad4;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--bg:#11151b;--fg:#e3e9f1;--muted:#98a4b5;--line:#2b343f;--grid:#222a34;
  --card:#191f28;--accent:#6cb2f7;
--c-run0:#58a6f0;--c-run1:#f0883e;--c-run2:#3fc19b;--c-validation:#f07fb5;--c-lr:#7d8896;--c-spike:#ff6b5e;
  --c-mark:#98a4b5;
--c-run3:#b794f4;--c-run4:#e0b040;--c-run5:#4dd0e1;--c-run6:#f48fb1;--c-run7:#b0bec5;
--c-mfu:#f07fb5;--c-hfu:#b794f4;--c-text:#e3e9f1;--c-predicted:#ff6b5e;
--c-forward:#4f9a69;--c-backward:#4478b8;--c-input:#6fa6d4;--c-weight:#35918a;--c-exposed:#d9483b;
  --c-bubble:#4a5563;
--c-optimizer:#c98f24;--c-data:#8763b0;--c-other:#68727f;--c-hidden:#5f7897;--c-transfer:#dfe6ee;
--c-memory-weights:#4478b8;--c-memory-gradients:#8763b0;--c-memory-states:#c98f24;--c-memory-other:#4a5563;
  --c-memory-activations:#4f9a69;
--heat:#f08a4b;--hatch:#3b4655}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--fg);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
header,main,footer{max-width:1120px;margin:0 auto;padding:0 24px}
header{padding-top:28px}
h1{font-size:26px;line-height:1.2;margin:0 0 6px;overflow-wrap:anywhere;letter-spacing:-.01em}
h2{font-size:19px;margin:0 0 12px;letter-spacing:-.005em}
h3{font-size:15px;margin:20px 0 8px;overflow-wrap:anywhere}
h4{font-size:13px;margin:16px 0 6px;color:var(--muted);font-weight:600}
h4 small{font-weight:400}
p{margin:8px 0}
code,pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
code{overflow-wrap:anywhere}
pre.command{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);border:1px solid var(--line);
  border-radius:8px;padding:10px 12px;margin:6px 0}
section{padding:26px 0 8px;border-top:1px solid var(--line);margin-top:18px}
nav{display:flex;flex-wrap:wrap;gap:4px 16px;margin:18px 0 0}
nav a{color:var(--accent);text-decoration:none;font-size:14px}
nav a:hover{text-decoration:underline}
figure{margin:0 0 14px}
figcaption,.note{color:var(--muted);font-size:13px;margin-top:8px;max-width:92ch}
footer{color:var(--muted);font-size:12.5px;padding-top:16px;padding-bottom:36px;border-top:1px solid var(--line);
  margin-top:26px}
.state{margin:4px 0;color:var(--muted)}
.state b{color:var(--fg)}
.badge{display:inline-block;padding:1px 9px;border-radius:999px;font-size:12.5px;font-weight:600;color:#fff;
  background:#6b7685}
.badge.good{background:#1a7f4b}.badge.busy{background:#0a66c2}.badge.bad{background:#c0362c}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(120px,1fr));gap:10px;margin-top:16px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 12px;min-width:0}
.tile .label{font-size:12.5px;color:var(--muted)}
.tile .value{font-size:21px;font-weight:650;font-variant-numeric:tabular-nums;line-height:1.35;white-space:nowrap}
.tile .remark{font-size:12px;color:var(--muted);min-height:1.2em}
.missing{background:var(--card);border:1px dashed var(--line);border-radius:8px;padding:10px 14px;
  color:var(--muted)}
.missing b{color:var(--fg);font-weight:600}
.warn{color:var(--c-spike)}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;margin:0 0 4px}
.entry{all:unset;display:inline-flex;align-items:center;gap:6px;font-size:13px;line-height:1.9;color:var(--fg)}
button.entry{cursor:pointer}
button.entry:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:3px}
.entry i{display:inline-block;width:16px;height:0;border-top:2.5px solid var(--c)}
.entry.thin i{border-top-width:1px;opacity:.75}
.entry.dashed i{border-top-style:dashed;border-top-width:2px}
.entry.dots i{width:8px;height:8px;border:0;border-radius:50%;background:var(--c);margin:0 4px}
.entry.stack i,.entry.band i{height:11px;width:13px;border:0;border-radius:2px;background:var(--c)}
.entry.band i{opacity:.3}
.entry.tickmark i{width:2px;height:11px;border:0;background:var(--c);margin:0 7px}
.entry i.hatch{height:11px;width:13px;border:0;
  background:repeating-linear-gradient(135deg,var(--hatch) 0 2px,transparent 2px 5px)}
.entry.off{opacity:.4;text-decoration:line-through}
.chip{display:inline-block;width:11px;height:11px;border-radius:2px;background:var(--c);margin-right:7px;
  vertical-align:-1px}
.chart{position:relative;padding:20px 6px 0 62px}
.chart.two{padding-right:58px}
.area{position:relative;border-left:1px solid var(--line);border-bottom:1px solid var(--line)}
.area.plain{border:0}
.area svg,.lane svg{position:absolute;inset:0;width:100%;height:100%;display:block}
.area svg{overflow:visible}
.area path{vector-effect:non-scaling-stroke;fill:none}
.area path.grid{stroke:var(--grid);stroke-width:1}
.area path.line{stroke-linejoin:round;stroke-linecap:round}
.area path.thin{stroke-width:1;opacity:.5}
.area path.thick{stroke-width:2.2}
.area path.dashed{stroke-width:1.6;stroke-dasharray:5 4}
.area path.dots{stroke-width:7;stroke-linecap:round}
.area path.band{opacity:.2}
.area path.stack{stroke:var(--bg);stroke-width:.5}
.area path.spike{stroke:var(--c-spike);stroke-width:9;stroke-linecap:round;stroke-opacity:.75}
.area path.checkpoint{stroke:var(--c-mark);stroke-width:2}
.area path.layout{stroke:var(--c-mark);stroke-width:1.4;stroke-dasharray:2 3}
.area path.heat{fill:var(--heat)}
.area .off{display:none}
.tick{position:absolute;font-size:12px;line-height:1;color:var(--muted);white-space:nowrap;
  font-variant-numeric:tabular-nums}
.tick.y{right:100%;transform:translate(-7px,-50%)}
.tick.y.right{right:auto;left:100%;transform:translate(7px,-50%)}
.tick.x{top:100%;transform:translate(-50%,7px)}
.tick.x.end{transform:translate(-100%,7px)}
.ytitle{position:absolute;left:0;top:0;font-size:12px;color:var(--muted);line-height:1.2}
.ytitle.right{left:auto;right:0}
.xtitle{text-align:center;font-size:12px;color:var(--muted);padding-top:22px;min-height:26px}
.cursor{position:absolute;top:0;bottom:0;width:1px;background:var(--muted);opacity:.6;pointer-events:none}
#tip{position:fixed;z-index:9;background:var(--bg);color:var(--fg);border:1px solid var(--line);border-radius:8px;
  padding:6px 10px;font-size:12.5px;line-height:1.5;
box-shadow:0 3px 14px rgba(0,0,0,.18);pointer-events:none;max-width:300px;font-variant-numeric:tabular-nums}
#tip b{font-weight:600}
#tip i{display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:6px}
.beside{display:grid;grid-template-columns:minmax(0,1fr) 250px;gap:22px;align-items:start}
.memlane{position:relative}
.memlane .chart{padding-top:22px}
.memlane .xtitle{padding-top:12px;min-height:18px}
.memlane:not(:last-of-type) .tick.x{display:none}
.memlane:not(:last-of-type) .xtitle{padding:0;min-height:4px}
.scroll{overflow-x:auto;margin:6px 0}
table{border-collapse:collapse;font-size:13.5px;min-width:min(100%,220px)}
th,td{padding:4px 14px 4px 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
td{white-space:nowrap}
.words td{white-space:normal}
.words td,.words code{overflow-wrap:break-word}
.words td:first-child{white-space:nowrap}
th{color:var(--muted);font-weight:500;font-size:12.5px;white-space:nowrap}
td small,th small{color:var(--muted)}
.r{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
table.matrix td,table.matrix th{text-align:center;padding:2px;border:0}
table.matrix .cell{display:block;padding:5px 8px;border-radius:4px;white-space:nowrap;font-size:12px;
  background:color-mix(in srgb,var(--heat) calc(8% + var(--v)*62%),transparent)}
table.matrix .none{color:var(--muted)}
mark{background:color-mix(in srgb,var(--c-optimizer) 32%,transparent);color:inherit;border-radius:3px;padding:0 3px}
details{margin:10px 0}
summary{cursor:pointer;color:var(--accent);font-size:14px}
.timeline{margin:2px 0 8px}
.row{display:flex;align-items:center;margin:3px 0}
.rowlabel{flex:0 0 58px;font-size:12px;color:var(--muted);white-space:nowrap}
.lane{position:relative;flex:1;min-width:0}
.row.axis .lane{height:16px;border-top:1px solid var(--line)}
.row.axis .tick.x{top:0;transform:translate(-50%,5px)}
.row.axis .tick.x:first-child{transform:translate(0,5px)}
.row.axis .tick.x.end{transform:translate(-100%,5px)}
.idle{position:absolute;top:6%;bottom:6%;
  background:repeating-linear-gradient(135deg,var(--hatch) 0 2px,transparent 2px 6px);border-radius:2px}
.lane rect.thin{fill-opacity:.55}
.barlabel{position:absolute;top:0;bottom:0;display:flex;align-items:center;justify-content:center;font-size:11px;
  color:#fff;overflow:hidden;pointer-events:none;text-shadow:0 0 2px rgba(0,0,0,.55)}
.grids{display:flex;flex-wrap:wrap;gap:8px 40px}
.ranks{display:flex;flex-wrap:wrap;align-items:center;gap:6px;margin:6px 0}
.ranks .rowlabel{flex-basis:34px}
.rank{display:inline-flex;flex-direction:column;align-items:center;min-width:62px;padding:5px 8px;border-radius:7px;
  border:1px solid var(--line);line-height:1.25;--g:#888;
background:color-mix(in srgb,var(--g) 26%,transparent);border-color:var(--g)}
.rank small{color:var(--muted);font-size:11px;white-space:nowrap}
.g0{--g:#4a7fc1}.g1{--g:#e2a32b}.g2{--g:#57a773}.g3{--g:#c2407f}.g4{--g:#8f6bb8}.g5{--g:#3a9e96}.g6{--g:#d1570a}
  .g7{--g:#7d8794}
@media (max-width:760px){header,main,footer{padding-left:14px;padding-right:14px}h1{font-size:21px}
  .beside{grid-template-columns:minmax(0,1fr)}
.chart{padding-left:52px}.chart.two{padding-right:50px}.tiles{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px}
  .tile .value{font-size:18px}
.rowlabel{flex-basis:46px;font-size:11px}.tick,.ytitle{font-size:11px}
  .barlabel{font-size:9.5px}}
@media print{:root{--bg:#fff;--fg:#000;--muted:#444;--line:#ccc;--grid:#e5e5e5;--card:#fff;--accent:#000}
body{font-size:11pt}nav,#tip{display:none!important}header,main,footer{max-width:none;padding:0}
  figure,.memlane,.tile,.row,tr{break-inside:avoid}
h2,h3,h4{break-after:avoid}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}.scroll{overflow:visible}}
)css";
}

}  // namespace trireme::report
